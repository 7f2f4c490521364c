package workloadspread

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/afloat-project/afloat/api/pub"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
)

// Creation is a pod that asks to be admitted.
type Creation struct {
	// Key of its booking: its name, or a fresh id if it will get its name later (WS-076).
	Key string
	// Generated: Key is an id.
	Generated bool
	// Version of the pod (WS-081).
	Version string
}

// Deletion is a pod that is about to be deleted.
type Deletion struct {
	// Name of the pod, and its version.
	Name, Version string
	// Subset that its placement names, and the id of its booking there; empty if that is its name.
	Subset, Booking string
}

// Decision is what becomes of a pod.
type Decision struct {
	// Subset that the pod is put into; nil for none.
	Subset *appsv1beta1.WorkloadSpreadSubset
	// Booked: the key of the pod stands in the list, by this decision or by an earlier one.
	Booked bool
	// List is what is to be written for the version of the pod; nil if nothing is.
	List []appsv1beta1.WorkloadSpreadSubsetStatus
	// Reason says why there is no subset, or why nothing is booked.
	Reason string
	// Gone: the WorkloadSpread is (WS-113).
	Gone bool
}

// Placement is the annotation of a pod that was put into a subset (WS-096).
func (d *Decision) Placement(spread string, pod Creation) pub.Placement {
	p := pub.Placement{Name: spread, Subset: d.Subset.Name}
	if d.Booked && pod.Generated {
		p.UID = pod.Key
	}
	return p
}

// Alone returns the subset if there is nothing to choose and nothing to count: a single one without limit (WS-056).
func Alone(spread *appsv1beta1.WorkloadSpread) *appsv1beta1.WorkloadSpreadSubset {
	if subsets := spread.Spec.Subsets; len(subsets) == 1 && subsets[0].MaxReplicas == nil {
		return &subsets[0]
	}
	return nil
}

// readsTarget tells whether decisions need the target: for the share of a percentage.
func readsTarget(spread *appsv1beta1.WorkloadSpread) bool {
	return slices.ContainsFunc(spread.Spec.Subsets, func(s appsv1beta1.WorkloadSpreadSubset) bool { return isPercentage(s.MaxReplicas) })
}

func isPercentage(most *intstr.IntOrString) bool { return most != nil && most.Type == intstr.String }

// Create chooses the subset of a pod by the counters, and books it (WS-070 to WS-076). Nothing that spread holds is changed. target may be
// nil if it cannot be read: quotas that depend on it count 0 (WS-133).
func Create(spread *appsv1beta1.WorkloadSpread, target *Target, pod Creation, now time.Time) Decision {
	if alone := Alone(spread); alone != nil {
		return Decision{Subset: alone}
	}
	list := align(spread, target, pod.Version)
	if i := slices.IndexFunc(list, func(s appsv1beta1.WorkloadSpreadSubsetStatus) bool {
		return has(s.CreatingPods, pod.Key) && !has(s.DeletingPods, pod.Key) // with both it is of an earlier pod that nobody has counted (WS-103)
	}); i >= 0 { // WS-072
		d := Decision{Subset: &spread.Spec.Subsets[i], Booked: true}
		if now.Sub(list[i].CreatingPods[pod.Key].Time) > CreationTimeout/2 {
			// It is of a request that failed long ago, and would expire before this pod can be seen: it begins anew, in the same place.
			list[i].CreatingPods = with(list[i].CreatingPods, pod.Key, now)
			d.List = list
		}
		return d
	}
	deleted := -1
	if !pod.Generated { // WS-073
		deleted = slices.IndexFunc(list, func(s appsv1beta1.WorkloadSpreadSubsetStatus) bool { return has(s.DeletingPods, pod.Key) })
	}
	chosen := deleted
	if deleted < 0 || !free(&list[deleted]) {
		chosen = slices.IndexFunc(list, func(s appsv1beta1.WorkloadSpreadSubsetStatus) bool { return free(&s) }) // WS-074
	}
	if chosen < 0 {
		return Decision{Reason: "no subset has a free place: " + places(list)}
	}
	subset := &spread.Spec.Subsets[chosen]
	if list[chosen].MissingReplicas == Unlimited { // WS-075
		return Decision{Subset: subset}
	}
	if deleted >= 0 {
		// The name is free again, so that the place of the earlier pod is, too: it was added to the missing ones when the deletion was
		// booked, and is taken only if the pod returns to it.
		gone(&list[deleted], pod.Key)
	}
	list[chosen].CreatingPods = with(list[chosen].CreatingPods, pod.Key, now)
	list[chosen].MissingReplicas--
	return Decision{Subset: subset, Booked: true, List: list}
}

// gone settles the deletion of a pod: it leaves the count, or the creation that nobody has counted, together with the booking, so that as many are
// missing as before.
func gone(status *appsv1beta1.WorkloadSpreadSubsetStatus, name string) {
	status.DeletingPods = without(status.DeletingPods, name)
	if has(status.CreatingPods, name) {
		status.CreatingPods = without(status.CreatingPods, name)
	} else {
		status.Replicas = max(status.Replicas-1, 0)
	}
}

// Delete books the deletion of a pod (WS-102, WS-103).
func Delete(spread *appsv1beta1.WorkloadSpread, target *Target, pod Deletion, now time.Time) Decision {
	if reason := unbookable(spread, pod.Subset); reason != "" {
		return Decision{Reason: reason}
	}
	i := indexOf(spread, pod.Subset)
	list := align(spread, target, pod.Version)
	for j := range list {
		if has(list[j].CreatingPods, pod.Name) || has(list[j].DeletingPods, pod.Name) {
			return Decision{Reason: fmt.Sprintf("pod %s is booked in subset %q", pod.Name, list[j].Name)}
		}
	}
	status := &list[i]
	if at, unseen := status.CreatingPods[pod.Booking]; unseen && pod.Booking != "" {
		// It was not counted yet, and may be gone before it is. Under its name the two bookings cancel each other: whoever counts need not
		// wait for this creation (WS-151).
		status.CreatingPods = with(status.CreatingPods, pod.Name, at.Time)
		delete(status.CreatingPods, pod.Booking)
	}
	status.DeletingPods = with(status.DeletingPods, pod.Name, now)
	// A deletion frees a place only where the pods that stay are fewer than the quota: of an over-full subset the first ones do not.
	if free := missing(&status.WorkloadSpreadSubsetCounters, quotaOf(&spread.Spec.Subsets[i], target)); status.MissingReplicas < free {
		status.MissingReplicas++
	} else {
		status.MissingReplicas = free
	}
	return Decision{Subset: &spread.Spec.Subsets[i], Booked: true, List: list}
}

func indexOf(spread *appsv1beta1.WorkloadSpread, subset string) int {
	return slices.IndexFunc(spread.Spec.Subsets, func(s appsv1beta1.WorkloadSpreadSubset) bool { return s.Name == subset })
}

// unbookable says why deletions from the subset are never booked; empty if they are (WS-102).
func unbookable(spread *appsv1beta1.WorkloadSpread, subset string) string {
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

// ByOrdinal chooses the subset of a pod of a StatefulSet (WS-060 to WS-063).
func ByOrdinal(spread *appsv1beta1.WorkloadSpread, target *Target, pod string) Decision {
	rank, limit := int64(target.Rank(pod)), int64(0)
	for i := range spread.Spec.Subsets {
		subset := &spread.Spec.Subsets[i]
		if !open(statusOf(spread.Status.SubsetStatuses, subset.Name)) {
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
	return Decision{Reason: fmt.Sprintf("the pod has rank %d, and the subsets that pods can be scheduled to have %d places", rank, limit)}
}

// align is the list of a version as the spec has it now (WS-070, WS-071). The maps in it are those of spread, and must be cloned before
// they are changed.
func align(spread *appsv1beta1.WorkloadSpread, target *Target, version string) []appsv1beta1.WorkloadSpreadSubsetStatus {
	stored := spread.Status.VersionedSubsetStatuses[version]
	changed := spread.Status.ObservedGeneration != spread.Generation
	list := make([]appsv1beta1.WorkloadSpreadSubsetStatus, len(spread.Spec.Subsets))
	for i := range spread.Spec.Subsets {
		subset, status := &spread.Spec.Subsets[i], &list[i]
		quota := quotaOf(subset, target)
		before := statusOf(stored, subset.Name)
		switch {
		case before == nil:
			status.Name, status.MissingReplicas = subset.Name, quota
			if overall := statusOf(spread.Status.SubsetStatuses, subset.Name); overall != nil { // a new version is no reason to try again (WS-176)
				status.Conditions = overall.Conditions
			}
			continue
		case quota == Unlimited:
			*status = *before
			status.MissingReplicas = Unlimited
		case changed, before.MissingReplicas < 0, isPercentage(subset.MaxReplicas):
			// The stored number may be of another quota: of an earlier spec, of no limit (WS-203), or a share of another number of replicas.
			*status = *before
			status.MissingReplicas = missing(&before.WorkloadSpreadSubsetCounters, quota)
		default:
			*status = *before
			status.MissingReplicas = min(before.MissingReplicas, quota)
		}
	}
	return list
}

// missing is how many more pods there may be, counted as the controller does: what is there, without what goes, with what comes (WS-150).
func missing(c *appsv1beta1.WorkloadSpreadSubsetCounters, quota int32) int32 {
	free := int64(quota) - int64(c.Replicas) + int64(len(c.DeletingPods)) - int64(len(c.CreatingPods)) // quotas may be as large as numbers are
	return int32(min(max(free, 0), int64(quota)))
}

// quotaOf is the quota of a subset; 0 if it cannot be computed (WS-133).
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

func statusOf(list []appsv1beta1.WorkloadSpreadSubsetStatus, name string) *appsv1beta1.WorkloadSpreadSubsetStatus {
	for i := range list {
		if list[i].Name == name {
			return &list[i]
		}
	}
	return nil
}

// open is true unless the condition Schedulable is False.
func open(status *appsv1beta1.WorkloadSpreadSubsetStatus) bool {
	return status == nil || !meta.IsStatusConditionFalse(status.Conditions, string(appsv1beta1.SubsetSchedulable))
}

func free(status *appsv1beta1.WorkloadSpreadSubsetStatus) bool {
	return open(status) && (status.MissingReplicas > 0 || status.MissingReplicas == Unlimited)
}

func has(bookings map[string]metav1.Time, key string) bool { _, ok := bookings[key]; return ok }

func with(bookings map[string]metav1.Time, key string, now time.Time) map[string]metav1.Time {
	added := maps.Clone(bookings)
	if added == nil {
		added = map[string]metav1.Time{}
	}
	added[key] = metav1.NewTime(now)
	return added
}

func without(bookings map[string]metav1.Time, key string) map[string]metav1.Time {
	fewer := maps.Clone(bookings)
	delete(fewer, key)
	return fewer
}

// places says why no subset takes a pod.
func places(list []appsv1beta1.WorkloadSpreadSubsetStatus) string {
	parts := make([]string, len(list))
	for i := range list {
		s := &list[i]
		if !open(s) {
			parts[i] = fmt.Sprintf("pods cannot be scheduled to %s", s.Name)
			continue
		}
		parts[i] = fmt.Sprintf("%s has %d pods, %d are coming, %d are going", s.Name, s.Replicas, len(s.CreatingPods), len(s.DeletingPods))
	}
	return strings.Join(parts, "; ")
}
