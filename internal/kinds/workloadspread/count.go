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
	// CreationTimeout is how long the controller waits for an admitted pod to appear (WS-152).
	CreationTimeout = 30 * time.Second
	// DeletionTimeout is how long the controller waits for a pod to go after its deletion was admitted
	// (WS-153).
	DeletionTimeout = 15 * time.Second
)

// clockSkew is how much the clocks of managers may differ. Without this bound, an entry dated in the future
// would keep its place, or its subset, indefinitely.
const clockSkew = 5 * time.Minute

// SubsetQuota is a subset and the most pods that it may have of each version, or Unlimited.
type SubsetQuota struct {
	Name  string
	Quota int32
}

// Quotas returns the quotas of the subsets in the order of the spec, for a workload of desired pods. It fails
// if one of them cannot be computed (WS-157).
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

// Seen is what counting needs to know of a pod.
type Seen struct {
	Name    string
	Version string
	// Subset is the subset that the pod belongs to, or empty.
	Subset string
	// Booking is the key of its booking if that is not the pod's name (WS-076).
	Booking string
	Active  bool
	Created time.Time
}

// seenOf returns what counting needs to know of a pod. booking is the key that it was booked under.
func seenOf(pod *corev1.Pod, version, subset, booking string) Seen {
	return Seen{Name: pod.Name, Version: version, Subset: subset, Booking: booking,
		Active: readiness.Active(pod), Created: pod.CreationTimestamp.Time}
}

// LostBooking is a booking whose pod did not come, or go, in time (WS-152, WS-153).
type LostBooking struct {
	Subset string
	// Pod is the key of the booking: a name or an ID.
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

// AllVersions counts pods of every version (WS-154).
const AllVersions = ""

// tally holds the pods of a workload, indexed for counting. It is built once for all versions, since there
// may be as many versions as pods.
type tally struct {
	now time.Time
	// active is the number of active pods by version and subset; AllVersions counts all of them.
	active map[string]map[string]int32
	// byName holds the pods by name, byKey by the key that they were booked under.
	byName, byKey map[string]*Seen
	// unseen are the overdue creations whose pods exist in the API server but not in the cache.
	unseen map[LostBooking]bool
	// only, if not nil, holds the overdue creations that the API server was asked about. For others it is not
	// known whether their pods still come.
	only map[LostBooking]bool
	// known records since when bookings are known; see [Note].
	known firstseen.Times
}

// Note returns since when the bookings of a WorkloadSpread are known, given what was known before. Their age
// is counted from there, since the clock of the counting manager may be ahead of that of the booking one
// (WS-152).
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

func newTally(pods []Seen, unseen map[LostBooking]bool, now time.Time) *tally {
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

// count counts the pods of a version. A booking ends with its pod, even if the pod has another version by
// then. before is the list that the webhooks booked in; its conditions are kept.
func (t *tally) count(
	quotas []SubsetQuota, before []appsv1beta1.WorkloadSpreadSubsetStatus, version string,
) Counted {
	c := counter{tally: t, version: version}
	former := make(map[string]*appsv1beta1.WorkloadSpreadSubsetStatus, len(before))
	for i := range before {
		former[before[i].Name] = &before[i]
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

// subset counts one subset: the pods that are there, without those about to go, and with those about to come.
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
				active-- // the two pods of one name share a place: one of them has gone, or never comes
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

// here returns the active pod of that name in the subset and version, or nil.
func (c *counter) here(subset, name string) *Seen {
	pod := c.byName[name]
	if pod == nil || !pod.Active || pod.Subset != subset ||
		c.version != AllVersions && pod.Version != c.version {
		return nil
	}
	return pod
}

// coming returns the creations that are still waited for. A creation is not if its pod was seen. If the
// deletion of its pod is booked, too, it is waited for as long as the pod may be a passing one, and is overdue
// after that: the deletion may have been refused.
func (c *counter) coming(
	subset string, before *appsv1beta1.WorkloadSpreadSubsetStatus,
) map[string]metav1.Time {
	return c.keep(subset, before.CreatingPods, CreationTimeout, false, func(key string, at time.Time) (waits, overdue bool) {
		if c.passing(before, key) {
			return true, false
		}
		goes := has(before.DeletingPods, key)
		return !c.came(subset, key, at) && (!goes || !c.shown(subset, key, at)), goes
	})
}

// going returns the deletions that are still waited for: those whose pod is still active in the subset and
// version, and those of passing pods.
func (c *counter) going(
	subset string, before *appsv1beta1.WorkloadSpreadSubsetStatus,
) map[string]metav1.Time {
	return c.keep(subset, before.DeletingPods, DeletionTimeout, true, func(name string, _ time.Time) (waits, overdue bool) {
		return c.passing(before, name) || c.here(subset, name) != nil, false
	})
}

// passing reports whether a pod was created and deleted without having been seen: a stale cache shows it
// before it shows that it went. Its two bookings cancel each other, and without them the pod would take a
// place for that time.
func (c *counter) passing(before *appsv1beta1.WorkloadSpreadSubsetStatus, name string) bool {
	created, comes := before.CreatingPods[name]
	deleted, goes := before.DeletingPods[name]
	return comes && goes && !c.shown(before.Name, name, created.Time) &&
		!c.expired(c.since(before.Name, name, created, false), CreationTimeout) &&
		!c.expired(c.since(before.Name, name, deleted, true), DeletionTimeout)
}

// shown reports whether the pod of that name was seen, and not an earlier one or one of another subset.
func (c *counter) shown(subset, name string, booked time.Time) bool {
	pod := c.byName[name]
	return pod != nil && pod.Subset == subset && !earlier(pod, booked)
}

// earlier reports whether a pod is older than any request could be that was booked at that time. One that has
// ended is, too, if it was created before that at all: if clocks differ, its place is only seen late.
func earlier(pod *Seen, booked time.Time) bool {
	if !pod.Active {
		return pod.Created.Unix() < booked.Unix()
	}
	return pod.Created.Add(CreationTimeout).Before(booked)
}

func (c *counter) since(subset, key string, at metav1.Time, deletion bool) time.Time {
	return c.known.Since(listOf(c.version, subset, deletion), key, at, c.now)
}

func (c *counter) expired(since time.Time, timeout time.Duration) bool {
	return c.now.After(since.Add(timeout)) || since.After(c.now.Add(clockSkew))
}

// keep returns the bookings that are still waited for and have not expired.
func (c *counter) keep(
	subset string, bookings map[string]metav1.Time, timeout time.Duration, deletion bool,
	waits func(key string, at time.Time) (waits, overdue bool),
) map[string]metav1.Time {
	var kept map[string]metav1.Time
	var lost []string
	for key, at := range bookings {
		waits, overdue := waits(key, at.Time)
		if !waits {
			continue
		}
		since := c.since(subset, key, at, deletion)
		expired := overdue || c.expired(since, timeout)
		if expired && (deletion || !c.mayBe(LostBooking{Subset: subset, Pod: key})) {
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

// mayBe reports whether the pod of an overdue creation exists, or may exist.
func (t *tally) mayBe(of LostBooking) bool { return t.unseen[of] || t.only != nil && !t.only[of] }

// moment is added to a deadline, since a check for "older than" only succeeds after it.
const moment = time.Millisecond

// came reports whether the pod of a booking was seen, active or not. A pod of the same name that is older
// than any request could be is an earlier one, and so is a pod of another subset: the cache does not show the
// new one yet.
func (c *counter) came(subset, key string, booked time.Time) bool {
	pod, ok := c.byKey[key]
	return ok && pod.Subset == subset &&
		(pod.Booking != "" || !earlier(pod, booked))
}
