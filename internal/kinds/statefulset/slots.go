package statefulset

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/podplan"
	"github.com/afloat-project/afloat/internal/engine/readiness"
)

// maxCreate is how many pods one plan creates, each with its claims, and so how many missing ones it looks
// at: a wrong number of replicas must not take the memory of a manager that serves others too.
const maxCreate = 2000

// slot is an ordinal with its pod.
type slot struct {
	ordinal int
	// rank is the position among all slots; it means nothing for condemned pods.
	rank int
	// pod is nil if there is none; info is nil if it is not an active one that the set controls.
	pod  *corev1.Pod
	info *podplan.Pod
	// updated: a vacant slot gets a pod of the update revision.
	updated bool
	// charged: it counts as down although its pod serves, so that what takes that away costs nothing more.
	charged bool
	// finished: its pod is the set's and has ended by itself.
	finished bool
}

// ordinals returns which numbers are slots of the set.
func (s *Snapshot) ordinals() (Slots, error) { return SlotsOf(&s.Set.Spec, s.Features.StartOrdinal) }

// members parts the set's pods into slots, in ascending order, with those that have no pod as far as a plan
// creates them, and condemned pods, in descending order.
func (s *Snapshot) members(ordinals Slots) (slots, condemned []slot) {
	for _, list := range [][]*corev1.Pod{s.Pods, s.Orphans} {
		for _, pod := range list {
			ordinal, ok := ordinalOf(s.Set.Name, pod.Name)
			if !ok {
				continue
			}
			if rank, ok := ordinals.Rank(int32(ordinal)); ok {
				slots = append(slots, slot{ordinal: ordinal, rank: rank, pod: pod})
			} else {
				condemned = append(condemned, slot{ordinal: ordinal, pod: pod})
			}
		}
	}

	slices.SortFunc(slots, func(a, b slot) int { return cmp.Compare(a.ordinal, b.ordinal) })
	slices.SortFunc(condemned, func(a, b slot) int { return cmp.Compare(b.ordinal, a.ordinal) })
	missing := min(ordinals.Len()-len(slots), max(maxCreate/max(len(s.Set.Spec.VolumeClaimTemplates), 1), 1))
	if missing <= 0 {
		return slots, condemned
	}

	all, next := make([]slot, 0, len(slots)+missing), 0
	for rank := 0; rank < ordinals.Len() && (missing > 0 || next < len(slots)); rank++ {
		switch {
		case next < len(slots) && slots[next].rank == rank:
			all = append(all, slots[next])
			next++
		case missing > 0:
			ordinal, _ := ordinals.Nth(rank)
			all = append(all, slot{ordinal: int(ordinal), rank: rank})
			missing--
		default: // only those that have pods are looked at from here on
			rank = slots[next].rank - 1
		}
	}

	return all, condemned
}

// sortMembers finds the slots and the condemned pods, and observes those that are active.
func (p *planner) sortMembers(ordinals Slots) {
	p.slots, p.condemned = p.in.members(ordinals)
	for _, list := range [][]slot{p.slots, p.condemned} {
		for i := range list {
			p.observe(&list[i])
		}
	}
}

func (p *planner) observe(s *slot) {
	switch {
	case s.pod == nil || p.core.Verdict(s.pod) != nil: // it is adopted or given up first
	case s.pod.DeletionTimestamp != nil:
		p.core.Decide(s.pod, podplan.Wait, podplan.ReasonInactive, "it is being deleted")
		if end := s.pod.DeletionTimestamp.Time; p.in.Now.Before(end) { // one that outlasts it is told of
			p.core.LookAgain(end)
		}
	case !readiness.Active(s.pod):
		s.finished = true
		p.core.Decide(s.pod, podplan.Wait, podplan.ReasonInactive, "its phase is %s", s.pod.Status.Phase)
	default:
		_, specified := s.pod.Labels[pub.SpecifiedDelete] // any value does
		p.core.Observe(s.pod, specified)
		s.info = p.core.Members[len(p.core.Members)-1]
	}
}

func (s *slot) terminating() bool { return s.pod != nil && s.pod.DeletionTimestamp != nil }

// down tells whether the slot does not serve, or is on its way there.
func (p *planner) down(s *slot) bool {
	return s.info == nil || !s.info.Available || !s.info.Progress.Complete || p.resizes && p.claimsGrow(s)
}

func ordered(set *appsv1beta1.StatefulSet) bool {
	return set.Spec.PodManagementPolicy != appsv1beta1.ParallelPodManagement
}

func onDelete(set *appsv1beta1.StatefulSet) bool {
	return set.Spec.UpdateStrategy.Type == appsv1beta1.OnDeleteStatefulSetStrategyType
}
