package podplan

import (
	"fmt"
	"time"

	"github.com/afloat-project/afloat/internal/engine/readiness"
	"github.com/afloat-project/afloat/internal/engine/waiting"
	"github.com/afloat-project/afloat/internal/engine/wording"
)

// waits describes what holds up the rollout or the scaling, with the pods that are waited for. It returns nil
// if nothing does, or only what the user asked for.
func (p *Planner) waits() *waiting.Wait {
	wait := &waiting.Wait{}
	switch {
	case p.Workload.Deleted:
		return nil
	case p.out.ScaleError != "":
		return &waiting.Wait{Reason: "FailedScale", Message: p.out.ScaleError}
	case p.out.UpdateError != "":
		return &waiting.Wait{Reason: "FailedUpdate", Message: p.out.UpdateError}
	case p.out.ClaimsAwaited != "":
		return &waiting.Wait{Reason: "WaitingForClaims", Message: p.out.ClaimsAwaited}
	case p.out.ScaleLimited != "":
		wait.Reason, wait.Message = "ScaleUpLimited", p.out.ScaleLimited
	}

	down, askedFor := 0, 0
	other := waiting.NotReady
	name := func(info *Pod, why string) {
		down++
		wait.Stuck = wait.Stuck || readiness.Stuck(info.Pod)
		wait.Unpulled = wait.Unpulled || readiness.Unpulled(info.Pod)
		wait.Name(info.Pod.Name, why)
	}

	var staying []*Pod

	for _, info := range p.Members {
		v := p.verdicts[info.Pod]
		switch v.Reason {
		case ReasonPaused, ReasonOnDelete, ReasonGracePeriod, ReasonMinReadySeconds:
			if !info.Available {
				askedFor++
			}
			continue
		// What these pods wait for is among the other pods.
		case ReasonMaxUnavailable, ReasonUpdateUnhealthy, ReasonOrdered, ReasonBudget:
			// A pod that a budget holds may use up the workload's own budget.
			if byAll := v.Reason == ReasonBudget && p.out.ScaleLimited == "" &&
				wait.Reason != string(ReasonBudget); wait.Reason == "" || byAll {
				wait.Reason, wait.Message = string(v.Reason), v.Message
			}
			if !info.Available {
				name(info, NotReadyWords(info.Pod))
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
		switch {
		case v.Action == Wait:
			name(info, v.Message)
		case v.Action == Keep && !info.Available:
			staying = append(staying, info)
		}
	}

	switch wait.Reason {
	case string(ReasonMaxUnavailable), string(ReasonUpdateUnhealthy), string(ReasonOrdered):
		// These are for example pods below the partition. They need no action, and use up the budget.
		for _, info := range staying {
			name(info, NotReadyWords(info.Pod))
		}
	}

	switch {
	case down > 0 && wait.Reason == "":
		wait.Reason, wait.Message = other,
			fmt.Sprintf("%d of %s waited for", down, wording.Count(len(p.Members), "pod"))
	case down == 0 && (wait.Reason == "" || askedFor > 0):
		return nil
	}

	return wait
}

// Lingering describes pods that still exist after their grace period, for example on a dead node: no pods are
// created in their place.
func (p *Planner) Lingering() *waiting.Wait {
	n, wait := 0, &waiting.Wait{Reason: "PodsTerminating"}
	for _, pod := range p.in.Pods {
		if pod.DeletionTimestamp != nil && !p.in.Now.Before(pod.DeletionTimestamp.Time) {
			n++
			wait.Name(pod.Name, "it is being deleted, and its grace period is over since "+
				pod.DeletionTimestamp.UTC().Format(time.RFC3339))
		}
	}

	if n == 0 || p.Workload.Deleted {
		return nil
	}

	wait.Message = wording.Count(n, "pod") + " waited for to be gone"
	return wait
}
