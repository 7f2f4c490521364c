package cloneset

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/podplan"
	"github.com/afloat-project/afloat/internal/engine/rollout"
	"github.com/afloat-project/afloat/internal/engine/wording"
)

// updatePods chooses the next pods to update, in order and within the budget. unusable is why the user's
// numbers cannot be used, or nil if they can. It returns what is left of the budget.
func (p *planner) updatePods(unusable error) *podplan.Budget {
	p.sayPartition()
	count := rollout.ToMove(p.census(false), p.out.Limits)
	target, toNew := p.core.Update, true
	if count < 0 {
		target, toNew, count = p.core.Current, false, -count
	}

	budget, waiting := p.core.NewBudget(toNew), 0
	candidates := p.candidates(toNew)
	if len(candidates) == 0 {
		return budget
	}
	if reason, why := p.standstill(unusable); reason != "" {
		p.core.Say("update waits: %s", why)
		for _, info := range candidates {
			// Without Stay, a pod that prepares its update would wait forever.
			info.Stay = reason == podplan.ReasonOnDelete
			p.core.Decide(info.Pod, podplan.Wait, reason, "%s", why)
		}
		return budget
	}

	count = max(count-p.replacements(toNew), 0)
	p.core.Say("%s to move to %s", wording.Count(count, "pod"), target.Name)
	for _, info := range candidates {
		// Refused pods come last. Pods before them that only wait do not use up their moves.
		if p.refused(info) {
			count, waiting = count+waiting, 0
		}
		if own := p.core.Mends(info); count == 0 && own != nil {
			// The pod stays at its revision, and loses what another revision left in it.
			p.core.MoveTo(info, own, false, budget)
			continue
		}
		if count == 0 {
			info.Stay = true
			p.core.Decide(info.Pod, podplan.Keep, podplan.ReasonPartition, "%s", p.partitionWords())
			continue
		}
		if p.core.MoveTo(info, target, toNew, budget) {
			count--
			if v := p.core.Verdict(info.Pod); v.Reason == podplan.ReasonMaxUnavailable ||
				v.Reason == podplan.ReasonUpdateUnhealthy {
				waiting++
			}
		}
	}
	return budget
}

// above returns how many pods there are beyond the replicas.
func (p *planner) above() int {
	n := -p.out.Limits.Replicas
	for _, info := range p.core.Members {
		count(&n, !info.Preparing)
	}
	return max(n, 0)
}

// replacements returns how many of the pods to be moved wait to be deleted and will be replaced. Each of them
// uses up one move, unless a pod above the replicas already stands in for it. That pod is moved instead,
// because otherwise the two would wait for each other if it never becomes ready. Nor does one use up a move whose
// deletion was refused: a policy may protect it for long, and what replaces it is of the revision that is missing then.
func (p *planner) replacements(toNew bool) int {
	waiting := 0
	for _, info := range p.core.Members {
		count(&waiting, info.Specified && info.New != toNew && !p.refused(info))
	}
	return max(waiting-p.above(), 0)
}

// sayPartition explains to users who raise the partition and expect pods to go back that this needs the
// feature gate.
func (p *planner) sayPartition() {
	updated := 0
	for _, info := range p.core.Members {
		if info.New {
			updated++
		}
	}

	if more := updated - (p.out.Limits.Replicas - p.out.Limits.Partition); more > 0 &&
		p.out.Limits.Partition > 0 && !p.in.Features.PartitionRollback {
		p.core.Say(
			"partition %d leaves %s to be updated, and %d more %s; %s so, because gate CloneSetPartitionRollback is off",
			p.out.Limits.Partition, wording.Count(p.out.Limits.Replicas-p.out.Limits.Partition, "pod"), more,
			wording.Form(more, "is", "are"), wording.Form(more, "it stays", "they stay"))
	}
}

// standstill returns why no pod may be updated at all, or nothing if pods may be updated.
func (p *planner) standstill(unusable error) (podplan.Reason, string) {
	switch {
	case unusable != nil:
		return podplan.ReasonBadSpec, unusable.Error()
	case p.onDelete():
		return podplan.ReasonOnDelete,
			"updateStrategy.type is OnDelete: a pod gets the new template when somebody deletes it"
	case p.core.Workload.Paused:
		return podplan.ReasonPaused, "the update is paused; set paused to false in updateStrategy to go on"
	}
	return "", ""
}

// candidates returns the pods that are not at the target revision, in update order. Scaling has already
// decided about the pods that are specified for deletion.
func (p *planner) candidates(toNew bool) []*podplan.Pod {
	var candidates []*podplan.Pod
	for _, info := range p.core.Members {
		if info.New != toNew && !info.Preparing && !info.Progress.InGrace && p.core.Verdict(info.Pod) == nil {
			candidates = append(candidates, info)
		}
	}
	return p.inUpdateOrder(candidates)
}

// inUpdateOrder returns the pods in the order in which they are to be updated.
func (p *planner) inUpdateOrder(infos []*podplan.Pod) []*podplan.Pod {
	var priority *pub.UpdatePriorityStrategy
	var scatter []pub.UpdateScatterTerm
	var all []rollout.Candidate
	if rolling := rollingOf(p.set); rolling != nil {
		if priority, scatter = rolling.PriorityStrategy, rolling.ScatterStrategy; len(scatter) > 0 {
			all = candidatesOf(p.core.Members)
		}
	}
	order := rollout.UpdateOrder(candidatesOf(infos), all, priority, scatter)
	// A pod above the replicas that is not available always goes first, whatever order the user wants.
	// Updating it costs nothing, and the pods in service wait for it.
	above := p.above()
	var first, sorted []*podplan.Pod
	for _, i := range order {
		if !infos[i].Available && len(first) < above {
			first = append(first, infos[i])
		} else {
			sorted = append(sorted, infos[i])
		}
	}

	sorted = append(first, sorted...)
	slices.SortStableFunc(sorted, func(a, b *podplan.Pod) int { return p.byRefusal(a.Pod.UID, b.Pod.UID) })
	return sorted
}

// byRefusal compares objects so that those which the API server refused to change come last, the most
// recently refused at the very end. One object that a policy protects must not block the others forever.
func (p *planner) byRefusal(a, b types.UID) int { return p.in.Refused[a].Compare(p.in.Refused[b]) }

func candidatesOf(infos []*podplan.Pod) []rollout.Candidate {
	candidates := make([]rollout.Candidate, len(infos))
	for i, info := range infos {
		candidates[i] = info.Candidate
	}
	return candidates
}

func (p *planner) partitionWords() string {
	if p.out.Limits.Partition > 0 {
		return fmt.Sprintf("partition keeps %s at %s revision", wording.Count(p.out.Limits.Partition, "pod"),
			wording.Form(p.out.Limits.Partition, "its", "their"))
	}
	return "it need not be updated: enough others are updated, or are being replaced by updated ones"
}
