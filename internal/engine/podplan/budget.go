package podplan

import (
	"fmt"
	"math"
	"strings"

	"github.com/afloat-project/afloat/internal/engine/plural"
	"github.com/afloat-project/afloat/internal/engine/rollout"
)

// Budget bounds how many pods may be moved at a time (CS-121, CS-124).
type Budget struct {
	// spare is how many available pods may still be taken; charged is how many of them count as taken
	// already.
	spare, charged int
	// moving is how many pods are of the target revision and unavailable, or on their way there; total is how
	// many may be. leaving is how many of them wait to be deleted.
	moving, leaving, total int
	// exhausted and spent are the words of refusals, which most pods of a large set share.
	exhausted, spent string
}

// NewBudget counts what the budget is spent on already, for moves to the update revision, or away from it.
func (p *Planner) NewBudget(toNew bool) *Budget {
	b := &Budget{spare: p.Spare(), total: p.out.Limits.MaxUnavailable + len(p.Members) - p.out.Limits.Replicas}
	for _, info := range p.Members {
		switch {
		case info.Specified && info.Available:
			b.spare-- // its place is reserved; it moves only when it may go, and must not hold up one that is down
		case info.Specified || info.Preparing:
			b.moving++
			b.leaving++
		case info.New == toNew && !info.Available:
			b.moving++
		}
	}
	return b
}

// NewSpare returns a budget of so many available pods. Those that are not available cost nothing, however
// many they are (ASTS-158). charged of those that are count already.
func NewSpare(spare, charged int) *Budget {
	return &Budget{spare: spare, charged: charged, total: math.MaxInt}
}

// With lets something be decided about a pod. charged: the pod counts already although it serves, so that it
// may be taken in its own place, as long as those that do not serve leave room for it.
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

// Available tells whether another available pod may be taken.
func (b *Budget) Available() bool { return b.spare > 0 }

// Take counts a pod that somebody else decided to take out of service.
func (b *Budget) Take(info *Pod) { b.take(info) }

// Spend counts so many pods that are out of service for another reason.
func (b *Budget) Spend(pods int) { b.spare -= pods }

// refuse says why the pod cannot be moved now, nothing if it can.
func (b *Budget) refuse(info *Pod, limits rollout.Limits) (Reason, string) {
	total := b.total
	if !info.Available {
		total = max(total, 1) // missing pods must not hold up one that is down anyway (CS-125)
	}
	switch {
	case b.moving >= total && total != b.total:
		return ReasonUpdateUnhealthy, b.waitingFor(total, limits) // with a number of its own
	case b.moving >= total:
		if b.exhausted == "" {
			b.exhausted = b.waitingFor(max(total, 0), limits)
		}
		return ReasonUpdateUnhealthy, b.exhausted
	case info.Available && b.spare <= 0:
		if b.spent == "" {
			keep := limits.Replicas - limits.MaxUnavailable
			b.spent = fmt.Sprintf("%d of %s must stay available (maxUnavailable %d), and only %d %s", keep,
				plural.Of(limits.Replicas, "pod"),
				limits.MaxUnavailable, keep+b.spare, plural.Form(keep+b.spare, "is", "are"))
		}
		return ReasonMaxUnavailable, b.spent
	}
	return "", ""
}

// waitingFor says for what pods the others wait, and how many of them there may be.
func (b *Budget) waitingFor(total int, limits rollout.Limits) string {
	var parts []string
	if n := b.moving - b.leaving; n > 0 {
		parts = append(parts, plural.Of(n, "updated pod")+" to become available")
	}
	if b.leaving > 0 {
		parts = append(parts, plural.Of(b.leaving, "pod")+" to be deleted")
	}
	switch missing := limits.MaxUnavailable - b.total; {
	case len(parts) > 0:
	case missing > 0:
		parts = append(parts, plural.Of(missing, "missing pod")+" to be created")
	default:
		parts = append(parts, "a pod above the replicas")
	}
	return fmt.Sprintf("waiting for %s; %s at a time (maxUnavailable %d)", strings.Join(parts, " and "), plural.Of(total, "pod"),
		limits.MaxUnavailable)
}

func (b *Budget) take(info *Pod) {
	b.exhausted, b.spent = "", ""
	b.moving++
	if info.Available {
		b.spare--
	}
}

// Spare is how many available pods may be taken away: those above replicas - maxUnavailable.
func (p *Planner) Spare() int {
	available := 0
	for _, info := range p.Members {
		if info.Available {
			available++
		}
	}
	return available - (p.out.Limits.Replicas - p.out.Limits.MaxUnavailable)
}
