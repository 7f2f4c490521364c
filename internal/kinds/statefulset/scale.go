package statefulset

import (
	"fmt"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/plural"
	"github.com/afloat-project/afloat/internal/engine/podplan"
	"github.com/afloat-project/afloat/internal/engine/revision"
)

// scaleOrdered brings the slots up one after the other, and then takes condemned pods away one after the
// other (ASTS-121 to 127).
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
		p.core.Say("%s missing; they come one after the other: %s", plural.Of(missing, "pod"), p.blocked)
	}
	recovering := false // a pod waits for those below it, of which the lowest that is not healthy may go
	for i := range p.condemned {
		s := &p.condemned[i]
		if s.info != nil && s.info.Preparing { // it is on its way
			p.condemn(s)
			p.blocked = "pod " + s.pod.Name + " goes"
			continue
		}
		if s.finished { // nobody has anything of it
			p.condemn(s)
			continue
		}
		// else they wait for each other
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
		case s.info != nil && !s.info.Available && p.unhealthyBelow(i): // those below may be what it lacks
			p.blocked, recovering = "pod "+s.pod.Name+" is not available", s.info.AvailableIn == 0
			p.condemnedWait(
				s,
				"it is no slot any more, and goes when it is available: a pod below it is not healthy either")
		case s.info == nil:
			p.blocked = "pod " + s.pod.Name + " is adopted or given up"
		default:
			p.condemn(s)
			p.blocked = "pod " + s.pod.Name + " goes"
		}
	}
}

// ended deletes the pod of a slot that ended by itself, unless one of that name did a moment ago: what fails
// each time, as on a node that rejects it, is made anew less and less often.
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

// unhealthyBelow tells whether a condemned pod below this one is unhealthy too, so that this one is not the
// lowest of the set.
func (p *planner) unhealthyBelow(i int) bool {
	for _, s := range p.condemned[i+1:] {
		if s.info == nil || !s.info.Available {
			return true
		}
	}
	return false
}

// scaleParallel creates what is missing, as far as scaleStrategy lets it, and takes condemned pods away
// (ASTS-135 to 141).
func (p *planner) scaleParallel() {
	var vacant []*slot
	down, limited := 0, 0
	for i := range p.slots {
		s := &p.slots[i]
		switch {
		case s.pod == nil && down >= p.out.Limits.ScaleMaxUnavailable:
			limited++
		case s.pod == nil:
			if p.vacancy(s) { // else nothing fills it, and others go on
				vacant = append(vacant, s)
				down++
			}
		case s.finished: // it must not hold up its own successor
			p.ended(s)
		case s.info != nil && !s.info.Available:
			down++
		}
	}

	first, n := 0, p.core.MayCreate(len(vacant))
	// each in its turn, since what is refused may be refused to one of them alone
	if n < len(vacant) && p.in.CreationError != "" {
		first = int(p.in.Now.Unix() % int64(len(vacant)))
	}

	for _, s := range vacant[first : first+n] {
		p.create(s)
	}

	if limited > 0 {
		p.out.ScaleLimited = fmt.Sprintf(
			"%s missing and not created yet: %d unavailable already, and scaleStrategy.maxUnavailable is %d",
			plural.Of(limited, "pod"), down, p.out.Limits.ScaleMaxUnavailable)
		p.core.Say("creation waits: %s", p.out.ScaleLimited)
	}

	for i := range p.condemned {
		if s := &p.condemned[i]; s.info != nil || s.finished {
			p.condemn(s)
		}
	}
}

// condemn deletes a pod that is no slot any more.
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

// lateAgain is when to look again at a pod that the list of the set's pods does not show yet.
const lateAgain = time.Second

// vacancy tells whether a pod can be created in the slot as far as the snapshot tells: neither its name nor
// its PVCs are taken.
func (p *planner) vacancy(s *slot) bool {
	name := podName(p.set.Name, s.ordinal)
	if p.in.ForeignPods[name] {
		p.out.ScaleError = fmt.Sprintf(
			"pod %s exists and is not the set's: delete it, or give it the labels of the selector and no controller",
			name)
		p.out.Refusal = p.out.ScaleError
		return false
	}
	if p.in.Late[name] { // which need not be an event of its own any more
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

// create plans the pod of a slot (ASTS-100 to 111).
func (p *planner) create(s *slot) {
	from := p.core.Current
	if s.updated {
		from = p.core.Update
	}
	claims := p.claims[s.ordinal]
	if err := p.core.NewPod(p.identity(s.ordinal), from, func(name string) bool {
		claim := p.in.Claims[name] // which may be that of a template that is no more
		return claims.present[name] || claim != nil && claim.DeletionTimestamp == nil
	}); err != nil {
		p.out.ScaleError = err.Error()
	}
}

// chooseRevisions decides of which revision the pods of vacant slots will be, also of those that are not
// created yet.
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

// old tells whether a new pod is of the current revision (ASTS-107 to 109).
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

// updated tells whether the pod of a slot is at the update revision, or prepares for it.
func (p *planner) updated(s *slot) bool {
	return revision.SameLabel(s.pod.Labels[pub.ControllerRevisionHash], p.out.UpdateRevision) ||
		s.info != nil && s.info.State == pub.LifecycleStatePreparingUpdate
}

// identity is what the pod of an ordinal is made with (ASTS-096 to 098).
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
