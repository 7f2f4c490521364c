package podplan

import (
	corev1 "k8s.io/api/core/v1"

	policyv1beta1 "github.com/afloat-project/afloat/api/policy/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/lifecycle"
	"github.com/afloat-project/afloat/internal/engine/podpatch"
)

// Prepare lets the preDelete hook run first for a pod that is to be deleted: the pod enters the state
// PreparingDelete, or waits in it. It returns nil if no hook holds the pod (CS-136, ASTS-226, ADS-150).
func (p *Planner) Prepare(pod *corev1.Pod, why string) *Verdict {
	switch {
	case !lifecycle.Hooked(p.Hooks().PreDelete, pod):
		return nil
	case lifecycle.State(pod) == pub.LifecycleStatePreparingDelete:
		return p.Decide(pod, Wait, ReasonLifecycleHook, "its preDelete hook holds it: %s", why)
	}

	patch := &podpatch.Patch{}
	lifecycle.Enter(patch, pub.LifecycleStatePreparingDelete, p.in.Now)
	p.Share(patch, pod, pub.LifecycleStatePreparingDelete)
	v := p.Decide(pod, Patch, ReasonLifecycleHook, "%s; its preDelete hook comes first", why)
	v.Patch, v.Prepares = patch, policyv1beta1.Delete
	return v
}
