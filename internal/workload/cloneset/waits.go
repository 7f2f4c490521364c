package cloneset

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/afloat-project/afloat/internal/engine/plural"
	"github.com/afloat-project/afloat/internal/engine/waiting"
)

// waits says what holds the rollout or the scaling, with the pods that are waited for; nil if nothing does, or only what the user asked for
// (OPS-099).
func (p *planner) waits() *waiting.Wait {
	wait := &waiting.Wait{}
	switch {
	case p.Set.DeletionTimestamp != nil:
		return nil
	case p.ScaleError != "":
		return &waiting.Wait{Reason: "FailedScale", Message: p.ScaleError}
	case p.UpdateError != "":
		return &waiting.Wait{Reason: "FailedUpdate", Message: p.UpdateError}
	case p.ClaimsAwaited != "":
		return &waiting.Wait{Reason: "WaitingForClaims", Message: p.ClaimsAwaited}
	case p.ScaleLimited != "":
		wait.Reason, wait.Message = "ScaleUpLimited", p.ScaleLimited
	}
	down, askedFor := 0, 0
	other := waiting.NotReady
	for _, info := range p.pods {
		v := p.verdicts[info.Pod]
		switch v.Reason {
		case ReasonPaused, ReasonOnDelete, ReasonGracePeriod, ReasonMinReadySeconds:
			count(&askedFor, !info.Available)
			continue
		case ReasonMaxUnavailable, ReasonUpdateUnhealthy:
			if wait.Reason == "" {
				wait.Reason, wait.Message = string(v.Reason), v.Message
			}
			if !info.Available {
				down++
				wait.Name(info.Pod.Name, notReadyWords(info.Pod))
			}
			continue
		case ReasonScaling:
			continue
		case ReasonNotReady, ReasonUpdating, ReasonUnscheduled:
		default:
			if v.Action == Wait && other == waiting.NotReady {
				other = string(v.Reason)
			}
		}
		if v.Action == Wait {
			down++
			wait.Name(info.Pod.Name, v.Message)
		}
	}
	switch {
	case down > 0 && wait.Reason == "":
		wait.Reason, wait.Message = other, fmt.Sprintf("%d of %s waited for", down, plural.Of(len(p.pods), "pod"))
	case down == 0 && (wait.Reason == "" || askedFor > 0):
		return nil
	}
	return wait
}

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
		case UpdateInPlace, Recreate, Delete:
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
