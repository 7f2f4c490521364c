package controller

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	"github.com/afloat-project/afloat/internal/framework"
	"github.com/afloat-project/afloat/internal/kinds/ephemeraljob"
)

// ephemeralWebhook admits EphemeralJobs.
type ephemeralWebhook struct{ framework.Templates }

// EphemeralJobs returns the webhooks of the kind.
func EphemeralJobs(e *framework.Environment) framework.Webhooks {
	w := &ephemeralWebhook{framework.NewTemplates(e)}
	return framework.Webhooks{Mutate: w.mutate, Validate: w.validate}
}

func (w *ephemeralWebhook) mutate(_ context.Context, request admission.Request) admission.Response {
	updated, old, err := framework.Documents(&request)
	if err != nil {
		return framework.Undecodable(&request, err)
	}
	return admission.Patched("", ephemeraljob.Default(updated, old)...)
}

func (w *ephemeralWebhook) validate(ctx context.Context, request admission.Request) admission.Response {
	document, stored, err := framework.Documents(&request)
	if err != nil {
		return framework.Undecodable(&request, err)
	}
	if stored != nil && framework.SameJSON(document["spec"], stored["spec"]) {
		return admission.Allowed("") // metadata only, such as the last finalizer
	}

	job, old, err := framework.CompareOne[appsv1alpha1.EphemeralJob](&request)
	if err != nil {
		return framework.Undecodable(&request, err)
	}

	causes := framework.Causes(ephemeraljob.Validate(document, job, old))
	var warnings []string
	if old == nil {
		var more []metav1.StatusCause
		more, warnings = w.judgeContainers(ctx, &request, document)
		for _, cause := range more { // an error that both find is reported once
			if !slices.ContainsFunc(causes,
				func(c metav1.StatusCause) bool { return c.Field == cause.Field }) {
				causes = append(causes, cause)
			}
		}
	} else if ephemeraljob.Finished(old) {
		warnings = append(warnings,
			"the job has ended: changes of its spec have no effect, but of the time to live; create another job")
	}

	if len(causes) == 0 {
		return admission.Allowed("").WithWarnings(warnings...)
	}

	response := framework.Invalid(&request, causes)
	if response.Result.Code == http.StatusUnprocessableEntity {
		response.Result.Code, response.Result.Reason = http.StatusBadRequest, metav1.StatusReasonBadRequest
	}

	return response.WithWarnings(warnings...)
}

// judgeContainers has the API server validate the containers as those of a pod template.
func (w *ephemeralWebhook) judgeContainers(
	ctx context.Context, request *admission.Request, job framework.Document,
) ([]metav1.StatusCause, []string) {
	template := ephemeraljob.Template(job)
	if template == nil {
		return nil, nil // validation reports the error
	}

	found, err := w.Validator.Judge(ctx, request.Namespace, template, nil)
	var causes []metav1.StatusCause
	for _, cause := range found {
		if placed := ephemeraljob.Placed(cause.Field); placed != "" {
			cause.Field = placed
			causes = append(causes, cause)
		} else if cause.Type == metav1.CauseType(field.ErrorTypeInvalid) && cause.Field == "spec.template" {
			// The template does not fit the server's types.
			cause.Field = "spec.template.ephemeralContainers"
			causes = append(causes, cause)
		}
	}

	if err != nil {
		return causes,
			[]string{fmt.Sprintf("spec.template.ephemeralContainers could not be validated: %v", err)}
	}

	return causes, nil
}
