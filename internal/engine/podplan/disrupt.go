package podplan

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	policyv1beta1 "github.com/afloat-project/afloat/api/policy/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/disruption"
)

// Disruption returns the operation by which the verdict takes its pod out of service or changes what budgets
// protect; empty if it does neither. A pod that is marked for recreation keeps serving until it is deleted.
func (v *Verdict) Disruption() disruption.Operation {
	switch {
	case v.Action == Delete:
		return policyv1beta1.Delete
	case v.Action == Patch:
		return v.Prepares
	case v.Action != UpdateInPlace:
		return ""
	// A change of a container that has completed counts, too, because it changes the spec.
	case len(v.Update.Change.Stops)+len(v.Update.Change.Images) > 0:
		return policyv1beta1.Update
	case len(v.Update.Change.Resources) > 0:
		return policyv1beta1.Resize
	}
	return ""
}

// askAgain is when a pod that a budget holds is planned again, if no change of the budget is reported before.
const askAgain = time.Second

// HeedBudgets makes pods wait that were to be taken out of service but that budgets do not allow to go now,
// in the order in which they were decided about. It reports whether budgets hold pods and let none go.
// Refresh applies the budgets, too, to what is decided later.
func (p *Planner) HeedBudgets() (stuck bool) {
	held, goes := false, false
	for _, v := range p.decided {
		switch {
		case v.Disruption() == "" || p.verdicts[v.Pod] != v:
		case p.HeldByBudget(v.Pod):
			held = true
		default:
			goes = true
		}
	}

	p.decided = p.decided[:0]
	return held && !goes
}

// HeldByBudget asks the budgets at once about what was decided about a pod. It reports whether they hold the pod, which waits
// then: a caller must not count it among those that go, because the others would wait for it (PUB-100).
func (p *Planner) HeldByBudget(pod *corev1.Pod) bool {
	v := p.verdicts[pod]
	switch {
	case p.in.Disruptions == nil || v == nil || p.asked[v]:
		return false
	case v.Reason == ReasonBudget:
		return true
	case v.Disruption() == "":
		return false
	}
	if p.asked == nil {
		p.asked = map[*Verdict]bool{}
	}
	p.asked[v] = true
	return p.budgetHolds(pod, v.Disruption())
}

// budgetHolds asks the budgets about an operation, and makes the pod wait if they do not allow it now.
func (p *Planner) budgetHolds(pod *corev1.Pod, by disruption.Operation) bool {
	if p.in.Disruptions == nil {
		return false
	}
	refusal := p.in.Disruptions.Take(pod, by)
	if refusal == "" {
		return false
	}
	p.Decide(pod, Wait, ReasonBudget, "%s", refusal).Until = p.in.Now.Add(askAgain)
	p.out.HeldByBudget = true
	return true
}
