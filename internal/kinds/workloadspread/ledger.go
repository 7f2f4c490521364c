package workloadspread

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/wording"
)

// Ledger holds the lists of one WorkloadSpread while decisions about several pods are made, each based on
// those before it. The object itself is not changed: the bookings of a subset are copied before their first
// change.
type Ledger struct {
	// Going asks whether deletions that were booked have begun or their pods have ended. One that was admitted may have been
	// refused after that. It is called only where a place depends on it; nil means that all have.
	Going func([]BookedDeletion) []bool
	// Known answers like Going without asking, if the answer is known; nil means that none is.
	Known func(pod string, booked time.Time) (going, known bool)

	spread *appsv1beta1.WorkloadSpread
	target *Target
	now    time.Time
	pages  map[string]*page
	// size is roughly how many bytes the lists of all versions take, or 0 if it was not computed yet.
	size int
	// stayed counts the deletions that were asked about and have not happened, and atOnce is how many were asked about at once
	// last time.
	stayed, atOnce int
}

// statusMost is the most bytes that the lists of one WorkloadSpread may take, including the managed fields
// that the API server keeps for them. An object can have 1.5 MiB, and a larger one cannot be written at all.
// This leaves room for 10,000 pods booked at the same time under generated names.
const statusMost = 1_250_000

// subsetSize is roughly how many bytes a subset of a version takes, and bookingSize a booking without its
// key, which is stored twice.
const (
	subsetSize  = 600
	bookingSize = 45
)

// takes returns how many bytes a booking under that key takes, and whether there is room for it.
func (l *Ledger) takes(version, key string) (size int, ok bool) {
	if l.size == 0 {
		for _, list := range l.spread.Status.VersionedSubsetStatuses {
			l.size += len(list) * subsetSize
			for i := range list {
				for _, bookings := range []map[string]metav1.Time{
					list[i].CreatingPods, list[i].DeletingPods} {
					for key := range bookings {
						l.size += bookingSize + 2*len(key)
					}
				}
			}
		}
	}

	size = bookingSize + 2*len(key)
	if p := l.pages[version]; l.spread.Status.VersionedSubsetStatuses[version] == nil &&
		(p == nil || !p.changed) {
		size += len(l.spread.Spec.Subsets) * subsetSize
	}

	return size, l.size+size <= statusMost
}

// noRoom is why a pod is not booked although its subset has a place.
const noRoom = "more pods are booked, and not seen yet, than a status can hold"

// NewLedger returns a ledger for a WorkloadSpread, which it does not change. target may be nil if it cannot
// be read; quotas that depend on it are 0 then (WS-133).
func NewLedger(spread *appsv1beta1.WorkloadSpread, target *Target, now time.Time) *Ledger {
	return &Ledger{spread: spread, target: target, now: now, pages: map[string]*page{}}
}

// page is the list of one version. own marks the subsets whose bookings were copied from the object.
type page struct {
	looked  looked
	list    []appsv1beta1.WorkloadSpreadSubsetStatus
	own     []bool
	changed bool
}

func (l *Ledger) page(version string) *page {
	p := l.pages[version]
	if p == nil {
		list := align(l.spread, l.target, version)
		p = &page{list: list, own: make([]bool, len(list)),
			looked: looked{map[string]bool{}, map[int][]string{}, map[int]int64{}}}
		for i := range list {
			if settles(&list[i], uncountedMost, l.now) {
				if p.copied(i); l.refused(&list[i]) {
					settle(&list[i], uncountedMost, l.now)
				}
			}
		}
		l.pages[version] = p
	}

	return p
}

// index returns the index of the first subset for which does returns true, or -1.
func (p *page) index(does func(*appsv1beta1.WorkloadSpreadSubsetStatus) bool) int {
	for i := range p.list {
		if does(&p.list[i]) {
			return i
		}
	}
	return -1
}

// change returns a subset whose bookings may be changed.
func (p *page) change(i int) *appsv1beta1.WorkloadSpreadSubsetStatus {
	p.changed = true
	return p.copied(i)
}

func (p *page) copied(i int) *appsv1beta1.WorkloadSpreadSubsetStatus {
	s := &p.list[i]
	if p.own[i] {
		return s
	}
	p.own[i] = true
	s.CreatingPods, s.DeletingPods = copied(s.CreatingPods), copied(s.DeletingPods)
	return s
}

func copied(bookings map[string]metav1.Time) map[string]metav1.Time {
	own := make(map[string]metav1.Time, len(bookings)+1)
	maps.Copy(own, bookings)
	return own
}

// Changed returns the lists to be written, by version. A list is nil if it is to be removed.
func (l *Ledger) Changed() map[string][]appsv1beta1.WorkloadSpreadSubsetStatus {
	changed := map[string][]appsv1beta1.WorkloadSpreadSubsetStatus{}
	for version, p := range l.pages {
		if p.changed {
			changed[version] = p.list
		}
	}

	if len(changed) == 0 {
		return changed
	}
	for version, list := range l.spread.Status.VersionedSubsetStatuses {
		if changed[version] == nil && over(list, l.now) {
			changed[version] = nil
		}
	}

	return changed
}

// The webhooks settle bookings that the controller has not counted for uncountedAfter: the clocks of managers
// may differ, and a count that is merely late must find what was booked. They keep uncountedMost older
// bookings, so that a deletion that is requested and refused again and again is booked once.
const (
	uncountedAfter = 2 * clockSkew
	uncountedMost  = 32
)

// uncounted returns the keys of old bookings in excess of most, oldest first. Keys that are also in others do
// not count.
func uncounted(bookings, others map[string]metav1.Time, most int, now time.Time) []string {
	var old []string
	n := 0
	for key, at := range bookings {
		if has(others, key) {
			continue
		}
		if n++; now.Sub(at.Time) > uncountedAfter {
			old = append(old, key)
		}
	}

	if n <= most {
		return nil
	}
	slices.SortFunc(old, func(a, b string) int {
		return cmp.Or(bookings[a].Compare(bookings[b].Time), strings.Compare(a, b))
	})
	return old[:min(len(old), n-most)]
}

// settles reports whether settle would change anything.
func settles(s *appsv1beta1.WorkloadSpreadSubsetStatus, most int, now time.Time) bool {
	return len(s.CreatingPods) > most && len(uncounted(s.CreatingPods, s.DeletingPods, most, now)) > 0 ||
		len(s.DeletingPods) > most && len(uncounted(s.DeletingPods, nil, most, now)) > 0
}

// settle assumes that the pods of old bookings have come, or gone, so that as many replicas are missing as
// before. Otherwise the list would grow as long as nobody counts.
func settle(s *appsv1beta1.WorkloadSpreadSubsetStatus, most int, now time.Time) {
	for _, name := range uncounted(s.DeletingPods, nil, most, now) {
		gone(s, name)
	}
	for _, key := range uncounted(s.CreatingPods, s.DeletingPods, most, now) {
		delete(s.CreatingPods, key)
		s.Replicas++
	}
}

// gone settles the deletion of a pod: the booking is removed together with the pod's creation, if nobody has
// counted that yet, or else with one of the counted pods. So as many replicas are missing as before.
func gone(s *appsv1beta1.WorkloadSpreadSubsetStatus, name string) {
	delete(s.DeletingPods, name)
	if has(s.CreatingPods, name) {
		delete(s.CreatingPods, name)
	} else {
		s.Replicas = max(s.Replicas-1, 0)
	}
}

// over reports whether a version has no pods any more, although nobody has counted that: all of its bookings
// are old, and nothing is left once they are settled.
func over(list []appsv1beta1.WorkloadSpreadSubsetStatus, now time.Time) bool {
	old := 0
	for i := range list {
		s := list[i]
		n := len(uncounted(s.CreatingPods, nil, 0, now)) + len(uncounted(s.DeletingPods, nil, 0, now))
		if n < len(s.CreatingPods)+len(s.DeletingPods) {
			return false
		}
		old += n
		s.CreatingPods, s.DeletingPods = copied(s.CreatingPods), copied(s.DeletingPods)
		if settle(&s, 0, now); s.Replicas > 0 {
			return false
		}
	}

	return old > 0
}

// align returns the list of a version as the spec has it now. Its maps are shared with spread, and must be
// copied before they are changed.
func align(
	spread *appsv1beta1.WorkloadSpread, target *Target, version string,
) []appsv1beta1.WorkloadSpreadSubsetStatus {
	stored := spread.Status.VersionedSubsetStatuses[version]
	changed := spread.Status.ObservedGeneration != spread.Generation
	list := make([]appsv1beta1.WorkloadSpreadSubsetStatus, len(spread.Spec.Subsets))

	for i := range spread.Spec.Subsets {
		subset, status := &spread.Spec.Subsets[i], &list[i]
		quota := quotaOf(subset, target)
		before := statusAt(stored, i, subset.Name)
		switch {
		case before == nil:
			status.Name, status.MissingReplicas = subset.Name, quota
			// A new version is no reason to try an unschedulable subset again.
			if overall := statusAt(spread.Status.SubsetStatuses, i, subset.Name); overall != nil {
				status.Conditions = overall.Conditions
			}
			continue
		case quota == Unlimited:
			*status = *before
			status.MissingReplicas = Unlimited
		case changed, before.MissingReplicas < 0, isPercentage(subset.MaxReplicas):
			// The stored number may stem from another quota: that of an earlier spec, of no limit, or of
			// another number of replicas.
			*status = *before
			status.MissingReplicas = missing(&before.WorkloadSpreadSubsetCounters, quota)
		default:
			*status = *before
			status.MissingReplicas = min(before.MissingReplicas, quota)
		}
	}

	return list
}

// missing returns how many more pods there may be, counted as the controller does: the pods that are there,
// without those about to go, and with those about to come.
func missing(c *appsv1beta1.WorkloadSpreadSubsetCounters, quota int32) int32 {
	// Quotas may be as large as an int32.
	free := int64(quota) - int64(c.Replicas) + int64(len(c.DeletingPods)) - int64(len(c.CreatingPods))
	return int32(min(max(free, 0), int64(quota)))
}

// quotaOf returns the quota of a subset, or 0 if it cannot be computed.
func quotaOf(subset *appsv1beta1.WorkloadSpreadSubset, target *Target) int32 {
	var desired int32
	if target != nil && target.DesiredError == nil {
		desired = target.Desired
	}
	quota, err := Quota(subset.MaxReplicas, desired)
	if err != nil {
		return 0
	}
	return quota
}

// statusAt is SubsetStatus for a list that usually has the order of the spec: it tries index i first.
func statusAt(
	list []appsv1beta1.WorkloadSpreadSubsetStatus, i int, name string,
) *appsv1beta1.WorkloadSpreadSubsetStatus {
	if i < len(list) && list[i].Name == name {
		return &list[i]
	}
	return SubsetStatus(list, name)
}

// SubsetStatus returns the status of the subset of that name, or nil if there is none.
func SubsetStatus(
	list []appsv1beta1.WorkloadSpreadSubsetStatus, name string,
) *appsv1beta1.WorkloadSpreadSubsetStatus {
	for i := range list {
		if list[i].Name == name {
			return &list[i]
		}
	}
	return nil
}

// open reports whether the condition Schedulable is not False.
func open(status *appsv1beta1.WorkloadSpreadSubsetStatus) bool {
	return status == nil ||
		!meta.IsStatusConditionFalse(status.Conditions, string(appsv1beta1.SubsetSchedulable))
}

func free(status *appsv1beta1.WorkloadSpreadSubsetStatus) bool {
	return open(status) && (status.MissingReplicas > 0 || status.MissingReplicas == Unlimited)
}

func has(bookings map[string]metav1.Time, key string) bool { _, ok := bookings[key]; return ok }

// places describes why no subset takes a pod.
func places(list []appsv1beta1.WorkloadSpreadSubsetStatus) string {
	parts := make([]string, len(list))
	for i := range list {
		s := &list[i]
		if !open(s) {
			parts[i] = fmt.Sprintf("pods cannot be scheduled to %s", s.Name)
			continue
		}
		parts[i] = fmt.Sprintf("%s has %s, %d coming, %d going", s.Name, wording.Count(s.Replicas, "pod"),
			len(s.CreatingPods), len(s.DeletingPods))
	}
	return strings.Join(parts, "; ")
}
