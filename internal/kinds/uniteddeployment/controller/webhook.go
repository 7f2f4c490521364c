package controller

import (
	"context"
	"fmt"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/inplace"
	"github.com/afloat-project/afloat/internal/framework"
	"github.com/afloat-project/afloat/internal/kinds/statefulset"
	statefulsetcontroller "github.com/afloat-project/afloat/internal/kinds/statefulset/controller"
	"github.com/afloat-project/afloat/internal/kinds/uniteddeployment"
)

// unitedDeploymentWebhooks admits UnitedDeployments of both versions, each in its v1beta1 form.
type unitedDeploymentWebhooks struct {
	framework.Templates
	// gates change what is valid in templates of this project's StatefulSets.
	gates statefulset.Gates
	// live lists storage classes.
	live client.Reader
	// inPlace defines what may change under InPlaceOnly of CloneSets.
	inPlace inplace.Options
	// Merging patches takes time, and users of one namespace must not slow down those of others.
	*framework.Turns
}

// UnitedDeployments returns the webhooks of the kind.
func UnitedDeployments(e *framework.Environment) framework.Webhooks {
	w := &unitedDeploymentWebhooks{
		Templates: framework.NewTemplates(e),
		gates:     statefulsetcontroller.Gates(e),
		live:      e.APIReader,
		inPlace:   e.InPlace,
		Turns:     framework.NewTurns(),
	}
	return framework.Webhooks{
		Mutate:   w.mutate,
		Validate: w.validate,
		Protects: framework.WithReplicas,
	}
}

// mutate adds defaults.
func (w *unitedDeploymentWebhooks) mutate(ctx context.Context, request admission.Request) admission.Response {
	updated, old, err := framework.Documents(&request)
	if err != nil {
		return framework.Refuse(http.StatusBadRequest, err.Error())
	}

	asked := uniteddeployment.DefaultRequest{New: updated, Old: old}
	if w.Complete {
		asked.Complete = func(template framework.Document) (framework.Document, error) {
			return w.Validator.Complete(ctx, request.Namespace, template, framework.ClaimNames(nativeSet(updated)))
		}
	}

	operations, err := uniteddeployment.Default(asked)
	return framework.Defaulted(operations, err, old)
}

// nativeSet returns the template of StatefulSets of Kubernetes.
func nativeSet(object framework.Document) framework.Document {
	spec, _ := object["spec"].(framework.Document)
	template, _ := spec["template"].(framework.Document)
	set, _ := template[string(uniteddeployment.StatefulSet)].(framework.Document)
	return set
}

// validate validates UnitedDeployments.
func (w *unitedDeploymentWebhooks) validate(
	ctx context.Context, request admission.Request,
) admission.Response {
	if request.Operation == admissionv1.Update && framework.SameSpec(&request) {
		return admission.Allowed("") // metadata only, such as the last finalizer
	}

	united, old, err := framework.Compare(&request, (*appsv1alpha1.UnitedDeployment).ToV1beta1)
	if err != nil {
		return framework.Refuse(http.StatusBadRequest, fmt.Sprintf("the UnitedDeployment cannot be read: %v", err))
	}

	over, came := w.Wait(ctx, request.Namespace)
	if !came {
		return framework.Refuse(http.StatusTooManyRequests,
			"many UnitedDeployments are being written, and this one could not be judged in time; try again later")
	}

	defer over()
	errs := uniteddeployment.Validate(united, old,
		uniteddeployment.Rules{StatefulSet: w.gates, Classes: statefulsetcontroller.Classes(ctx, w.live), CloneSet: w.inPlace})
	causes := framework.Causes(errs)
	var found []metav1.StatusCause
	var warnings []string
	if old == nil || !framework.SameJSON(united.Spec.Template, old.Spec.Template) ||
		!framework.SameJSON(united.Spec.Topology.Subsets, old.Spec.Topology.Subsets) {
		if found, warnings = w.judgeAll(ctx, united); len(found) > 0 && old != nil {
			before, _ := w.judgeAll(ctx, old) // without an answer, all faults count
			found = framework.NewCauses(found, before)
		}
	}

	// Errors of the kind's own validation take precedence over those of the API server for the same field.
	known := map[string]bool{}
	for _, cause := range causes {
		known[cause.Field] = true
	}

	for _, cause := range found {
		if !known[cause.Field] {
			causes = append(causes, cause)
		}
	}

	if len(causes) > 0 {
		return framework.Invalid(&request, causes).WithWarnings(warnings...)
	}

	return admission.Allowed("").WithWarnings(warnings...)
}

// judgeAll has the API server validate the pod template, node selectors and tolerations, and the pod template
// with each patch applied. Warnings are about what it did not decide.
func (w *unitedDeploymentWebhooks) judgeAll(
	ctx context.Context, united *appsv1beta1.UnitedDeployment,
) (causes []metav1.StatusCause, warnings []string) {
	if uniteddeployment.TooLarge(united) {
		return nil, nil // it is rejected for its size
	}

	if nodes, translate := uniteddeployment.Selectors(united); nodes != nil {
		found, err := framework.ValidateDocument(ctx, w.Validator, united.Namespace, nodes)
		if err != nil {
			warnings = append(warnings, "node selectors and tolerations could not be validated: "+err.Error())
		}
		for _, cause := range found {
			cause.Field = translate(cause.Field)
			causes = append(causes, cause)
		}
	}

	template, err := uniteddeployment.TemplateOf(&united.Spec.Template)
	if err != nil {
		return causes, warnings // validation reports it
	}

	at := "spec.template." + string(template.Kind) + "."
	found, err := w.ValidateOne(ctx, united.Namespace, template.Document)
	if err != nil {
		warnings = append(warnings, at+"spec.template could not be validated: "+err.Error())
	}

	for _, cause := range found {
		cause.Field = at + cause.Field
		causes = append(causes, cause)
	}

	var patches []framework.SubsetPatch
	for i := range united.Spec.Topology.Subsets {
		patches = append(patches, framework.SubsetPatch{
			At:  fmt.Sprintf("spec.topology.subsets[%d].patch", i),
			Raw: united.Spec.Topology.Subsets[i].Patch.Raw,
		})
	}

	found, warned := framework.ValidatePatches(ctx, w.Validator, united.Namespace, template.Document, patches)
	return append(causes, found...), append(warnings, warned...)
}
