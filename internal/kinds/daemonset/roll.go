package daemonset

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/inplace"
	"github.com/afloat-project/afloat/internal/engine/podplan"
	"github.com/afloat-project/afloat/internal/engine/readiness"
)

// updateSet returns the sites whose pods are to be at the update revision, in update order, and the other
// sites. The update set has as many sites as partition leaves. Sites that are at the update revision, or on
// their way, come first; the order is otherwise by descending name.
func (p *planner) updateSet() (set, others []*site) {
	var updated, updating, rest []*site
	all := 0
	for _, l := range slices.Backward(p.ordered()) {
		if !l.Eligible && p.in.Features.PruneIneligible {
			p.hold([]*site{l}, ReasonNode,
				func(l *site) string { return "its node is left out of the rollout: " + l.Why })
		}
		if !l.Eligible && (len(l.pods) == 0 || p.in.Features.PruneIneligible) {
			continue
		}
		all++
		now, _ := l.count(p)
		_, old, several := p.usable(l)
		switch {
		case now > 0 || several:
			updated = append(updated, l)
		case old == nil: // or the old pod goes
			updating = append(updating, l)
		case l.selected:
			rest = append(rest, l)
		default:
			others = append(others, l)
		}
	}

	set = slices.Concat(updated, updating, p.lastRefused(rest))
	if most := max(all-p.out.Limits.Partition, 0); len(set) > most {
		set, others = set[:most:most], append(others, set[most:]...)
	}

	return set, others
}

// lastRefused sorts sites with pods that the API server refused to change to the end, the most recently
// refused last. One pod that a policy protects must not block the others forever.
func (p *planner) lastRefused(sites []*site) []*site {
	if len(p.in.Refused) == 0 {
		return sites
	}

	refused := func(l *site) (at time.Time) {
		for _, d := range l.pods {
			if of := p.in.Refused[d.pod.UID]; of.After(at) {
				at = of
			}
		}
		return at
	}

	return slices.SortedStableFunc(slices.Values(sites),
		func(a, b *site) int { return refused(a).Compare(refused(b)) })
}

// ordered returns the sites whose nodes exist, in ascending order of their names.
func (p *planner) ordered() []*site { return p.sites[:len(p.in.Nodes)] }

// usable returns the new and the old pod of a site, ignoring pods that go. several reports that there is more
// than one of either.
func (p *planner) usable(l *site) (now, old *daemon, several bool) {
	for _, d := range l.pods {
		kept := &old
		switch {
		case p.goes(d):
			continue
		case d.new:
			kept = &now
		}
		several = several || *kept != nil
		*kept = d
	}
	return now, old, several
}

// roll moves the old pods of the update set, as far as the user's numbers allow, and records what all others
// wait for.
func (p *planner) roll() {
	set, others := p.updateSet()
	for _, l := range set {
		if !l.out {
			p.out.updates++
		}
		if d := p.serving(l); !l.out && d != nil && d.new {
			p.out.arrived++
		}
	}

	reason, why := p.standstill()
	switch {
	case reason != "":
		p.hold(slices.Concat(set, others), reason, func(*site) string { return why })
		return
	case p.surges():
		p.rollWithSurge(set, others)
	default:
		p.rollInPlace(set, others)
	}

	for _, l := range others {
		if l.selected || rollingOf(p.set).Selector == nil {
			p.hold([]*site{l}, podplan.ReasonPartition, func(*site) string {
				return fmt.Sprintf("partition keeps the pods of %d nodes at their revision",
					p.out.Limits.Partition)
			})
		} else {
			p.hold([]*site{l}, ReasonNodeSelector, func(l *site) string {
				return "the selector of the rollout does not select node " + l.name
			})
		}
	}
}

// standstill returns why no pod may be updated at all, or nothing if pods may be updated.
func (p *planner) standstill() (podplan.Reason, string) {
	switch {
	case rollingOf(p.set) == nil:
		return podplan.ReasonOnDelete,
			"updateStrategy.type is OnDelete: a pod gets the new template when somebody deletes it"
	case p.core.Workload.Paused:
		return podplan.ReasonPaused,
			"the update is paused; set paused to false in updateStrategy.rollingUpdate to go on"
	}
	return "", ""
}

// hold leaves the old pods of sites as they are.
func (p *planner) hold(sites []*site, reason podplan.Reason, why func(*site) string) {
	for _, l := range sites {
		for _, d := range l.pods {
			if d.info == nil || d.new || d.info.Preparing || d.info.Progress.InGrace ||
				p.core.Verdict(d.pod) != nil {
				continue
			}
			d.info.Stay = true
			p.core.Decide(d.pod, podplan.Keep, reason, "%s", why(l))
		}
	}
}

// rollInPlace updates old pods in place or deletes them, while no more than maxUnavailable nodes lack an
// available pod because of the update. Pods that are not available cost nothing, unless the set asks for
// strict accounting.
func (p *planner) rollInPlace(set, others []*site) {
	unavailable, resting := 0, 0
	var begun, down, normal []*site
	for _, l := range set {
		if l.out {
			continue
		}
		now, old, several := p.usable(l)
		switch {
		case p.keptEmpty(l):
		case (several || now != nil && old != nil) && p.serving(l) != nil && p.surplusHeld(l):
			// A budget holds a pod that is too many, and another one serves.
		case several, now == nil && old == nil, now != nil && old != nil, p.preparesNew(l):
			unavailable++
		// It is unknown whether a pod is available that is not adopted yet: what the caches show of it is older
		// than the adoption, if a manager that died has adopted it already.
		case old != nil && p.adopts(old):
			unavailable++
		case now != nil:
			if !now.available() || p.adopts(now) {
				unavailable++
			}
		case old.available():
			normal = append(normal, l)
		case tookOut(old):
			begun = append(begun, l)
		default:
			down = append(down, l)
		}
	}

	// If there are candidates, none of the others has a new pod, because sites with new pods come first in
	// the update set.
	for _, l := range others {
		_, old, _ := p.usable(l)
		switch {
		case l.out, old == nil, old.available():
		case p.strict, mended(old) && !old.info.Progress.Complete:
			unavailable++
		case mended(old):
			resting++
		}
	}

	spare := max(p.out.Limits.MaxUnavailable-unavailable, 0)
	if p.strict {
		down = slices.Concat(begun, down)
		immediate := min(spare, len(down))
		spare = max(spare-len(down), 0)
		p.hold(down[immediate:], podplan.ReasonMaxUnavailable, func(*site) string {
			return fmt.Sprintf(
				"as many nodes lack an available pod as maxUnavailable %d allows, which is counted strictly",
				p.out.Limits.MaxUnavailable)
		})
		down = down[:immediate]
	} else {
		spare = max(spare-len(begun), 0)
		down = slices.Concat(begun, down)
	}

	budget := podplan.NewSpare(spare, 0) // the budget is for available pods; the others cost nothing
	budget.Beyond(p.lost(p.in.Features.PruneIneligible))
	for _, l := range p.lastRefused(slices.Concat(down, normal)) {
		_, old, _ := p.usable(l)
		p.move(l, old, budget)
	}

	// Mending waits until the pods mended before are ready. Updates do not wait for these pods, because they
	// may be failing for other reasons by now.
	budget.Spend(resting)
	for _, l := range p.lastRefused(others) {
		if _, old, _ := p.usable(l); !l.out && old != nil {
			p.mend(old, budget)
		}
	}

	p.hold(left(set), ReasonNodeNotReady,
		func(l *site) string { return "node " + l.name + " is not ready for long" })
}

// surplusHeld reports whether a PodUnavailableBudget holds a pod of the site.
func (p *planner) surplusHeld(l *site) bool {
	return slices.ContainsFunc(l.pods, func(d *daemon) bool {
		v := p.core.Verdict(d.pod)
		return v != nil && v.Reason == podplan.ReasonBudget
	})
}

// surplusProtected reports whether a pod of the site that is too many stays because its deletion was refused, while
// another one serves.
func (p *planner) surplusProtected(l *site) bool {
	return p.serving(l) != nil &&
		slices.ContainsFunc(l.pods, func(d *daemon) bool { return p.deletes(d) && p.refused(d) })
}

// lost returns how many lost nodes lack a pod because of the rollout: those whose pod went, and, if pods is true, those
// with pods. They count although nothing else of their nodes does, which may be lost in the middle of an
// update. With strict accounting all pods that are not available count.
func (p *planner) lost(pods bool) (n int) {
	for _, l := range p.lostSites() {
		went := len(l.pods) == 0 && p.in.Had[l.name] && !p.keptEmpty(l)
		if went || pods && p.serving(l) == nil && slices.ContainsFunc(l.pods, p.misses) {
			n++
		}
	}
	return n
}

// lostSites returns the sites whose nodes are lost, and not for so long that they do not count any more.
func (p *planner) lostSites() (lost []*site) {
	for _, l := range p.sites {
		if l.Lost && !l.out {
			lost = append(lost, l)
		}
	}
	return lost
}

// misses reports whether a pod of a lost node may not serve because of the rollout.
func (p *planner) misses(d *daemon) bool {
	switch {
	case p.goes(d), p.adopts(d):
		return true
	case d.available():
		return false
	case p.strict:
		return true
	}
	return (d.new || tookOut(d)) && !nodeTook(d.pod)
}

// nodeTook reports whether the loss of its node alone made a pod not ready: its containers are ready, nothing holds
// it, and it was ready after its last update.
func nodeTook(pod *corev1.Pod) bool {
	gate, ready := readiness.Condition(pod, pub.InPlaceUpdateReady), readiness.Condition(pod, corev1.PodReady)
	return ready != nil && ready.Status != corev1.ConditionTrue && isTrue(pod, corev1.ContainersReady) && unheld(pod) &&
		(gate == nil || ready.LastTransitionTime.After(gate.LastTransitionTime.Time))
}

// tookOut reports whether the pod does not serve only because the rollout took it out of service: its containers
// are ready. The manager may have died before it wrote the update, or the pod is back and kubelet has not said so yet.
// Such a pod goes on, and unlike one that is not available for a reason of its own it costs, since users would
// otherwise lack one pod more than they allow.
func tookOut(d *daemon) bool {
	gate := readiness.Condition(d.pod, pub.InPlaceUpdateReady)
	switch {
	case d.info == nil, gate == nil, !isTrue(d.pod, corev1.ContainersReady):
		return false
	case gate.Status == corev1.ConditionFalse:
		return true
	}
	return !isTrue(d.pod, corev1.PodReady) && unheld(d.pod)
}

// unheld reports whether all readiness gates of the pod are True.
func unheld(pod *corev1.Pod) bool {
	return !slices.ContainsFunc(pod.Spec.ReadinessGates, func(gate corev1.PodReadinessGate) bool {
		return !isTrue(pod, gate.ConditionType)
	})
}

// isTrue reports whether the pod has a condition with status True.
func isTrue(pod *corev1.Pod, conditionType corev1.PodConditionType) bool {
	condition := readiness.Condition(pod, conditionType)
	return condition != nil && condition.Status == corev1.ConditionTrue
}

// left returns the sites that the rollout leaves out.
func left(sites []*site) (out []*site) {
	for _, l := range sites {
		if l.out {
			out = append(out, l)
		}
	}
	return out
}

// preparesNew reports whether a new pod of the site prepares its deletion.
func (p *planner) preparesNew(l *site) bool {
	return slices.ContainsFunc(l.pods,
		func(d *daemon) bool { return d.new && d.pod.DeletionTimestamp == nil && p.goes(d) })
}

// move brings the old pod of a site closer to the update revision if that is possible now.
func (p *planner) move(l *site, d *daemon, budget *podplan.Budget) {
	switch {
	// The pod is adopted or goes.
	case p.core.Verdict(d.pod) != nil && p.core.Verdict(d.pod).Action != podplan.Wait:
	case d.info == nil: // the pod has ended
		p.deletePod(d.pod, podplan.ReasonOutdated,
			"it ended on node "+l.name+", and is not of the update revision")
	case d.info.Progress.InGrace:
	case p.updated+p.deletions >= p.burst:
		p.out.More = true
		p.core.Decide(d.pod, podplan.Wait, ReasonBurst,
			"burstReplicas lets %d pods be updated at a time", p.burst)
	default:
		p.core.MoveTo(d.info, p.core.Update, true, budget)
		if v := p.core.Verdict(d.pod); v.Action == podplan.UpdateInPlace {
			p.updated++
		}
	}
}

// mend restores in place what another revision changed in a pod that stays at its revision. This comes after
// all updates.
func (p *planner) mend(d *daemon, budget *podplan.Budget) {
	if d.info == nil || d.info.Preparing || d.info.Progress.InGrace || p.core.Verdict(d.pod) != nil ||
		p.updated+p.deletions >= p.burst {
		return
	}
	if own := p.core.MendsInPlace(d.info); own != nil {
		if v := p.core.MendInPlace(d.info, own, budget); v.Action == podplan.UpdateInPlace {
			p.updated++
		}
	}
}

// mended reports whether an old pod was mended or is being mended.
func mended(d *daemon) bool {
	if d.info == nil {
		return false
	}
	images, resources := inplace.Mended(d.pod, d.info.Label)
	return len(images)+len(resources) > 0
}

// rollWithSurge creates new pods beside old ones. A new pod is created at once beside an old pod that is not
// available, and beside others while no more than maxSurge nodes have two pods. The placement step deletes an
// old pod when the new one is available.
func (p *planner) rollWithSurge(set, others []*site) {
	surge := 0
	if p.in.Features.PruneIneligible {
		others = slices.Concat(others, p.lostSites())
	}
	for _, l := range others {
		if !l.out && l.crowded() && !p.surplusProtected(l) {
			surge++
		}
	}

	var candidates []*site
	for _, l := range set {
		_, old, _ := p.usable(l)
		failing := p.in.Now.Before(p.in.FailedUntil[l.name])
		switch {
		case l.out, l.crowded() && p.surplusProtected(l):
		case l.crowded():
			surge++
		// It is unknown whether a pod is available that is not adopted yet.
		case old == nil || l.create || p.adopts(old):
		case !l.Eligible:
			p.hold([]*site{l}, ReasonNode,
				func(l *site) string { return "no new pod can come beside it: " + l.Why })
		case failing:
			p.core.LookAgain(p.in.FailedUntil[l.name])
			p.hold([]*site{l}, podplan.ReasonFailed,
				func(l *site) string { return "new pods failed on node " + l.name })
		case !old.available():
			l.create = true
			p.beside(l, old)
		default:
			candidates = append(candidates, l)
		}
	}

	slices.SortStableFunc(candidates, p.byFailure) // one for which no pod can be made takes the place of no other
	for i, l := range candidates {
		_, old, _ := p.usable(l)
		if i < p.out.Limits.MaxSurge-surge {
			l.create = true
			p.beside(l, old)
			continue
		}
		if old.info != nil && p.core.Verdict(old.pod) == nil {
			p.core.Decide(old.pod, podplan.Wait, ReasonSurge,
				"as many nodes have a new pod beside their old one as maxSurge %d allows",
				p.out.Limits.MaxSurge)
		}
	}

	p.hold(left(set), ReasonNodeNotReady,
		func(l *site) string { return "node " + l.name + " is not ready for long" })

	for _, l := range set {
		if now, old, _ := p.usable(l); now != nil && old != nil && old.info != nil &&
			p.core.Verdict(old.pod) == nil {
			p.core.Decide(old.pod, podplan.Wait, podplan.ReasonUpdateUnhealthy,
				"it stays until pod %s of the update revision is available", now.pod.Name)
		}
	}
}

// beside records for an old pod that a new one is created beside it.
func (p *planner) beside(l *site, old *daemon) {
	if old.info != nil && p.core.Verdict(old.pod) == nil {
		p.core.Decide(old.pod, podplan.Wait, podplan.ReasonUpdating,
			"a new pod comes beside it on node %s", l.name)
	}
}
