package podplan

import (
	"fmt"
	"math"
	"strings"

	"github.com/afloat-project/afloat/internal/engine/rollout"
	"github.com/afloat-project/afloat/internal/engine/wording"
)

// Budget bounds how many pods may be moved at a time (CS-121, CS-124).
type Budget struct {
	// spare is how many available pods may still be taken out of service. charged is how many of these count
	// as taken already.
	spare, charged int
	// moving is how many pods are of the target revision and unavailable, or are becoming so, and total is
	// how many of these there may be. leaving is how many of them wait to be deleted.
	moving, leaving, total int
	// exhausted and spent are the messages of refusals, which most pods of a large set share.
	exhausted, spent string
	// beyond are pods that are out of service and are not among the replicas of the limits.
	beyond int
}

// NewBudget returns what is left of the budget for moves to the update revision, or away from it.
func (p *Planner) NewBudget(toNew bool) *Budget {
	b := &Budget{
		spare: p.Spare(), total: p.out.Limits.MaxUnavailable + len(p.Members) - p.out.Limits.Replicas,
	}

	for _, info := range p.Members {
		switch {
		case info.Specified && info.Available && p.heldBack(info):
		case info.Specified && info.Available:
			// Its place is reserved. It moves only when it may be deleted, and must not hold up a pod that is
			// down.
			b.spare--
		case info.Specified || info.Preparing:
			b.moving++
			b.leaving++
		case info.New == toNew && !info.Available:
			b.moving++
		}
	}

	return b
}

// heldBack reports whether a PodUnavailableBudget holds the pod, or the API server refused to change it. Such a pod must hold up no
// others meanwhile.
func (p *Planner) heldBack(info *Pod) bool {
	v := p.verdicts[info.Pod]
	return v != nil && v.Reason == ReasonBudget || p.refused(info)
}

// refused reports whether a request about the pod failed a while ago.
func (p *Planner) refused(info *Pod) bool {
	return len(p.in.Refused) > 0 && !p.in.Refused[info.Pod.UID].IsZero()
}

// NewSpare returns a budget for the given number of available pods, of which charged ones count as taken
// already. Pods that are not available cost nothing, however many there are (ASTS-158).
func NewSpare(spare, charged int) *Budget {
	return &Budget{spare: spare, charged: charged, total: math.MaxInt}
}

// With calls decide, which decides about a pod. If charged is true, the pod counts already although it
// serves, so that it may be taken in its own place, as long as the pods that do not serve leave room for it.
func (b *Budget) With(charged bool, decide func()) {
	if !charged {
		decide()
		return
	}
	spare, room := b.spare, b.spare+b.charged
	b.spare = room
	if decide(); b.spare < room {
		b.charged--
	}
	b.spare = spare
}

// Available reports whether another available pod may be taken.
func (b *Budget) Available() bool { return b.spare > 0 }

// Take counts a pod that a caller decided to take out of service.
func (b *Budget) Take(info *Pod) { b.take(info) }

// Spend counts pods that are out of service for another reason.
func (b *Budget) Spend(pods int) { b.spare -= pods }

// Beyond counts pods that are out of service, and are not among the replicas of the limits.
func (b *Budget) Beyond(pods int) {
	b.spare -= pods
	b.beyond += pods
}

// refuse returns why the pod cannot be moved now, empty if it can.
func (b *Budget) refuse(info *Pod, limits rollout.Limits) (Reason, string) {
	total := b.total
	if !info.Available {
		total = max(total, 1) // missing pods must not hold up a pod that is down anyway
	}

	switch {
	case b.moving >= total && total != b.total:
		return ReasonUpdateUnhealthy, b.waitingFor(total, limits) // not shared: its number differs
	case b.moving >= total:
		if b.exhausted == "" {
			b.exhausted = b.waitingFor(max(total, 0), limits)
		}
		return ReasonUpdateUnhealthy, b.exhausted
	case info.Available && b.spare <= 0:
		if b.spent == "" {
			all := limits.Replicas + b.beyond
			keep := all - limits.MaxUnavailable
			b.spent = fmt.Sprintf("%d of %s must stay available (maxUnavailable %d), and only %d %s",
				keep, wording.Count(all, "pod"), limits.MaxUnavailable,
				keep+b.spare, wording.Form(keep+b.spare, "is", "are"))
		}
		return ReasonMaxUnavailable, b.spent
	}

	return "", ""
}

// waitingFor describes which pods the others wait for, and how many of them there may be.
func (b *Budget) waitingFor(total int, limits rollout.Limits) string {
	var parts []string
	if n := b.moving - b.leaving; n > 0 {
		parts = append(parts, wording.Count(n, "updated pod")+" to become available")
	}
	if b.leaving > 0 {
		parts = append(parts, wording.Count(b.leaving, "pod")+" to be deleted")
	}

	switch missing := limits.MaxUnavailable - b.total; {
	case len(parts) > 0:
	case missing > 0:
		parts = append(parts, wording.Count(missing, "missing pod")+" to be created")
	default:
		parts = append(parts, "a pod above the replicas")
	}

	return fmt.Sprintf("waiting for %s; %s at a time (maxUnavailable %d)",
		strings.Join(parts, " and "), wording.Count(total, "pod"), limits.MaxUnavailable)
}

func (b *Budget) take(info *Pod) {
	b.exhausted, b.spent = "", ""
	b.moving++
	if info.Available {
		b.spare--
	}
}

// Spare returns how many available pods may be taken away: those above replicas - maxUnavailable.
func (p *Planner) Spare() int {
	available := 0
	for _, info := range p.Members {
		if info.Available {
			available++
		}
	}
	return available - (p.out.Limits.Replicas - p.out.Limits.MaxUnavailable)
}
