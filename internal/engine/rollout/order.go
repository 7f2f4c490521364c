package rollout

import (
	"cmp"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/readiness"
)

// Candidate is a pod to choose from.
type Candidate struct {
	Pod       *corev1.Pod
	Ready     bool
	Available bool
	// Rank is the spread rank: the higher, the more pods stand where this one stands (CS-145).
	Rank float64
}

// ByRemoval compares two pods for scale-in: the one to go first is less (CS-141 to 148, CS-152).
func ByRemoval(a, b Candidate) int {
	return cmp.Or(
		cmp.Compare(assigned(a.Pod), assigned(b.Pod)),
		cmp.Compare(phase(a.Pod), phase(b.Pod)),
		compareBool(a.Available, b.Available),
		compareBool(a.Ready, b.Ready),
		cmp.Compare(DeletionCost(a.Pod), DeletionCost(b.Pod)),
		cmp.Compare(b.Rank, a.Rank),
		youngerReadiness(a, b),
		cmp.Compare(restarts(b.Pod), restarts(a.Pod)),
		younger(a.Pod.CreationTimestamp.Time, b.Pod.CreationTimestamp.Time),
		cmp.Compare(a.Pod.Name, b.Pod.Name),
	)
}

// ByUpdate compares two pods for update: the one to be updated first is less (CS-180). Those that a lifecycle hook has let into
// the update already go before all others (CS-187).
func ByUpdate(a, b Candidate) int {
	return cmp.Or(
		compareBool(!preparingUpdate(a.Pod), !preparingUpdate(b.Pod)),
		cmp.Compare(assigned(a.Pod), assigned(b.Pod)),
		cmp.Compare(phase(a.Pod), phase(b.Pod)),
		compareBool(a.Ready, b.Ready),
		youngerReadiness(a, b),
		cmp.Compare(restarts(b.Pod), restarts(a.Pod)),
		younger(a.Pod.CreationTimestamp.Time, b.Pod.CreationTimestamp.Time),
		cmp.Compare(a.Pod.Name, b.Pod.Name),
	)
}

func preparingUpdate(pod *corev1.Pod) bool {
	return pod.Labels[pub.LifecycleState] == string(pub.LifecycleStatePreparingUpdate)
}

// DeletionCost returns the pod's deletion cost; absent or invalid is 0 (CS-144).
func DeletionCost(pod *corev1.Pod) int32 {
	text := pod.Annotations[pub.PodDeletionCost]
	cost, err := strconv.ParseInt(text, 10, 32)
	if err != nil || strconv.FormatInt(cost, 10) != text {
		return 0
	}
	return int32(cost)
}

func assigned(pod *corev1.Pod) int {
	if pod.Spec.NodeName == "" {
		return 0
	}
	return 1
}

func phase(pod *corev1.Pod) int {
	switch pod.Status.Phase {
	case corev1.PodPending, "":
		return 0
	case corev1.PodUnknown:
		return 1
	}
	return 2
}

// compareBool puts false first.
func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case !a:
		return -1
	}
	return 1
}

// youngerReadiness puts, of two ready pods, the one that became ready later first; one without a time goes before both.
func youngerReadiness(a, b Candidate) int {
	if !a.Ready || !b.Ready {
		return 0
	}
	return younger(readySince(a.Pod), readySince(b.Pod))
}

func readySince(pod *corev1.Pod) time.Time {
	if ready := readiness.Condition(pod, corev1.PodReady); ready != nil && ready.Status == corev1.ConditionTrue {
		return ready.LastTransitionTime.Time
	}
	return time.Time{}
}

// younger puts the unset time first, then the later one.
func younger(a, b time.Time) int {
	if a.IsZero() != b.IsZero() {
		return compareBool(!a.IsZero(), !b.IsZero())
	}
	return b.Compare(a)
}

func restarts(pod *corev1.Pod) int32 {
	var most int32
	for i := range pod.Status.ContainerStatuses {
		most = max(most, pod.Status.ContainerStatuses[i].RestartCount)
	}
	return most
}
