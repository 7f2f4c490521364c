package podapply

import (
	"errors"
	"time"

	"github.com/afloat-project/afloat/internal/engine/podplan"
	"github.com/afloat-project/afloat/internal/engine/waiting"
	"github.com/afloat-project/afloat/internal/reconcile"
)

// Outcome is the outcome of a pass over a workload.
type Outcome struct {
	// Planning is how long it took to make the plan.
	Planning time.Duration
	// After is when to requeue although no event arrives; 0 means not at all.
	After time.Duration
	// ReportAfter is when to requeue only to report what has not changed; 0 means not at all (IPU-326,
	// OPS-099).
	ReportAfter time.Duration
	// Unfinished is true if there is more to be written at once.
	Unfinished bool
	// Done are the verdicts that were carried out, and Created is how many pods were created.
	Done    []*podplan.Verdict
	Created int
}

// Loop returns the outcome, together with the plan that was carried out, in the form that the controller's
// loop expects.
func (o Outcome) Loop(plan *podplan.Plan) reconcile.Outcome {
	reconcile.MinRequeue(&o.After, o.ReportAfter)
	return reconcile.Outcome{
		After: o.After, Planning: o.Planning, Unfinished: o.Unfinished,
		Headline: plan.Headline(), Record: plan.Record,
		HeldByBudget: plan.HeldByBudget, Progress: o.Created > 0 || len(o.Done) > 0,
	}
}

// Finish ends a pass: it remembers the outcome of the plan, reports what the workload waits for, and calls
// status last. status writes the status if it is due, and otherwise returns after which time it will be due.
// Finish returns an error if something failed that a retry may repair.
func (m *Memory) Finish(
	a *Execution, result *Result, planning time.Duration, progress waiting.Progress,
	status func() (time.Duration, error),
) (Outcome, error) {
	o := Outcome{
		Planning: planning, After: a.plan.After, Done: result.Done, Created: result.Created,
		Unfinished: result.Unfinished || a.plan.Probing && result.Created > 0,
	}

	if o.Unfinished && (len(result.Done) > 0 || result.UpdateError == nil && result.ScaleError == nil) {
		o.After = time.Millisecond // otherwise the back-off of the queue decides
	}

	failure := errors.Join(result.ScaleError, result.UpdateError)
	reconcile.MinRequeue(&o.After, a.Own.AgainAfter(a.owner.GetUID(), failure))

	after, tell := m.conclude(a, result, progress)
	reconcile.MinRequeue(&o.After, after)
	o.ReportAfter = tell

	after, err := status()
	reconcile.MinRequeue(&o.After, after)
	return o, errors.Join(failure, err)
}
