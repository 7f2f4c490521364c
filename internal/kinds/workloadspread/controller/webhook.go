package controller

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/framework"
	"github.com/afloat-project/afloat/internal/kinds/workloadspread"
)

// workloadSpreadWebhook admits WorkloadSpreads of both versions.
type workloadSpreadWebhook struct {
	judge framework.TemplateValidator
	// cached reads WorkloadSpreads, live their targets.
	cached, live client.Reader
	mapper       meta.RESTMapper
	// announcer makes the API server send the first pods of a WorkloadSpread; it is nil if pods are not sent
	// at all.
	announcer framework.Announcer
	// namespaces checks that the namespace of a WorkloadSpread exists before it is announced.
	namespaces *framework.Namespaces
	// listed holds the kinds of workloads that users list in the configuration.
	listed *Listed
	window time.Duration
	// turns limits how many WorkloadSpreads are validated at once. Merging their patches takes time, and
	// users of one namespace must not slow down the creation of pods and the writes in others. Nil means no
	// limit.
	*framework.Turns
}

// WorkloadSpreads returns the webhook of the kind.
func WorkloadSpreads(e *framework.Environment) framework.Webhooks {
	w := &workloadSpreadWebhook{
		judge:      e.Validator,
		cached:     e.Cache,
		live:       e.APIReader,
		mapper:     e.Mapper,
		announcer:  e.Announcer,
		namespaces: e.Namespaces,
		listed:     Listing.In(e),
		window:     e.Flags.UnschedulableWindow,
		Turns:      framework.NewTurns(),
	}
	return framework.Webhooks{Validate: w.validate, Announces: true}
}

// +kubebuilder:rbac:groups=apps.kruise.io,roleName=kruise-manager-workloadspread-role,resources=workloadspreads,verbs=get;list;watch

func (w *workloadSpreadWebhook) validate(ctx context.Context, request admission.Request) admission.Response {
	if framework.BeingDeleted(&request) {
		return admission.Allowed("")
	}

	spread, old, err := framework.Compare(&request, (*appsv1alpha1.WorkloadSpread).ToV1beta1)
	if err != nil {
		return framework.Undecodable(&request, err)
	}
	if request.Operation == admissionv1.Update && framework.SameSpec(&request) {
		return admission.Allowed("") // metadata only, such as the last finalizer
	}

	over, came := w.Wait(ctx, request.Namespace)
	if !came {
		return framework.Refuse(http.StatusTooManyRequests,
			"many WorkloadSpreads are being written, and this one could not be judged in time; try again later")
	}

	defer over()
	var others appsv1beta1.WorkloadSpreadList
	if err := w.cached.List(ctx, &others, client.InNamespace(request.Namespace),
		client.UnsafeDisableDeepCopy); err != nil {
		return framework.Refuse(http.StatusInternalServerError, fmt.Sprintf("listing WorkloadSpreads: %v", err))
	}

	env := workloadspread.Environment{
		Others:    others.Items,
		Listed:    w.listed.Kinds(),
		ListError: w.listed.Err(),
		Window:    w.window,
	}
	causes, warnings := w.judgeAll(ctx, spread, old, env)
	if len(causes) > 0 && old != nil {
		before, _ := w.judgeAll(ctx, old, old, env)
		causes = framework.NewCauses(causes, before)
	}

	if len(causes) > 0 {
		response := framework.Invalid(&request, causes).WithWarnings(warnings...)
		if response.Result.Code == http.StatusUnprocessableEntity {
			response.Result.Code, response.Result.Reason =
				http.StatusBadRequest, metav1.StatusReasonBadRequest
		}
		return response
	}

	response := admission.Allowed("").WithWarnings(warnings...)
	if !w.namespaces.Exist(ctx, request.Namespace) {
		return response.WithWarnings(
			"namespace " + request.Namespace +
				" is not known yet: pods that are created in the next seconds may be missed",
		)
	}

	return framework.Announced(ctx, w.announcer, &request, Asks(spread), response)
}

// judgeAll validates a WorkloadSpread, and has the API server validate node selectors, tolerations, and the
// target's template with the patches applied.
func (w *workloadSpreadWebhook) judgeAll(
	ctx context.Context, spread, old *appsv1beta1.WorkloadSpread, env workloadspread.Environment,
) (causes []metav1.StatusCause, warnings []string) {
	causes = framework.Causes(workloadspread.Validate(spread, old, env))
	wrong := map[string]bool{}
	for _, cause := range causes {
		wrong[cause.Field] = true
	}
	if wrong["spec.subsets"] { // there are none, or too many to validate them one by one
		return causes, nil
	}
	if template, translate := workloadspread.Selectors(spread); template != nil {
		found, err := framework.ValidateDocument(ctx, w.judge, spread.Namespace, template)
		if err != nil {
			warnings = append(warnings, "node selectors and tolerations could not be validated: "+err.Error())
		}
		for _, cause := range found {
			cause.Field = translate(cause.Field)
			causes = append(causes, cause)
		}
	}
	workload, err := w.target(ctx, spread)
	if err != nil {
		return causes, append(warnings, "patches could not be validated: "+err.Error())
	}
	if workload == nil {
		return causes, warnings
	}
	var patches []framework.SubsetPatch
	for i := range spread.Spec.Subsets {
		if at := fmt.Sprintf("spec.subsets[%d].patch", i); !wrong[at] {
			patches = append(patches, framework.SubsetPatch{At: at, Raw: spread.Spec.Subsets[i].Patch.Raw})
		}
	}
	found, warned := framework.ValidatePatches(ctx, w.judge, spread.Namespace, workload, patches)
	return append(causes, found...), append(warnings, warned...)
}

// target returns the workload, or nil if its kind is not supported or it does not exist.
func (w *workloadSpreadWebhook) target(
	ctx context.Context, spread *appsv1beta1.WorkloadSpread,
) (framework.Document, error) {
	ref := workloadspread.TargetOf(spread)
	patched := false
	for i := range spread.Spec.Subsets {
		patched = patched || len(spread.Spec.Subsets[i].Patch.Raw) > 0
	}

	if !patched || !workloadspread.BuiltIn(ref.GroupKind) {
		return nil, nil
	}

	mapping, err := w.mapper.RESTMapping(ref.GroupKind)
	if meta.IsNoMatchError(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("looking for kind %s: %w", ref.GroupKind, err)
	}

	workload := &unstructured.Unstructured{}
	workload.SetGroupVersionKind(mapping.GroupVersionKind)
	err = w.live.Get(ctx, types.NamespacedName{Namespace: spread.Namespace, Name: ref.Name}, workload)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s %s: %w", ref.Kind, ref.Name, err)
	}

	return workload.Object, nil
}

// RenamedInWorkloadSpreads returns the path in one version of a WorkloadSpread for a path in the other: node
// selectors have other names (WS-180). Unknown fields with the other name swap places with them.
func RenamedInWorkloadSpreads(path []string) []string {
	if len(path) < 4 || path[0] != "spec" || path[1] != "subsets" {
		return path
	}

	for _, names := range [][2]string{
		{"requiredNodeSelectorTerm", "requiredNodeSelector"},
		{"preferredNodeSelectorTerms", "preferredNodeSelector"},
	} {
		if i := slices.Index(names[:], path[3]); i >= 0 {
			return slices.Concat(path[:3], []string{names[1-i]}, path[4:])
		}
	}
	return path
}
