package admission

import (
	"context"
	"errors"
	"net/http"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/afloat-project/afloat/internal/admission/pod"
)

// Paths of the webhooks of pods (OPS-060). Two entries lead to the same handler: one sends the pods that are always our business, the
// other those that are by what is installed, see otherPods. A pod that the first has changed the second does not send again.
const (
	mutatePodPath    = "/mutate-pod"
	mutatePodAllPath = "/mutate-pod-all"
)

// otherPods are the conditions of mutatePodAllPath: pods that lack the gate KruisePodReady where all get it (CRR-087), and pods that
// SidecarSets ask for by the expression (SS-080); else none. A pod that comes twice is the same after the second time (SS-107).
func otherPods(gateAll bool, sidecarSets string) []admissionregistrationv1.MatchCondition {
	const without = "!has(object.spec.readinessGates) || !object.spec.readinessGates.exists(g, g.conditionType == 'KruisePodReady')"
	switch {
	case gateAll && sidecarSets == "false":
		return []admissionregistrationv1.MatchCondition{{Name: "without-the-gate", Expression: without}}
	case gateAll:
		return []admissionregistrationv1.MatchCondition{{Name: "without-the-gate-or-of-sidecarsets", Expression: without + " || " + sidecarSets}}
	case sidecarSets == "false":
		return []admissionregistrationv1.MatchCondition{{Name: "none-asked-for", Expression: "false"}}
	}
	return []admissionregistrationv1.MatchCondition{{Name: "of-sidecarsets", Expression: sidecarSets}}
}

// podTime is how long a pod may wait for what is asked of others: who creates it waits too.
const podTime = 5 * time.Second

// mutatePod changes pods that are created, and nothing else (SS-086).
func mutatePod(chain *pod.Chain) admission.HandlerFunc {
	return func(ctx context.Context, request admission.Request) admission.Response {
		if request.Operation != admissionv1.Create || request.SubResource != "" {
			return admission.Allowed("")
		}
		ctx, cancel := context.WithTimeout(ctx, podTime)
		defer cancel()
		operations, warnings, err := chain.Mutate(ctx, pod.Request{Raw: request.Object.Raw, Namespace: request.Namespace,
			DryRun: request.DryRun != nil && *request.DryRun})
		if errs := fieldErrors(err); len(errs) > 0 {
			return invalid(&request, causesOf(errs)).WithWarnings(warnings...)
		}
		var internal *pod.InternalError
		switch {
		case errors.As(err, &internal):
			return refused(http.StatusInternalServerError, err.Error()).WithWarnings(warnings...)
		case err != nil:
			return refused(http.StatusBadRequest, err.Error()).WithWarnings(warnings...)
		}
		return admission.Patched("", operations...).WithWarnings(warnings...)
	}
}

// fieldErrors are the errors that name fields, if the error is a list of such.
func fieldErrors(err error) field.ErrorList {
	var list utilerrors.Aggregate
	if !errors.As(err, &list) {
		return nil
	}
	var errs field.ErrorList
	for _, one := range list.Errors() {
		var named *field.Error
		if errors.As(one, &named) {
			errs = append(errs, named)
		}
	}
	return errs
}
