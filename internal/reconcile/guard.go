package reconcile

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/afloat-project/afloat/internal/engine/disruption"
)

// Guard is aware of the budgets that limit how many pods all controllers and users together take out of
// service (PUB-100, PUB-101). A controller plans with its Limits, and asks it before it touches a pod.
type Guard interface {
	// Limits returns what the pod budgets allow now, for one plan; nil if the pods have no budget.
	Limits(ctx context.Context, pods []*corev1.Pod) (disruption.Limits, error)
	// Ask books that the pod is taken out of service. It returns ErrStalePlan if the pod's budget does not
	// allow that; the next plan then gives the reason.
	Ask(ctx context.Context, pod *corev1.Pod, by disruption.Operation) error
	// Tell registers a function that is called with the namespace of each budget that may allow more than
	// before.
	Tell(do func(namespace string))
}

// Limits returns what the pod budgets allow now; nil without a Guard.
func (a *API) Limits(ctx context.Context, pods []*corev1.Pod) (disruption.Limits, error) {
	if a.Guard == nil {
		return nil, nil
	}
	return a.Guard.Limits(ctx, pods)
}

// Ask books that the operation takes the pod out of service; an empty operation takes nothing out.
func (a *API) Ask(ctx context.Context, pod *corev1.Pod, by disruption.Operation) error {
	if a.Guard == nil || by == "" {
		return nil
	}
	return a.Guard.Ask(ctx, pod, by)
}
