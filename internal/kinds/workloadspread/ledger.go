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
	"github.com/afloat-project/afloat/internal/engine/plural"
)

// Ledger is the lists of one WorkloadSpread while decisions about several pods are made, each on what those
// before it leave. What the object holds is not changed: the bookings of a subset are copied before the first
// change of them, once for all decisions.
type Ledger struct {
	spread *appsv1beta1.WorkloadSpread
	target *Target
	now    time.Time
	pages  map[string]*page
	// size is about how many bytes the lists of all versions take; 0 if nobody has asked yet.
	size int
}

// statusMost is how many bytes the lists of one WorkloadSpread take at most, those with which the API server
// remembers who owns which field included. An object can have 1.5 MiB, and one that is larger cannot be
// written at all. It is room for 10,000 pods that are booked at the same time under generated names.
const statusMost = 1_250_000

// About as many bytes are taken by a subset of a version, and by a booking, beside its key, which is stored
// twice.
const (
	subsetSize  = 600
	bookingSize = 45
)

// takes tells how many bytes a booking under that key takes, and whether there is room for it.
func (l *Ledger) takes(version, key string) (size int, ok bool) {
	if l.size == 0 {
		for _, list := range l.spread.Status.VersionedSubsetStatuses {
			l.size += len(list) * subsetSize
			for i := range list {
				for _, bookings := range []map[string]metav1.Time{list[i].CreatingPods,
					list[i].DeletingPods} {
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

// NewLedger begins decisions; nothing that spread holds is changed. target may be nil if it cannot be read:
// quotas that depend on it count 0 (WS-133).
func NewLedger(spread *appsv1beta1.WorkloadSpread, target *Target, now time.Time) *Ledger {
	return &Ledger{spread: spread, target: target, now: now, pages: map[string]*page{}}
}

// page is the list of one version. Subsets that have changed have bookings of their own.
type page struct {
	list    []appsv1beta1.WorkloadSpreadSubsetStatus
	own     []bool
	changed bool
}

func (l *Ledger) page(version string) *page {
	p := l.pages[version]
	if p == nil {
		list := align(l.spread, l.target, version)
		p = &page{list: list, own: make([]bool, len(list))}
		for i := range list {
			if settles(&list[i], uncountedMost, l.now) {
				p.copied(i)
				settle(&list[i], uncountedMost, l.now)
			}
		}
		l.pages[version] = p
	}

	return p
}

// index is that of the first subset that does, -1 for none.
func (p *page) index(does func(*appsv1beta1.WorkloadSpreadSubsetStatus) bool) int {
	for i := range p.list {
		if does(&p.list[i]) {
			return i
		}
	}
	return -1
}

// change is a subset whose bookings may be changed.
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

// Changed returns the lists to be written, by version: nil for one that is to go.
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

// Bookings are settled by who books if nobody has counted for so long: the clocks of managers may differ, and
// a count that is only late must find what was booked. Of older ones so many stay, so that a deletion that is
// asked for again and again, and refused, is booked once.
const (
	uncountedAfter = 2 * clockSkew
	uncountedMost  = 32
)

// uncounted are the keys of old bookings beyond so many, the oldest first, but for those that go with others.
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

// settles tells whether settle does anything.
func settles(s *appsv1beta1.WorkloadSpreadSubsetStatus, most int, now time.Time) bool {
	return len(s.CreatingPods) > most && len(uncounted(s.CreatingPods, s.DeletingPods, most, now)) > 0 ||
		len(s.DeletingPods) > most && len(uncounted(s.DeletingPods, nil, most, now)) > 0
}

// settle takes the pods of old bookings to have come, and to have gone: as many are missing as before. Else
// the list would grow as long as nobody counts.
func settle(s *appsv1beta1.WorkloadSpreadSubsetStatus, most int, now time.Time) {
	for _, name := range uncounted(s.DeletingPods, nil, most, now) {
		gone(s, name)
	}
	for _, key := range uncounted(s.CreatingPods, s.DeletingPods, most, now) {
		delete(s.CreatingPods, key)
		s.Replicas++
	}
}

// gone settles the deletion of a pod: it leaves the count, or the creation that nobody has counted, together
// with the booking, so that as many are missing as before.
func gone(s *appsv1beta1.WorkloadSpreadSubsetStatus, name string) {
	delete(s.DeletingPods, name)
	if has(s.CreatingPods, name) {
		delete(s.CreatingPods, name)
	} else {
		s.Replicas = max(s.Replicas-1, 0)
	}
}

// over tells of the list of a version that has no pods any more, although nobody has counted that: all of its
// bookings are old, and settled they leave nothing.
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

// align is the list of a version as the spec has it now. The maps in it are those of spread, and must be
// cloned before they are changed.
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
			// a new version is no reason to try again
			if overall := statusAt(spread.Status.SubsetStatuses, i, subset.Name); overall != nil {
				status.Conditions = overall.Conditions
			}
			continue
		case quota == Unlimited:
			*status = *before
			status.MissingReplicas = Unlimited
		case changed, before.MissingReplicas < 0, isPercentage(subset.MaxReplicas):
			// The stored number may be of another quota: of an earlier spec, of no limit, or a share of
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

// missing is how many more pods there may be, counted as the controller does: what is there, without what
// goes, with what comes.
func missing(c *appsv1beta1.WorkloadSpreadSubsetCounters, quota int32) int32 {
	// quotas may be as large as numbers are
	free := int64(quota) - int64(c.Replicas) + int64(len(c.DeletingPods)) - int64(len(c.CreatingPods))
	return int32(min(max(free, 0), int64(quota)))
}

// quotaOf is the quota of a subset; 0 if it cannot be computed.
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

// statusAt is statusOf for what usually stands at that place: in the order of the spec.
func statusAt(
	list []appsv1beta1.WorkloadSpreadSubsetStatus, i int, name string,
) *appsv1beta1.WorkloadSpreadSubsetStatus {
	if i < len(list) && list[i].Name == name {
		return &list[i]
	}
	return SubsetStatus(list, name)
}

// SubsetStatus is the status of the subset of that name, nil if there is none.
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

// open is true unless the condition Schedulable is False.
func open(status *appsv1beta1.WorkloadSpreadSubsetStatus) bool {
	return status == nil || !meta.IsStatusConditionFalse(status.Conditions,
		string(appsv1beta1.SubsetSchedulable))
}

func free(status *appsv1beta1.WorkloadSpreadSubsetStatus) bool {
	return open(status) && (status.MissingReplicas > 0 || status.MissingReplicas == Unlimited)
}

func has(bookings map[string]metav1.Time, key string) bool { _, ok := bookings[key]; return ok }

// places says why no subset takes a pod.
func places(list []appsv1beta1.WorkloadSpreadSubsetStatus) string {
	parts := make([]string, len(list))
	for i := range list {
		s := &list[i]
		if !open(s) {
			parts[i] = fmt.Sprintf("pods cannot be scheduled to %s", s.Name)
			continue
		}
		parts[i] = fmt.Sprintf("%s has %s, %d coming, %d going", s.Name, plural.Of(s.Replicas, "pod"),
			len(s.CreatingPods), len(s.DeletingPods))
	}
	return strings.Join(parts, "; ")
}
