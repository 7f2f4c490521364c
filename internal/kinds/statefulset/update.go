package statefulset

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/podplan"
	"github.com/afloat-project/afloat/internal/engine/rollout"
)

// update deletes pods that are specified for deletion, and moves others to the update revision, as far as
// maxUnavailable allows. It also runs while scaling is blocked. A slot that is down leaves no room for others
// then, but an update may bring back a slot that is down itself.
func (p *planner) update() {
	// Slots beyond those that the plan looks at have no pods.
	spare, charged := p.out.Limits.MaxUnavailable-max(p.out.Limits.Replicas-len(p.slots), 0), 0
	for i := range p.slots {
		s := &p.slots[i]
		if p.down(s) {
			spare--
			if s.charged = s.info != nil && s.info.Available; s.charged {
				charged++
			}
		}
	}

	if p.blocked != "" { // the pod that blocks may be condemned, and is then not counted above
		spare, charged = min(spare, 0), 0
	}
	budget := podplan.NewSpare(spare, charged)

	candidates, chosen := p.candidates()
	descending := make([]*slot, len(p.slots))
	for i := range p.slots {
		descending[len(p.slots)-1-i] = &p.slots[i]
	}
	var again []*slot
	for _, s := range p.refusedLast(descending) {
		if p.specifiedAgain(s) {
			again = append(again, s)
			continue
		}
		budget.With(s.charged, func() { p.specified(s, chosen[s.ordinal], budget) })
	}
	// These take only what the updates leave, since a policy may protect them for long.
	retry := func() {
		for _, s := range again {
			budget.With(s.charged, func() { p.specified(s, chosen[s.ordinal], budget) })
		}
	}

	if reason, why := p.standstill(); reason != "" {
		retry()
		for i := range p.slots {
			if s := &p.slots[i]; p.undecided(s) && p.outdated(s) {
				s.info.Stay = reason == podplan.ReasonOnDelete
				p.core.Decide(s.pod, podplan.Wait, reason, "%s", why)
			}
		}
		p.sayGrowth()
		return
	}

	stopped := p.blocked
	if !ordered(p.set) {
		candidates = p.refusedLast(candidates)
	}
	for _, s := range candidates {
		if p.undecided(s) && !slices.Contains(again, s) {
			budget.With(s.charged, func() { stopped = p.move(s, budget, stopped) })
		}
	}
	retry()

	for i := len(p.slots) - 1; i >= 0; i-- {
		if s := &p.slots[i]; p.undecided(s) && !chosen[s.ordinal] && !s.info.New {
			budget.With(s.charged, func() { p.stay(s, budget, stopped) })
		}
	}

	p.sayGrowth()
}

// refusedLast moves slots to the end whose pods the API server refused to change, the most recently refused to the very end. One pod
// that a policy protects must not hold up the others.
func (p *planner) refusedLast(slots []*slot) []*slot {
	refused := func(s *slot) time.Time {
		if s.pod == nil {
			return time.Time{}
		}
		return p.in.Refused[s.pod.UID]
	}
	if len(p.in.Refused) > 0 {
		slices.SortStableFunc(slots, func(a, b *slot) int { return refused(a).Compare(refused(b)) })
	}
	return slots
}

// stay leaves a pod at its revision. As far as the budget allows, it restores in place what another revision
// changed in the pod.
func (p *planner) stay(s *slot, budget *podplan.Budget, stopped string) {
	switch own := p.core.MendsInPlace(s.info); {
	case own == nil:
		s.info.Stay = true
		p.core.Decide(s.pod, podplan.Keep, podplan.ReasonPartition,
			"partition keeps %d pods at their revision", p.out.Limits.Partition)
	case stopped != "" && s.info.Available:
		p.comesAfter(s, stopped)
	default:
		p.core.MendInPlace(s.info, own, budget)
	}
}

// comesAfter makes an available pod wait for the reason given in stopped.
func (p *planner) comesAfter(s *slot, stopped string) {
	reason := podplan.ReasonMaxUnavailable
	if ordered(p.set) {
		reason = podplan.ReasonOrdered
	}
	p.core.Decide(s.pod, podplan.Wait, reason, "it comes after others: %s", stopped)
}

// sayGrowth makes pods wait whose volumes grow, because these count as unavailable until the volumes have
// their size. It also records what keeps volumes from growing.
func (p *planner) sayGrowth() {
	if !p.resizes {
		return
	}

	for i := range p.slots {
		s := &p.slots[i]
		failed := p.claims[s.ordinal].failed
		if p.undecided(s) && p.claimsGrow(s) {
			p.core.Decide(s.pod, podplan.Wait, podplan.ReasonVolumes, "%s",
				cmp.Or(failed, "its claims have not the size yet that they ask for"))
		}
		p.out.GrowthFailed = cmp.Or(p.out.GrowthFailed, failed)
	}

	p.out.UpdateError = cmp.Or(p.out.UpdateError, p.out.GrowthFailed)
}

// undecided reports whether the pod of a slot still needs a decision. A pod in its grace period needs none,
// unless it prepares its deletion, because its update does not go on then.
func (p *planner) undecided(s *slot) bool {
	return s.info != nil && (!s.info.Progress.InGrace || s.info.Preparing) && p.core.Verdict(s.pod) == nil
}

// outdated reports whether a pod lacks something of the current spec, which can be its revision, a volume, or
// the size of its claims.
func (p *planner) outdated(s *slot) bool {
	c := p.claims[s.ordinal]
	return !s.info.New || p.lacksVolume(s) != "" ||
		p.resizes && (len(c.growth) > 0 || c.fixed != "" || !c.pending.IsZero())
}

// free reports whether a pod can get everything that it lacks without going out of service.
func (p *planner) free(s *slot) bool {
	c := p.claims[s.ordinal]
	return !s.info.New && s.info.Mode.Change != nil && p.core.Free(s.info, s.info.Mode) &&
		p.lacksVolume(s) == "" &&
		(!p.resizes || len(c.growth) == 0 && c.fixed == "" && c.growing == "")
}

// standstill returns why no pod may be updated at all, or nothing if pods may be updated.
func (p *planner) standstill() (podplan.Reason, string) {
	switch {
	case onDelete(p.set):
		return podplan.ReasonOnDelete,
			"updateStrategy.type is OnDelete: a pod gets the new template when somebody deletes it"
	case p.core.Workload.Paused:
		return podplan.ReasonPaused, "the update is paused; set paused to false in updateStrategy to go on"
	}
	return "", ""
}

// candidates returns the slots that are to be at the update revision, in update order. There are as many as
// partition leaves. chosen has their ordinals.
func (p *planner) candidates() (candidates []*slot, chosen map[int]bool) {
	chosen = map[int]bool{}
	r := rollingOf(p.set)
	most := p.out.Limits.Replicas - p.out.Limits.Partition
	if r == nil || r.UnorderedUpdate == nil {
		for i := len(p.slots) - 1; i >= 0 && p.slots[i].rank >= p.out.Limits.Partition; i-- {
			candidates = append(candidates, &p.slots[i])
		}
	} else {
		candidates = p.unordered(r.UnorderedUpdate.PriorityStrategy)
		candidates = candidates[:min(len(candidates), most)]
	}

	for _, s := range candidates {
		chosen[s.ordinal] = true
	}

	return candidates, chosen
}

// unordered returns slots in update order: first those that need no decision, including vacant slots that get
// a pod of the update revision, then those that prepare their update, then the others by priority.
func (p *planner) unordered(priority *pub.UpdatePriorityStrategy) []*slot {
	var first, prepared, rest []*slot
	var pods []rollout.Candidate
	for i := len(p.slots) - 1; i >= 0; i-- {
		s := &p.slots[i]
		switch {
		case s.pod == nil && s.updated:
			first = append(first, s)
		case s.pod == nil:
		case s.info == nil || p.carries(s.pod, p.out.UpdateRevision):
			first = append(first, s)
		case p.updated(s): // pods beyond the partition go back to Normal
			prepared = append(prepared, s)
		default:
			pods, rest = append(pods, s.info.Candidate), append(rest, s)
		}
	}

	byPod := make(map[string]*slot, len(rest))
	for _, s := range rest {
		byPod[s.pod.Name] = s
	}

	rollout.Prioritize(pods, priority)
	for i := range pods {
		rest[i] = byPod[pods[i].Pod.Name]
	}

	return slices.Concat(first, prepared, p.refusedLast(rest))
}

// specified decides about pods that are specified for deletion and about pods that prepare their deletion.
func (p *planner) specified(s *slot, candidate bool, budget *podplan.Budget) {
	if !p.undecided(s) {
		return
	}

	_, wanted := s.pod.Labels[pub.SpecifiedDelete]
	switch {
	case s.info.Preparing && !wanted && (!candidate || !p.outdated(s) || onDelete(p.set)):
		p.restore(s.info)
	case s.info.Preparing:
		p.deletePod(s.pod, podplan.ReasonSpecifiedDelete, "it is to be made anew")
	case !wanted:
	case s.info.Available && !budget.Available():
		p.core.Decide(s.pod, podplan.Wait, podplan.ReasonMaxUnavailable, "it is specified for deletion; %s",
			p.budgetWords())
	default:
		p.deletePod(s.pod, podplan.ReasonSpecifiedDelete, "it is specified for deletion")
		if !p.core.HeldByBudget(s.pod) {
			budget.Take(s.info)
		}
	}
}

// specifiedAgain reports whether the deletion of an available pod that is specified for it was refused before.
func (p *planner) specifiedAgain(s *slot) bool {
	if !p.undecided(s) || s.info.Preparing || !s.info.Available || p.in.Refused[s.pod.UID].IsZero() {
		return false
	}
	_, wanted := s.pod.Labels[pub.SpecifiedDelete]
	return wanted
}

func (p *planner) budgetWords() string {
	return fmt.Sprintf("as many pods are unavailable as maxUnavailable %d allows",
		p.out.Limits.MaxUnavailable)
}

// take counts a pod that goes. One that a PodUnavailableBudget holds counts only where others must not go instead, because of the order.
func (p *planner) take(s *slot, budget *podplan.Budget) {
	if !p.core.HeldByBudget(s.pod) || ordered(p.set) {
		budget.Take(s.info)
	}
}

// move brings one pod closer to the current spec if that is possible now. stopped says why no available pod
// may be taken out of service any more, and is empty if one may. move returns the value of stopped for the
// pods after this one.
func (p *planner) move(s *slot, budget *podplan.Budget, stopped string) string {
	if !p.outdated(s) {
		return stopped
	}

	c := p.claims[s.ordinal]
	hold := func(reason podplan.Reason, why string) string {
		p.core.Decide(s.pod, podplan.Wait, reason, "%s", why)
		return why
	}
	if stopped != "" && s.info.Available && (p.held || stopped != p.blocked || !p.free(s)) {
		p.held = true
		p.comesAfter(s, stopped)
		return stopped
	}
	if p.resizes {
		switch {
		case c.fixed != "":
			p.out.ClaimsFixed, p.out.UpdateError =
				c.fixed, fmt.Sprintf("%s: delete the claim, so that a new one is made", c.fixed)
			return hold(podplan.ReasonVolumes, p.out.UpdateError)
		case len(c.growth) > 0 && p.in.Now.Before(p.in.GrowthHeldUntil):
			p.core.LookAgain(p.in.GrowthHeldUntil)
			p.out.UpdateError = p.in.GrowthError
			return hold(podplan.ReasonVolumes, p.in.GrowthError)
		case len(c.growth) > 0 && s.info.Available && !budget.Available():
			return hold(podplan.ReasonMaxUnavailable, p.budgetWords())
		case len(c.growth) > 0:
			p.out.Growth = append(p.out.Growth, c.growth...)
			budget.Take(s.info)
			p.core.Decide(s.pod, podplan.Wait, podplan.ReasonVolumes, "claim %s grows to %s",
				c.growth[0].Claim.Name, c.growth[0].Storage.String())
			return stopped
		case c.growing != "":
			p.core.Decide(s.pod, podplan.Wait, podplan.ReasonVolumes, "%s",
				cmp.Or(c.failed, fmt.Sprintf("claim %s has not the size yet that it asks for", c.growing)))
			return stopped
		}
	}

	volume := p.lacksVolume(s)
	switch {
	case volume != "" && p.core.Workload.Policy == podplan.InPlaceOnly:
		p.out.UpdateError = fmt.Sprintf(
			"pod %s lacks a volume for claim template %s; podUpdatePolicy InPlaceOnly does not recreate it",
			s.pod.Name, volume)
		p.core.Decide(s.pod, podplan.Wait, podplan.ReasonInPlaceImpossible, "%s", p.out.UpdateError)
		return stopped
	case volume != "" && s.info.Available && !budget.Available():
		return hold(podplan.ReasonMaxUnavailable, p.budgetWords())
	case volume != "":
		p.deletePod(s.pod, podplan.ReasonVolumes, "it lacks a volume for claim template "+volume)
		p.take(s, budget)
		return stopped
	case s.info.New: // only its file system has not grown yet
		since := c.pending // the condition may be older than the pod
		if made := s.pod.CreationTimestamp.Time; made.After(since) {
			since = made
		}
		due, why := since.Add(remountAfter), cmp.Or(c.failed, "its file system has not grown yet")
		switch {
		case p.in.Now.Before(due):
			p.core.Decide(s.pod, podplan.Wait, podplan.ReasonVolumes, "%s", why).Until = due
		case s.pod.Status.Phase != corev1.PodRunning: // its volumes may be yet to be mounted
			p.core.Decide(s.pod, podplan.Wait, podplan.ReasonVolumes, "%s", why)
		case s.info.Available && !budget.Available():
			return hold(podplan.ReasonMaxUnavailable, p.budgetWords())
		default:
			p.deletePod(s.pod, podplan.ReasonVolumes, "its file system grows when it is mounted anew")
			p.take(s, budget)
		}
		return stopped
	}

	p.core.MoveTo(s.info, p.core.Update, true, budget)
	switch v := p.core.Verdict(s.pod); {
	case v.Reason == podplan.ReasonMaxUnavailable:
		return v.Message
	case v.Reason == podplan.ReasonBudget && ordered(p.set):
		budget.Take(s.info) // those after it in the order do not go instead
	}

	return stopped
}
