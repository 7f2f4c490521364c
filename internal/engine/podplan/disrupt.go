package podplan

import (
	"time"

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
		by := v.Disruption()
		if by == "" || p.verdicts[v.Pod] != v {
			continue
		}
		refusal := p.in.Disruptions.Take(v.Pod, by)
		if refusal == "" {
			goes = true
			continue
		}
		held = true
		p.Decide(v.Pod, Wait, ReasonBudget, "%s", refusal).Until = p.in.Now.Add(askAgain)
		p.out.HeldByBudget = true
	}

	p.decided = p.decided[:0]
	return held && !goes
}
