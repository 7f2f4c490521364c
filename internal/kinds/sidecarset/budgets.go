package sidecarset

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	policyv1beta1 "github.com/afloat-project/afloat/api/policy/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/disruption"
	"github.com/afloat-project/afloat/internal/engine/inplace"
)

// operation is by which operation the pod is upgraded, as budgets name it; empty if only annotations change.
func (p *planner) operation(pod *podInfo) disruption.Operation {
	if images, hot := p.wanted(pod.Pod); len(images)+len(hot) > 0 {
		return policyv1beta1.Update
	}
	if p.resize(pod.Pod).Empty() {
		return ""
	}

	for name, change := range p.quantities(pod.Pod) {
		container, _ := containerOf(pod.Pod, name)
		for _, list := range []corev1.ResourceList{change.Requests, change.Limits} {
			for resource := range list {
				if inplace.Restarts(container, resource) {
					return policyv1beta1.Update
				}
			}
		}
	}

	return policyv1beta1.Resize
}

// askAgain is when a pod is looked at again that a budget holds, if nothing is told of the budget before.
const askAgain = time.Second

// heldByBudget says which budget does not allow the pod to be taken out of service now, empty if it may be;
// then it counts as taken.
func (p *planner) heldByBudget(pod *corev1.Pod, by disruption.Operation) string {
	if p.in.Disruptions == nil || by == "" {
		return ""
	}
	refusal := p.in.Disruptions.Take(pod, by)
	if refusal != "" {
		p.out.HeldByBudget = true
		p.comeBack(askAgain)
	}
	return refusal
}
