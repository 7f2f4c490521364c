package statefulset

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/podplan"
	"github.com/afloat-project/afloat/internal/engine/revision"
	"github.com/afloat-project/afloat/internal/engine/wording"
)

// scaleOrdered brings up the slots one after the other, and then deletes condemned pods one after the other.
func (p *planner) scaleOrdered() {
	for i := range p.slots {
		s := &p.slots[i]
		name := podName(p.set.Name, s.ordinal)
		switch {
		case s.pod == nil:
			if p.vacancy(s) && p.core.MayCreate(1) > 0 {
				p.create(s)
			}
			p.blocked = "pod " + name + " is missing"
		case s.terminating():
			p.blocked = "pod " + name + " is being deleted"
		case s.finished:
			p.ended(s)
			p.blocked = "pod " + name + " has ended"
		case s.info == nil:
			p.blocked = "pod " + name + " is adopted or given up"
		case !s.info.Available:
			p.blocked = "pod " + name + " is not available"
		default:
			continue
		}
		break
	}

	if missing := p.missing(); p.blocked != "" && missing > 0 {
		p.core.Say("%s missing; they come one after the other: %s", wording.Count(missing, "pod"), p.blocked)
	}

	recovering := false // whether a pod waits for pods below it; the lowest unhealthy one may then be deleted
	for i := range p.condemned {
		s := &p.condemned[i]
		if s.info != nil && s.info.Preparing { // its deletion has begun
			p.condemn(s)
			p.blocked = "pod " + s.pod.Name + " goes"
			continue
		}
		if s.finished { // an ended pod is of no use to anybody
			p.condemn(s)
			continue
		}
		// Otherwise the pods would wait for each other.
		if recovering && s.info != nil && !s.info.Available && s.info.AvailableIn == 0 &&
			!p.unhealthyBelow(i) {
			p.condemn(s)
			continue
		}
		if p.blocked != "" {
			p.condemnedWait(s, "it goes when every pod before it is available: "+p.blocked)
			continue
		}
		switch {
		case s.terminating():
			p.blocked = "pod " + s.pod.Name + " is being deleted"
		case s.info != nil && !s.info.Available && p.unhealthyBelow(i): // it may need those below it
			p.blocked, recovering = "pod "+s.pod.Name+" is not available", s.info.AvailableIn == 0
			p.condemnedWait(s,
				"it is no slot any more, and goes when it is available: a pod below it is not healthy either")
		case s.info == nil:
			p.blocked = "pod " + s.pod.Name + " is adopted or given up"
		default:
			p.condemn(s)
			p.blocked = "pod " + s.pod.Name + " goes"
		}
	}
}

// ended deletes the pod of a slot that ended by itself, unless a pod of that name ended a moment ago. Pods
// that fail each time, for example because their node rejects them, are recreated less and less often.
func (p *planner) ended(s *slot) {
	why := "its phase is " + string(s.pod.Status.Phase)
	if s.pod.Status.Reason != "" {
		why += " (" + s.pod.Status.Reason + ")"
	}

	if until := p.in.FailedUntil[s.pod.Name]; p.in.Now.Before(until) {
		p.core.Decide(s.pod, podplan.Wait, podplan.ReasonFailed,
			"%s; it stays until %s, because others of its name ended before", why,
			until.UTC().Format(time.RFC3339)).Until = until
		return
	}
	if v := p.deletePod(s.pod, podplan.ReasonFailed, why); v.Action == podplan.Delete {
		p.out.Ended = append(p.out.Ended, s.pod)
	}
}

// unhealthyBelow reports whether a condemned pod below this one is unhealthy too, so that this one is not the
// lowest unhealthy pod.
func (p *planner) unhealthyBelow(i int) bool {
	for _, s := range p.condemned[i+1:] {
		if s.info == nil || !s.info.Available {
			return true
		}
	}
	return false
}

// scaleParallel creates missing pods as far as scaleStrategy allows it, and deletes condemned pods.
func (p *planner) scaleParallel() {
	var vacant []*slot
	down, limited := 0, 0
	for _, s := range p.inTurn() {
		switch {
		case s.pod == nil && down >= p.out.Limits.ScaleMaxUnavailable:
			limited++
		case s.pod == nil:
			if p.vacancy(s) { // a slot that cannot be filled does not hold up others
				vacant = append(vacant, s)
				down++
			}
		case s.finished: // an ended pod must not hold up its own successor
			p.ended(s)
		case s.info != nil && !s.info.Available:
			down++
		}
	}

	for _, s := range vacant[:p.core.MayCreate(len(vacant))] {
		p.create(s)
	}

	if limited > 0 {
		p.out.ScaleLimited = fmt.Sprintf(
			"%s missing and not created yet: %d unavailable already, and scaleStrategy.maxUnavailable is %d",
			wording.Count(limited, "pod"), down, p.out.Limits.ScaleMaxUnavailable)
		p.core.Say("creation waits: %s", p.out.ScaleLimited)
	}

	for i := range p.condemned {
		if s := &p.condemned[i]; s.info != nil || s.finished {
			p.condemn(s)
		}
	}
}

// inTurn returns the slots in ascending order. After a failure those without a pod come last, and begin with another one
// each time: the refusal may concern only some of them, which must not take the units of maxUnavailable from the others.
func (p *planner) inTurn() []*slot {
	var filled, empty []*slot
	for i := range p.slots {
		if s := &p.slots[i]; s.pod == nil && p.in.CreationError != "" {
			empty = append(empty, s)
		} else {
			filled = append(filled, s)
		}
	}
	if len(empty) == 0 {
		return filled
	}
	first := p.core.Turn(len(empty))
	return slices.Concat(filled, empty[first:], empty[:first])
}

// condemn deletes a pod whose ordinal is no longer a slot.
func (p *planner) condemn(s *slot) {
	p.deletePod(s.pod, podplan.ReasonOrdinal, fmt.Sprintf("%d is no ordinal of the set any more", s.ordinal))
}

func (p *planner) condemnedWait(s *slot, why string) {
	if s.info != nil {
		p.core.Decide(s.pod, podplan.Wait, podplan.ReasonOrdered, "%s", why)
	}
}

func (p *planner) missing() int {
	n := 0
	for i := range p.slots {
		if p.slots[i].pod == nil {
			n++
		}
	}
	return n
}

// lateAgain is when to look again at a pod that is not yet in the list of the set's pods.
const lateAgain = time.Second

// vacancy reports whether a pod can be created in the slot as far as the snapshot shows, which means that
// neither its name nor its PVCs are taken.
func (p *planner) vacancy(s *slot) bool {
	name := podName(p.set.Name, s.ordinal)
	if p.in.ForeignPods[name] {
		p.out.ScaleError = fmt.Sprintf(
			"pod %s exists and is not the set's: delete it, or give it the labels of the selector and no controller",
			name)
		p.out.Refusal = p.out.ScaleError
		return false
	}
	if p.in.Late[name] { // no further event may come for it
		p.core.Say("pod %s is there, and is shown in a moment", name)
		p.core.LookAgain(p.in.Now.Add(lateAgain))
		return false
	}
	if wait := p.claims[s.ordinal].leaving; wait != "" {
		p.out.ClaimsAwaited = fmt.Sprintf("pod %s is created when %s is gone", name, wait)
		p.core.Say("%s", p.out.ClaimsAwaited)
		p.core.LookAgain(p.in.Now.Add(claimsAgain))
		return false
	}

	return true
}

// create plans the pod of a slot.
func (p *planner) create(s *slot) {
	from := p.core.Current
	if s.updated {
		from = p.core.Update
	}
	claims := p.claims[s.ordinal]
	if err := p.core.NewPod(p.identity(s.ordinal), from, func(name string) bool {
		claim := p.in.Claims[name] // its template may no longer exist
		return claims.present[name] || claim != nil && claim.DeletionTimestamp == nil
	}); err != nil {
		p.out.ScaleError = err.Error()
	}
}

// chooseRevisions decides at which revision the pods of vacant slots will be created, including those that
// are not created yet.
func (p *planner) chooseRevisions() {
	for i := range p.slots {
		if s := &p.slots[i]; s.pod != nil && !p.updated(s) {
			p.others++
		}
	}
	for i := range p.slots {
		if s := &p.slots[i]; s.pod == nil {
			if s.updated = !p.old(s); !s.updated {
				p.others++
			}
		}
	}
}

// old reports whether a new pod is created at the current revision.
func (p *planner) old(s *slot) bool {
	r := rollingOf(p.set)
	switch {
	case onDelete(p.set):
		return false
	case r == nil:
		return s.rank < int(p.set.Status.CurrentReplicas)
	case r.UnorderedUpdate == nil:
		return s.rank < p.out.Limits.Partition
	}
	return p.others < p.out.Limits.Partition
}

// updated reports whether the pod of a slot is at the update revision or prepares for it.
func (p *planner) updated(s *slot) bool {
	return revision.SameLabel(s.pod.Labels[pub.ControllerRevisionHash], p.out.UpdateRevision) ||
		s.info != nil && s.info.State == pub.LifecycleStatePreparingUpdate
}

// identity returns what is specific to the pod of an ordinal.
func (p *planner) identity(ordinal int) podplan.Identity {
	name := podName(p.set.Name, ordinal)
	labels := map[string]string{appsv1.StatefulSetPodNameLabel: name}
	if p.in.Features.PodIndexLabel {
		labels[appsv1.PodIndexLabel] = strconv.Itoa(ordinal)
	}
	return podplan.Identity{Name: name, Suffix: strconv.Itoa(ordinal), Labels: labels, Hostname: name,
		Subdomain: p.set.Spec.ServiceName, Former: true, ClaimOwners: p.ownersOf(nil, false),
		LookAtClaims: p.deletesScaled()}
}
