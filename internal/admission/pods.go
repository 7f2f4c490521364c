package admission

import (
	"context"
	"errors"
	"net/http"

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

// otherPods are the conditions of mutatePodAllPath: pods that lack the gate KruisePodReady where all get it, else none (CRR-087).
func otherPods(gateAll bool) []admissionregistrationv1.MatchCondition {
	if gateAll {
		return []admissionregistrationv1.MatchCondition{{Name: "without-the-gate",
			Expression: "!has(object.spec.readinessGates) || !object.spec.readinessGates.exists(g, g.conditionType == 'KruisePodReady')"}}
	}
	return []admissionregistrationv1.MatchCondition{{Name: "none-asked-for", Expression: "false"}}
}

// mutatePod changes pods that are created.
func mutatePod(steps ...pod.Step) admission.HandlerFunc {
	return func(_ context.Context, request admission.Request) admission.Response {
		if request.Operation != admissionv1.Create || request.SubResource != "" {
			return admission.Allowed("")
		}
		operations, err := pod.Mutate(request.Object.Raw, steps...)
		if errs := fieldErrors(err); len(errs) > 0 {
			return invalid(&request, causesOf(errs))
		}
		if err != nil {
			return refused(http.StatusBadRequest, err.Error())
		}
		return admission.Patched("", operations...)
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
