package cloneset

import (
	"time"

	"github.com/afloat-project/afloat/internal/engine/podplan"

	corev1 "k8s.io/api/core/v1"

	"github.com/afloat-project/afloat/internal/engine/waiting"
)

// stillness tells the owner of the set what holds it, if nothing has moved for a while (OPS-099). It returns when a pass is due for that.
func (p *Pass) stillness(plan *Plan, result Result) time.Duration {
	status := &plan.Status
	progress := waiting.Progress{
		Generation: plan.Set.Generation,
		Arrived:    int(status.AvailableReplicas + status.UpdatedAvailableReplicas),
		Complete:   int(status.AvailableReplicas) >= plan.Limits.Replicas && status.UpdatedAvailableReplicas >= status.ExpectedUpdatedReplicas,
		Moved:      result.Created > 0,
		Wait:       plan.Waiting,
	}
	for _, v := range result.Done {
		switch v.Action {
		case podplan.UpdateInPlace, podplan.Recreate, podplan.Delete:
			progress.Moved = true
		}
	}
	if progress.Wait == nil { // an attempt that failed, between two plans that wait for the next one
		if text := firstOf(result.ScaleError, ""); text != "" {
			progress.Wait = &waiting.Wait{Reason: "FailedScale", Message: text}
		} else if text := firstOf(result.UpdateError, ""); text != "" {
			progress.Wait = &waiting.Wait{Reason: "FailedUpdate", Message: text}
		}
	}
	tell, after := p.memory.Of(plan.Set.UID).waits.Passed(progress, p.Kube.Now())
	if tell != "" {
		p.Applier.Events.Event(plan.Set, corev1.EventTypeWarning, waiting.EventReason, tell)
	}
	return after
}
