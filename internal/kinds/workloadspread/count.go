package workloadspread

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/firstseen"
	"github.com/afloat-project/afloat/internal/engine/readiness"
)

const (
	// CreationTimeout is for how long a pod that was admitted is waited for (WS-152).
	CreationTimeout = 30 * time.Second
	// DeletionTimeout is for how long a pod is waited for whose deletion was admitted (WS-153).
	DeletionTimeout = 15 * time.Second
)

// clockSkew is by how much the clocks of managers may differ: what is dated later would keep a place, or a
// subset, for as long as it likes.
const clockSkew = 5 * time.Minute

// SubsetQuota is a subset with the most pods that it may have of each version; Unlimited without a limit.
type SubsetQuota struct {
	Name  string
	Quota int32
}

// Quotas are those of the subsets in the order of the spec, when the workload wants desired pods in all. It
// is an error that one cannot be computed (WS-157).
func Quotas(subsets []appsv1beta1.WorkloadSpreadSubset, desired int32) ([]SubsetQuota, error) {
	quotas := make([]SubsetQuota, len(subsets))
	for i := range subsets {
		quota, err := Quota(subsets[i].MaxReplicas, desired)
		if err != nil {
			return nil, fmt.Errorf("quota of subset %q: %w", subsets[i].Name, err)
		}
		quotas[i] = SubsetQuota{subsets[i].Name, quota}
	}
	return quotas, nil
}

// Seen is what counting reads of a pod.
type Seen struct {
	Name    string
	Version string
	// Subset that it belongs to; empty for none.
	Subset string
	// Booking is the key of its booking if that is not its name (WS-076).
	Booking string
	Active  bool
	Created time.Time
}

// seenOf is what counting reads of a pod of that version and subset, by the key that it was booked under.
func seenOf(pod *corev1.Pod, version, subset, booking string) Seen {
	return Seen{Name: pod.Name, Version: version, Subset: subset, Booking: booking,
		Active: readiness.Active(pod), Created: pod.CreationTimestamp.Time}
}

// LostBooking is one whose pod was not seen to come, or to go, in time (WS-152, WS-153).
type LostBooking struct {
	Subset string
	// Pod is the key of the booking: a name, or an id.
	Pod      string
	Deletion bool
}

// Counted is a list of the status as it should be.
type Counted struct {
	Subsets []appsv1beta1.WorkloadSpreadSubsetStatus
	Lost    []LostBooking
	// Next is when the next booking expires; zero if there is none.
	Next time.Time
}

// AllVersions counts pods regardless of their version (WS-154).
const AllVersions = ""

// tally is the pods of a workload as counting looks at them. It is made once for all versions, of which there
// may be as many as pods.
type tally struct {
	now time.Time
	// active is how many pods are active, by version and subset; AllVersions has all of them.
	active map[string]map[string]int32
	// byName are the pods by their names, byKey by the keys that they were booked under.
	byName, byKey map[string]*Seen
	// unseen are the keys of bookings whose pods the API server has, although they are not among these.
	unseen map[string]bool
	// only, if not nil, are the keys of the overdue creations that the API server was asked about: of others
	// it is not known that they do not come.
	only map[string]bool
	// known is since when bookings are known, see [Note].
	known firstseen.Times
}

// Note is since when the bookings of a WorkloadSpread are known, given what was known before. How old they
// are is counted from there: the clock of who counts may be ahead of that of who booked (WS-152).
func Note(former firstseen.Times, spread *appsv1beta1.WorkloadSpread, now time.Time) firstseen.Times {
	known := firstseen.Times{}
	note := func(version string, list []appsv1beta1.WorkloadSpreadSubsetStatus) {
		for i := range list {
			known.Note(former, listOf(version, list[i].Name, false), list[i].CreatingPods, now)
			known.Note(former, listOf(version, list[i].Name, true), list[i].DeletingPods, now)
		}
	}
	note(AllVersions, spread.Status.SubsetStatuses)
	for version, list := range spread.Status.VersionedSubsetStatuses {
		note(version, list)
	}
	return known
}

func listOf(version, subset string, deletion bool) string {
	return fmt.Sprintf("%s/%s/%t", version, subset, deletion)
}

func newTally(pods []Seen, unseen map[string]bool, now time.Time) *tally {
	t := &tally{now: now, active: map[string]map[string]int32{}, byName: make(map[string]*Seen, len(pods)),
		byKey: make(map[string]*Seen, len(pods)), unseen: unseen}
	for i := range pods {
		pod := &pods[i]
		t.byName[pod.Name] = pod
		if pod.Booking != "" {
			t.byKey[pod.Booking] = pod
		} else {
			t.byKey[pod.Name] = pod
		}
		if !pod.Active || pod.Subset == "" {
			continue
		}
		versions := []string{AllVersions, pod.Version}
		if pod.Version == AllVersions {
			versions = versions[:1]
		}
		for _, version := range versions {
			if t.active[version] == nil {
				t.active[version] = map[string]int32{}
			}
			t.active[version][pod.Subset]++
		}
	}

	return t
}

// count counts the pods of a version. A booking ends with its pod, whatever version that has meanwhile.
// before is the list that the webhooks booked in; its conditions are kept.
func (t *tally) count(
	quotas []SubsetQuota, before []appsv1beta1.WorkloadSpreadSubsetStatus, version string,
) Counted {
	c := counter{tally: t, version: version}
	former := make(map[string]*appsv1beta1.WorkloadSpreadSubsetStatus, len(before))
	for i := range before {
		former[before[i].Name] = &before[i] // WS-156
	}
	for _, q := range quotas {
		c.Subsets = append(c.Subsets, c.subset(q, former[q.Name]))
	}
	return c.Counted
}

type counter struct {
	*tally
	Counted
	version string
}

// subset is WS-150: what is there, without what is about to go, with what is about to come.
func (c *counter) subset(
	q SubsetQuota, before *appsv1beta1.WorkloadSpreadSubsetStatus,
) appsv1beta1.WorkloadSpreadSubsetStatus {
	status := appsv1beta1.WorkloadSpreadSubsetStatus{Name: q.Name}
	active := c.active[c.version][q.Name]
	if before != nil {
		status.Conditions = before.Conditions
		status.CreatingPods = c.coming(q.Name, before)
		status.DeletingPods = c.going(q.Name, before)
		for name := range status.CreatingPods {
			if c.here(q.Name, name) != nil {
				active-- // of the two of one name one has gone, or never comes: they have one place
			}
		}
	}
	status.Replicas, status.MissingReplicas = active, Unlimited
	if q.Quota != Unlimited {
		missing := q.Quota - (active - int32(len(status.DeletingPods))) - int32(len(status.CreatingPods))
		status.MissingReplicas = min(max(missing, 0), q.Quota)
	}

	return status
}

// here is the active pod of that name in the subset and version, nil if there is none.
func (c *counter) here(subset, name string) *Seen {
	pod := c.byName[name]
	if pod == nil || !pod.Active || pod.Subset != subset ||
		c.version != AllVersions && pod.Version != c.version {
		return nil
	}
	return pod
}

// coming are the creations that are still waited for. One is not whose pod is ending already, and was seen.
func (c *counter) coming(
	subset string, before *appsv1beta1.WorkloadSpreadSubsetStatus,
) map[string]metav1.Time {
	return c.keep(subset, before.CreatingPods, CreationTimeout, false, func(key string, at time.Time) bool {
		return c.passing(before, key) || !has(before.DeletingPods, key) && !c.came(subset, key, at)
	})
}

// going are the deletions that are still waited for: of pods that are there, but not of one that is replaced
// by another of its name.
func (c *counter) going(
	subset string, before *appsv1beta1.WorkloadSpreadSubsetStatus,
) map[string]metav1.Time {
	return c.keep(subset, before.DeletingPods, DeletionTimeout, true, func(name string, _ time.Time) bool {
		return c.passing(before, name) || c.here(subset, name) != nil
	})
}

// passing tells of a pod that was created and deleted and that was not seen yet: a cache that lags shows it
// before it shows that it went. Its two bookings cancel each other, and without them it would have a place
// then.
func (c *counter) passing(before *appsv1beta1.WorkloadSpreadSubsetStatus, name string) bool {
	created, comes := before.CreatingPods[name]
	deleted, goes := before.DeletingPods[name]
	return comes && goes && c.byName[name] == nil &&
		!c.expired(c.since(before.Name, name, created, false), CreationTimeout) &&
		!c.expired(c.since(before.Name, name, deleted, true), DeletionTimeout)
}

func (c *counter) since(subset, key string, at metav1.Time, deletion bool) time.Time {
	return c.known.Since(listOf(c.version, subset, deletion), key, at, c.now)
}

func (c *counter) expired(since time.Time, timeout time.Duration) bool {
	return c.now.After(since.Add(timeout)) || since.After(c.now.Add(clockSkew))
}

// keep returns the bookings that are still waited for and not expired.
func (c *counter) keep(
	subset string, bookings map[string]metav1.Time, timeout time.Duration, deletion bool,
	waits func(key string, at time.Time) bool,
) map[string]metav1.Time {
	var kept map[string]metav1.Time
	var lost []string
	for key, at := range bookings {
		if !waits(key, at.Time) {
			continue
		}
		since := c.since(subset, key, at, deletion)
		expired := c.expired(since, timeout)
		if expired && (deletion || !c.mayBe(key)) {
			lost = append(lost, key)
			continue
		}
		if kept == nil {
			kept = map[string]metav1.Time{}
		}
		kept[key] = at
		if until := since.Add(timeout + moment); !expired && (c.Next.IsZero() || until.Before(c.Next)) {
			c.Next = until
		}
	}

	slices.SortFunc(lost, strings.Compare)
	for _, key := range lost {
		c.Lost = append(c.Lost, LostBooking{subset, key, deletion})
	}

	return kept
}

// mayBe tells whether the pod of an overdue creation is there, or may be.
func (t *tally) mayBe(key string) bool { return t.unseen[key] || t.only != nil && !t.only[key] }

// moment is how much later than "at most so old" is "older".
const moment = time.Millisecond

// came tells whether the pod of a booking was seen, active or not. A pod of the same name that is older than
// any request could be is an earlier one, and so is one of another subset: the cache does not show the new
// one yet.
func (c *counter) came(subset, key string, booked time.Time) bool {
	pod, ok := c.byKey[key]
	return ok && pod.Subset == subset &&
		(pod.Booking != "" || !pod.Created.Add(CreationTimeout).Before(booked))
}
