package admission

import (
	"context"
	"fmt"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/admission/protection"
	"github.com/afloat-project/afloat/internal/engine/inplace"
	"github.com/afloat-project/afloat/internal/kinds/uniteddeployment"
)

// unitedDeploymentWebhooks admits UnitedDeployments of both versions, each in its v1beta1 form.
type unitedDeploymentWebhooks struct {
	templates
	// sets judges templates of our StatefulSets.
	sets *statefulSetWebhooks
	// inPlace is what may change under InPlaceOnly of CloneSets.
	inPlace inplace.Options
	// Merging patches takes time, and users of one namespace must not slow down those of others.
	*turns
}

// UnitedDeployments makes the webhooks of the kind.
func UnitedDeployments(e *Environment) Webhooks {
	w := &unitedDeploymentWebhooks{
		templates: templatesOf(e),
		sets:      statefulSetsOf(e),
		inPlace:   e.InPlace,
		turns:     newTurns(),
	}
	return Webhooks{
		Mutate:   w.mutate,
		Validate: w.validate,
		Delete:   e.guard.Handler(protection.Scaled("UnitedDeployment")),
	}
}

// mutate fills in what was left out.
func (w *unitedDeploymentWebhooks) mutate(ctx context.Context, request admission.Request) admission.Response {
	updated, old, err := documents(&request)
	if err != nil {
		return refused(http.StatusBadRequest, err.Error())
	}
	asked := uniteddeployment.DefaultRequest{New: updated, Old: old}
	if w.templateDefaults {
		asked.Complete = func(template document) (document, error) {
			return w.judge.Complete(ctx, request.Namespace, template, claimNames(nativeSet(updated)))
		}
	}
	operations, err := uniteddeployment.Default(asked)
	return completed(operations, err, old)
}

// nativeSet is the template of StatefulSets of Kubernetes.
func nativeSet(object document) document {
	spec, _ := object["spec"].(document)
	template, _ := spec["template"].(document)
	set, _ := template[string(uniteddeployment.StatefulSet)].(document)
	return set
}

// validate judges UnitedDeployments.
func (w *unitedDeploymentWebhooks) validate(
	ctx context.Context, request admission.Request,
) admission.Response {
	if request.Operation == admissionv1.Update && sameSpec(&request) {
		return admission.Allowed("") // metadata only, such as the last finalizer
	}
	united, old, err := compared(&request, (*appsv1alpha1.UnitedDeployment).ToV1beta1)
	if err != nil {
		return refused(http.StatusBadRequest, fmt.Sprintf("the UnitedDeployment cannot be read: %v", err))
	}
	over, came := w.turn(ctx, request.Namespace)
	if !came {
		return refused(http.StatusTooManyRequests,
			"many UnitedDeployments are being written, and this one could not be judged in time; try again later")
	}
	defer over()
	errs := uniteddeployment.Validate(united, old,
		uniteddeployment.Rules{StatefulSet: w.sets.gates, Classes: w.sets.classes(ctx), CloneSet: w.inPlace})
	causes := causesOf(errs)
	var found []metav1.StatusCause
	var warnings []string
	if old == nil || !sameJSON(united.Spec.Template, old.Spec.Template) ||
		!sameJSON(united.Spec.Topology.Subsets, old.Spec.Topology.Subsets) {
		if found, warnings = w.judgeAll(ctx, united); len(found) > 0 && old != nil {
			before, _ := w.judgeAll(ctx, old) // without an answer all faults count
			found = fresh(found, before)
		}
	}
	// What the rules of the kind say of a patch, they say alone.
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
		return invalid(&request, causes).WithWarnings(warnings...)
	}
	return admission.Allowed("").WithWarnings(warnings...)
}

// judgeAll has the API server judge the pod template, node selectors and tolerations, and what patches make
// of the pod template. Warnings tell what it did not decide.
func (w *unitedDeploymentWebhooks) judgeAll(
	ctx context.Context, united *appsv1beta1.UnitedDeployment,
) (causes []metav1.StatusCause, warnings []string) {
	if uniteddeployment.TooLarge(united) {
		return nil, nil // it is refused for that
	}
	if nodes, translate := uniteddeployment.Selectors(united); nodes != nil {
		found, err := judgeDocument(ctx, w.judge, united.Namespace, nodes)
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
	found, err := w.judgeOne(ctx, united.Namespace, template.Document)
	if err != nil {
		warnings = append(warnings, at+"spec.template could not be validated: "+err.Error())
	}
	for _, cause := range found {
		cause.Field = at + cause.Field
		causes = append(causes, cause)
	}
	var patches []subsetPatch
	for i := range united.Spec.Topology.Subsets {
		patches = append(patches, subsetPatch{
			fmt.Sprintf("spec.topology.subsets[%d].patch", i), united.Spec.Topology.Subsets[i].Patch.Raw,
		})
	}
	found, warned := judgePatches(ctx, w.judge, united.Namespace, template.Document, patches)
	return append(causes, found...), append(warnings, warned...)
}
