package workloadspread

import (
	"fmt"
	"math"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/firstseen"
	"github.com/afloat-project/afloat/internal/engine/wording"
)

// Creation is a pod that is being admitted.
type Creation struct {
	// Key is the key of its booking: its name, or a fresh ID if it gets its name later (WS-076).
	Key string
	// Generated reports that Key is an ID.
	Generated bool
	// Version is the version of the pod (WS-081).
	Version string
	// At is when this very request booked the pod, and zero if that is not known.
	At time.Time
}

// own reports whether the booking under the key of the pod may be of this very request.
func (pod *Creation) own(at metav1.Time) bool { return pod.Generated || pod.At.Unix() == at.Unix() }

// Deletion is a pod that is about to be deleted.
type Deletion struct {
	// Name is the name of the pod, and Version its version.
	Name, Version string
	// Subset is the subset that its placement names. Booking is the ID of its booking there, and is empty if
	// the pod was booked under its name.
	Subset, Booking string
	// Created is when the pod was created, and zero if that is not known.
	Created time.Time
}

// Decision is what the ledger decides about a pod.
type Decision struct {
	// Subset is the subset that the pod is put into, or nil.
	Subset *appsv1beta1.WorkloadSpreadSubset
	// Booked reports that the pod is in the list of bookings. Made reports that this very request, not an
	// earlier one, booked it, and At is when.
	Booked, Made bool
	At           time.Time
	// List is the list to be written for the version of the pod, or nil if there is nothing to write. It is
	// not set if several decisions are made together.
	List []appsv1beta1.WorkloadSpreadSubsetStatus
	// Reason is why there is no subset, or why nothing is booked.
	Reason string
	// Gone reports that the WorkloadSpread no longer exists (WS-113).
	Gone bool
}

// Placement returns the annotation of a pod that was put into a subset (WS-096).
func (d *Decision) Placement(spread string, pod Creation) pub.Placement {
	p := pub.Placement{Name: spread, Subset: d.Subset.Name}
	if d.Booked && pod.Generated {
		p.UID = pod.Key
	}
	return p
}

// Alone returns the only subset of a WorkloadSpread if it has no limit, so that there is nothing to choose
// and nothing to count. Otherwise it returns nil (WS-056).
func Alone(spread *appsv1beta1.WorkloadSpread) *appsv1beta1.WorkloadSpreadSubset {
	if subsets := spread.Spec.Subsets; len(subsets) == 1 && subsets[0].MaxReplicas == nil {
		return &subsets[0]
	}
	return nil
}

// ReadsTarget reports whether decisions need the target, which they do if a subset has a percentage.
func ReadsTarget(spread *appsv1beta1.WorkloadSpread) bool {
	return slices.ContainsFunc(spread.Spec.Subsets,
		func(s appsv1beta1.WorkloadSpreadSubset) bool { return isPercentage(s.MaxReplicas) })
}

func isPercentage(most *intstr.IntOrString) bool { return most != nil && most.Type == intstr.String }

// Create chooses the subset of a pod by the counters (WS-070 to WS-076). The returned function books the
// decision.
func (l *Ledger) Create(pod Creation) (Decision, func()) {
	if alone := Alone(l.spread); alone != nil {
		return Decision{Subset: alone}, nothing
	}

	p := l.page(pod.Version)
	if i := p.index(func(s *appsv1beta1.WorkloadSpreadSubsetStatus) bool {
		// A key with both bookings belongs to an earlier pod that nobody has counted yet.
		return has(s.CreatingPods, pod.Key) && !has(s.DeletingPods, pod.Key)
	}); i >= 0 {
		at := p.list[i].CreatingPods[pod.Key]
		decision := Decision{Subset: &l.spread.Spec.Subsets[i], Booked: true}
		if pod.own(at) {
			decision.Made, decision.At = !pod.At.IsZero(), pod.At
		}
		if pod.own(at) && !firstseen.HalfOver(at.Time, CreationTimeout, l.now) {
			return decision, nothing
		}
		// The booking stems from another request. If that is refused now, it must not give the place back, and
		// if it failed long ago, the booking would expire before this pod can be seen. Renew it, in the same
		// place.
		return decision, func() {
			at := p.list[i].CreatingPods[pod.Key].Add(time.Second)
			if at.Before(l.now) {
				at = l.now
			}
			p.change(i).CreatingPods[pod.Key] = metav1.NewTime(at)
		}
	}

	deleted := -1
	if !pod.Generated {
		deleted = p.index(func(s *appsv1beta1.WorkloadSpreadSubsetStatus) bool {
			return has(s.DeletingPods, pod.Key)
		})
	}

	if deleted >= 0 && !l.happened(p, deleted, pod.Key) {
		// The API server will answer that the earlier pod is there. Its deletion may happen yet.
		return Decision{Subset: &l.spread.Spec.Subsets[deleted]}, nothing
	}

	chosen := deleted
	if deleted < 0 || !l.room(p, deleted) {
		chosen = -1
		for i := range p.list {
			if l.room(p, i) {
				chosen = i
				break
			}
		}
	}
	if chosen < 0 {
		return Decision{Reason: "no subset has a free place: " + places(p.list)}, nothing
	}

	subset := &l.spread.Spec.Subsets[chosen]
	if p.list[chosen].MissingReplicas == Unlimited {
		return Decision{Subset: subset}, nothing
	}

	size, ok := l.takes(pod.Version, pod.Key)
	if !ok {
		return Decision{Reason: noRoom}, nothing
	}

	return Decision{Subset: subset, Booked: true, Made: true, At: l.now}, func() {
		l.size += size
		if deleted >= 0 {
			// The name is free again, and so is the place of the earlier pod. It was added to the missing
			// replicas when the deletion was booked, and is taken only if the pod returns to it.
			l.gone(p, deleted, pod.Key)
		}
		status := p.change(chosen)
		status.CreatingPods[pod.Key] = metav1.NewTime(l.now)
		status.MissingReplicas--
	}
}

func nothing() {}

// Release decides whether the place of a refused creation is given back. The returned function gives it back. It is not if another
// request has used the booking after this one, which may have created the pod.
func (l *Ledger) Release(pod Creation) (Decision, func()) {
	p := l.page(pod.Version)
	i := p.index(func(s *appsv1beta1.WorkloadSpreadSubsetStatus) bool {
		// A key with both bookings holds no place.
		at, booked := s.CreatingPods[pod.Key]
		return booked && !has(s.DeletingPods, pod.Key) && (pod.At.IsZero() || pod.own(at))
	})
	if i < 0 {
		return Decision{Reason: "it is not booked"}, nothing
	}
	return Decision{Subset: &l.spread.Spec.Subsets[i], Made: true}, func() {
		status := p.change(i)
		delete(status.CreatingPods, pod.Key)
		l.free(status, i)
	}
}

// Delete decides about a deletion (WS-102, WS-103). The returned function books it.
func (l *Ledger) Delete(pod Deletion) (Decision, func()) {
	if reason := Unbookable(l.spread, pod.Subset); reason != "" {
		return Decision{Reason: reason}, nothing
	}

	i := indexOf(l.spread, pod.Subset)
	p := l.page(pod.Version)
	for j := range p.list {
		if i != j && has(p.list[j].CreatingPods, pod.Name) || has(p.list[j].DeletingPods, pod.Name) {
			return Decision{Reason: fmt.Sprintf("pod %s is booked in subset %q", pod.Name, p.list[j].Name)},
				nothing
		}
	}

	if at, comes := p.list[i].CreatingPods[pod.Name]; comes && !pod.Created.IsZero() &&
		pod.Created.Add(CreationTimeout).Before(at.Time) {
		return Decision{Reason: fmt.Sprintf("the creation of the next pod %s is booked", pod.Name)}, nothing
	}

	size, ok := l.takes(pod.Version, pod.Name)
	if !ok {
		return Decision{Reason: noRoom}, nothing
	}

	return Decision{Subset: &l.spread.Spec.Subsets[i], Booked: true, Made: true}, func() {
		l.size += size
		status := p.change(i)
		if at, unseen := status.CreatingPods[pod.Booking]; unseen && pod.Booking != "" {
			// The pod was not counted yet, and may be gone before it is. Under its name the two bookings
			// cancel each other, so that the controller need not wait for this creation.
			status.CreatingPods[pod.Name] = at
			delete(status.CreatingPods, pod.Booking)
		}
		status.DeletingPods[pod.Name] = metav1.NewTime(l.now)
		p.looked.happened[pod.Name] = false // not before this is written
		l.free(status, i)
	}
}

// free adds a place to a subset, but only if the pods that stay are fewer than the quota: the first pods to
// leave an over-full subset free no place.
func (l *Ledger) free(status *appsv1beta1.WorkloadSpreadSubsetStatus, i int) {
	if free := missing(&status.WorkloadSpreadSubsetCounters,
		quotaOf(&l.spread.Spec.Subsets[i], l.target)); status.MissingReplicas < free {
		status.MissingReplicas++
	} else {
		status.MissingReplicas = free
	}
}

func indexOf(spread *appsv1beta1.WorkloadSpread, subset string) int {
	return slices.IndexFunc(spread.Spec.Subsets,
		func(s appsv1beta1.WorkloadSpreadSubset) bool { return s.Name == subset })
}

// Unbookable returns why deletions from the subset are never booked, or an empty string if they are (WS-102).
func Unbookable(spread *appsv1beta1.WorkloadSpread, subset string) string {
	i := indexOf(spread, subset)
	switch {
	case Ordinal(TargetOf(spread).GroupKind):
		return "nothing is booked for a StatefulSet"
	case i < 0:
		return fmt.Sprintf("there is no subset %q", subset)
	case spread.Spec.Subsets[i].MaxReplicas == nil:
		return fmt.Sprintf("subset %q has no limit", subset)
	}
	return ""
}

// ByOrdinal returns the subset of a pod of a StatefulSet, which its ordinal determines (WS-060 to WS-063).
func ByOrdinal(spread *appsv1beta1.WorkloadSpread, target *Target, pod string) Decision {
	rank, limit := int64(target.Rank(pod)), int64(0)
	for i := range spread.Spec.Subsets {
		subset := &spread.Spec.Subsets[i]
		if !open(statusAt(spread.Status.SubsetStatuses, i, subset.Name)) {
			continue
		}
		quota := int64(quotaOf(subset, target))
		if quota == int64(Unlimited) {
			quota = math.MaxInt32
		}
		if limit += quota; rank < limit {
			return Decision{Subset: subset}
		}
	}

	return Decision{
		Reason: fmt.Sprintf("the pod has rank %d, and the subsets that pods can be scheduled to have %s",
			rank, wording.Count(limit, "place"))}
}
