package controller

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/framework"
	"github.com/afloat-project/afloat/internal/kinds/persistentpodstate"
	workloadspreadcontroller "github.com/afloat-project/afloat/internal/kinds/workloadspread/controller"
)

// podStateWebhook admits PersistentPodStates of both versions, each in its v1beta1 form.
type podStateWebhook struct {
	cached client.Reader
	// listed holds the kinds of workloads that an administrator lists for PersistentPodStates.
	listed *workloadspreadcontroller.Listed
	// announcer makes the API server send the first pods of a PersistentPodState; it is nil if pods are not
	// sent at all.
	announcer framework.Announcer
	// namespaces checks that the namespace of a PersistentPodState exists before it is announced.
	namespaces *framework.Namespaces
}

// PersistentPodStates returns the webhook of the kind.
func PersistentPodStates(e *framework.Environment) framework.Webhooks {
	return framework.Webhooks{
		Announces: true,
		Validate: (&podStateWebhook{
			cached:     e.Cache,
			listed:     Listing.In(e),
			announcer:  e.Announcer,
			namespaces: e.Namespaces,
		}).validate,
	}
}

// +kubebuilder:rbac:groups=apps.kruise.io,resources=persistentpodstates,verbs=get;list;watch

func (w *podStateWebhook) validate(ctx context.Context, request admission.Request) admission.Response {
	if framework.BeingDeleted(&request) {
		return admission.Allowed("")
	}

	state, old, err := framework.Compare(&request, (*appsv1alpha1.PersistentPodState).Renamed)
	if err != nil {
		return badRequest(framework.Undecodable(&request, err))
	}
	if request.Operation == admissionv1.Update && framework.SameSpec(&request) {
		return admission.Allowed("") // metadata only, such as the last finalizer
	}

	var others appsv1beta1.PersistentPodStateList
	if err := w.cached.List(ctx, &others, client.InNamespace(request.Namespace),
		client.UnsafeDisableDeepCopy); err != nil {
		return framework.Refuse(http.StatusInternalServerError, fmt.Sprintf("listing PersistentPodStates: %v", err))
	}

	env := persistentpodstate.Environment{Listed: w.listed.Kinds(), ListError: w.listed.Err()}
	for i := range others.Items {
		env.Others = append(env.Others, &others.Items[i])
	}

	causes := framework.Causes(persistentpodstate.Validate(state, old, env))
	if len(causes) > 0 && old != nil {
		causes = framework.NewCauses(causes, framework.Causes(persistentpodstate.Validate(old, nil, env)))
	}
	if len(causes) > 0 {
		return badRequest(framework.Invalid(&request, causes))
	}
	if old != nil { // its target cannot change
		return admission.Allowed("")
	}

	response := admission.Allowed("")
	if !w.namespaces.Exist(ctx, request.Namespace) {
		return response.WithWarnings(
			"namespace " + request.Namespace +
				" is not known yet: pods that are created in the next seconds may be missed",
		)
	}

	return framework.Announced(ctx, w.announcer, &request, Asks(state), response)
}

// badRequest reports invalid objects with code 400, as other releases do.
func badRequest(response admission.Response) admission.Response {
	if response.Result.Code == http.StatusUnprocessableEntity {
		response.Result.Code, response.Result.Reason = http.StatusBadRequest, metav1.StatusReasonBadRequest
	}
	return response
}

// RenamedInPersistentPodStates returns the path in one version of a PersistentPodState for a path in the
// other: lists of keys have other names (PPS-090). Unknown fields with the other name swap places with them.
func RenamedInPersistentPodStates(path []string) []string {
	var at int
	switch {
	case len(path) > 2 && path[0] == "spec" && path[1] == "requiredPersistentTopology":
		at = 2
	case len(path) > 4 && path[0] == "spec" && path[1] == "preferredPersistentTopology" &&
		path[3] == "preference":
		at = 4
	default:
		return path
	}

	names := []string{"nodeTopologyKeys", "keys"}
	if i := slices.Index(names, path[at]); i >= 0 {
		return slices.Concat(path[:at], []string{names[1-i]}, path[at+1:])
	}

	return path
}
