package workloadspread

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
)

const (
	// CreationTimeout is for how long a pod that was admitted is waited for (WS-152).
	CreationTimeout = 30 * time.Second
	// DeletionTimeout is for how long a pod is waited for whose deletion was admitted (WS-153).
	DeletionTimeout = 15 * time.Second
)

// clockSkew is by how much the clocks of managers may differ: what is dated later would keep a place, or a subset, for as long as it likes.
const clockSkew = 5 * time.Minute

// SubsetQuota is a subset with the most pods that it may have of each version; Unlimited without a limit.
type SubsetQuota struct {
	Name  string
	Quota int32
}

// Quotas are those of the subsets in the order of the spec, when the workload wants desired pods in all. It is an error that one cannot
// be computed (WS-157).
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

// SeenOf is what counting reads of a pod of that version and subset.
func SeenOf(pod *corev1.Pod, version, subset string) Seen {
	placed, _ := pub.ParsePlacement(pod.Annotations)
	return seenOf(pod, version, subset, placed.UID)
}

func seenOf(pod *corev1.Pod, version, subset, booking string) Seen {
	return Seen{Name: pod.Name, Version: version, Subset: subset, Booking: booking, Active: Active(pod), Created: pod.CreationTimestamp.Time}
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

// Count counts the pods of a version. pods are those of all versions: a booking ends with the pod, whatever version that has meanwhile
// (WS-151, WS-197). before is the list that the webhooks booked in; its conditions are kept.
func Count(quotas []SubsetQuota, before []appsv1beta1.WorkloadSpreadSubsetStatus, version string, pods []Seen, now time.Time) Counted {
	c := counter{now: now, pods: pods, former: make(map[string]*appsv1beta1.WorkloadSpreadSubsetStatus, len(before))}
	for i := range before {
		c.former[before[i].Name] = &before[i] // WS-156
	}
	active := make(map[string]int32, len(quotas))
	c.deletable = map[string]sets.Set[string]{}
	for i := range pods {
		pod := &pods[i]
		if !pod.Active || pod.Subset == "" || version != AllVersions && pod.Version != version {
			continue
		}
		old := c.former[pod.Subset]
		if old != nil && c.replaced(pod, old) {
			continue
		}
		active[pod.Subset]++
		if old != nil && len(old.DeletingPods) > 0 {
			if c.deletable[pod.Subset] == nil {
				c.deletable[pod.Subset] = sets.New[string]()
			}
			c.deletable[pod.Subset].Insert(pod.Name)
		}
	}
	for _, q := range quotas {
		c.Subsets = append(c.Subsets, c.subset(q, active[q.Name]))
	}
	return c.Counted
}

// replaced tells of a pod that was booked anew under its name, in the same subset: the two of them have one place, and the cache does not show yet that
// this one has gone.
func (c *counter) replaced(pod *Seen, status *appsv1beta1.WorkloadSpreadSubsetStatus) bool {
	booked, ok := status.CreatingPods[pod.Name]
	return ok && !has(status.DeletingPods, pod.Name) && earlier(pod, booked.Time) && !c.expired(booked, CreationTimeout)
}

// expired tells whether a booking is not waited for any more.
func (c *counter) expired(at metav1.Time, timeout time.Duration) bool {
	return c.now.After(at.Add(timeout)) || at.After(c.now.Add(clockSkew))
}

// earlier tells of a pod that is older than any request could be.
func earlier(pod *Seen, booked time.Time) bool {
	return pod.Created.Add(CreationTimeout).Before(booked)
}

type counter struct {
	Counted
	now    time.Time
	pods   []Seen
	former map[string]*appsv1beta1.WorkloadSpreadSubsetStatus
	// deletable are the active pods of subsets in which deletions are booked.
	deletable map[string]sets.Set[string]
	// seen are the keys of pods, made when the first creation is looked at.
	seen map[string]*Seen
}

// subset is WS-150: what is there, without what is about to go, with what is about to come.
func (c *counter) subset(q SubsetQuota, active int32) appsv1beta1.WorkloadSpreadSubsetStatus {
	status := appsv1beta1.WorkloadSpreadSubsetStatus{Name: q.Name}
	status.Replicas, status.MissingReplicas = active, Unlimited
	if old := c.former[q.Name]; old != nil {
		status.Conditions = old.Conditions
		status.CreatingPods = c.keep(q.Name, old.CreatingPods, CreationTimeout, false, old.DeletingPods)
		status.DeletingPods = c.keep(q.Name, old.DeletingPods, DeletionTimeout, true, nil)
	}
	if q.Quota != Unlimited {
		missing := q.Quota - (active - int32(len(status.DeletingPods))) - int32(len(status.CreatingPods))
		status.MissingReplicas = min(max(missing, 0), q.Quota)
	}
	return status
}

// keep returns the bookings that are still waited for. A creation is not whose pod is ending already.
func (c *counter) keep(subset string, bookings map[string]metav1.Time, timeout time.Duration, deletion bool, ending map[string]metav1.Time) map[string]metav1.Time {
	var kept map[string]metav1.Time
	var lost []string
	for key, at := range bookings {
		if deletion && !c.deletable[subset].Has(key) || !deletion && (has(ending, key) || c.came(subset, key, at.Time)) {
			continue
		}
		if c.expired(at, timeout) {
			lost = append(lost, key)
			continue
		}
		if kept == nil {
			kept = map[string]metav1.Time{}
		}
		kept[key] = at
		if until := at.Add(timeout + moment); c.Next.IsZero() || until.Before(c.Next) {
			c.Next = until
		}
	}
	slices.SortFunc(lost, strings.Compare)
	for _, key := range lost {
		c.Lost = append(c.Lost, LostBooking{subset, key, deletion})
	}
	return kept
}

// moment is how much later than "at most so old" is "older".
const moment = time.Millisecond

// came tells whether the pod of a booking was seen, active or not (WS-151). A pod of the same name that is older than any request
// could be is an earlier one, and so is one of another subset: the cache does not show the new one yet.
func (c *counter) came(subset, key string, booked time.Time) bool {
	if c.seen == nil {
		c.seen = make(map[string]*Seen, len(c.pods))
		for i := range c.pods {
			pod := &c.pods[i]
			name := pod.Booking
			if name == "" {
				name = pod.Name
			}
			c.seen[name] = pod
		}
	}
	pod, ok := c.seen[key]
	return ok && pod.Subset == subset && (pod.Booking != "" || !earlier(pod, booked))
}
