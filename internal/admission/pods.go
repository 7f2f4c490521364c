package admission

import (
	"context"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/afloat-project/afloat/internal/admission/pod"
)

// Paths of the webhooks of pods (OPS-060). Two entries lead to the same handler: one sends the pods that are always our business, the
// other all pods, and is there with gate KruisePodReadinessGate only.
const (
	mutatePodPath    = "/mutate-pod"
	mutatePodAllPath = "/mutate-pod-all"
)

// mutatePod changes pods that are created.
func mutatePod(steps ...pod.Step) admission.HandlerFunc {
	return func(_ context.Context, request admission.Request) admission.Response {
		if request.Operation != admissionv1.Create || request.SubResource != "" {
			return admission.Allowed("")
		}
		operations, err := pod.Mutate(request.Object.Raw, steps...)
		if err != nil {
			return refused(http.StatusBadRequest, err.Error())
		}
		return admission.Patched("", operations...)
	}
}
