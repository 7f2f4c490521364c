package rollout

import (
	"cmp"
	"math"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/readiness"
)

// Candidate is a pod to choose from.
type Candidate struct {
	Pod       *corev1.Pod
	Ready     bool
	Available bool
	// Rank is the spread rank: the higher it is, the more pods are in the same place as this one (CS-145).
	Rank float64
}

// ByRemoval compares two pods for scale-in. The pod to remove first is less (CS-141 to 148, CS-152).
func ByRemoval(a, b Candidate) int {
	x, y := standingOf(0, a), standingOf(0, b)
	return byRemoval(&x, &y)
}

// ByUpdate compares two pods in the base order of updates. The pod to update first is less (CS-180).
// [SortForUpdate] applies the rules that take precedence.
func ByUpdate(a, b Candidate) int {
	x, y := standingOf(0, a), standingOf(0, b)
	return byUpdate(&x, &y)
}

// SortForUpdate returns the candidates in the order of their update, without changing the given slice. Pods
// that a lifecycle hook has already released for the update come first (CS-187). After that scatter, priority
// and the base order apply, in this order (CS-180, CS-188). all are the pods of the workload, updated or not.
func SortForUpdate(
	candidates, all []Candidate, priority *pub.UpdatePriorityStrategy, scatter []pub.UpdateScatterTerm,
) []Candidate {
	return pick(candidates, UpdateOrder(candidates, all, priority, scatter))
}

// UpdateOrder is like [SortForUpdate], but returns the indices of the candidates. all may be nil if there is
// no scatter.
func UpdateOrder(
	candidates, all []Candidate, priority *pub.UpdatePriorityStrategy, scatter []pub.UpdateScatterTerm,
) []int {
	order := ordered(candidates, all, priority, scatter)
	admitted, others := part(order, which(candidates, preparingUpdate))
	if len(admitted) == 0 {
		return others
	}
	return append(admitted, others...)
}

// SortForSidecars is [SortForUpdate] without lifecycle hooks, for pods of any owner (SS-213, SS-214). A term
// with value "*" stands for one term for each value of that label among all pods.
func SortForSidecars(
	candidates, all []Candidate, priority *pub.UpdatePriorityStrategy, scatter []pub.UpdateScatterTerm,
) []Candidate {
	return pick(candidates, ordered(candidates, all, priority, expand(scatter, all)))
}

func ordered(
	candidates, all []Candidate, priority *pub.UpdatePriorityStrategy, scatter []pub.UpdateScatterTerm,
) []int {
	order := make([]int, 0, len(candidates))
	for _, s := range sorted(candidates, byUpdate) {
		order = append(order, s.index)
	}
	order = prioritized(order, candidates, priority)
	return scattered(order, candidates, all, scatter)
}

func preparingUpdate(pod *corev1.Pod) bool {
	return pod.Labels[pub.LifecycleState] == string(pub.LifecycleStatePreparingUpdate)
}

// The functions below represent an order of candidates as a list of their indices.

func asGiven(candidates []Candidate) []int {
	order := make([]int, len(candidates))
	for i := range order {
		order[i] = i
	}
	return order
}

func pick(candidates []Candidate, order []int) []Candidate {
	picked := make([]Candidate, len(order))
	for i, index := range order {
		picked[i] = candidates[index]
	}
	return picked
}

// which returns for each candidate whether belongs returns true for its pod.
func which(candidates []Candidate, belongs func(*corev1.Pod) bool) []bool {
	in := make([]bool, len(candidates))
	for i, c := range candidates {
		in[i] = belongs(c.Pod)
	}
	return in
}

// part divides an order into the candidates for which in is true, and the others.
func part(order []int, in []bool) (belonging, others []int) {
	others = make([]int, 0, len(order))
	for _, index := range order {
		if in[index] {
			belonging = append(belonging, index)
		} else {
			others = append(others, index)
		}
	}
	return belonging, others
}

// standing contains what the orders compare. It is read from each pod once, because sorting compares a pod
// many times.
type standing struct {
	// index is the index among the candidates.
	index int
	// stage is the progress of the pod: first whether it is assigned to a node, then its phase.
	stage               int
	available, ready    bool
	cost, restarts      int32
	rank                float64
	readySince, created int64
	name                string
}

func standingOf(index int, c Candidate) standing {
	return standing{
		index: index, stage: 3*assigned(c.Pod) + phase(c.Pod), available: c.Available, ready: c.Ready,
		cost: DeletionCost(c.Pod), restarts: restarts(c.Pod), rank: c.Rank,
		readySince: readySince(c.Pod), created: age(c.Pod.CreationTimestamp), name: c.Pod.Name,
	}
}

// sorted returns the standings of the candidates in the order that compare defines.
func sorted(candidates []Candidate, compare func(a, b *standing) int) []*standing {
	read, standings := make([]standing, len(candidates)), make([]*standing, len(candidates))
	for i, c := range candidates {
		read[i] = standingOf(i, c)
		standings[i] = &read[i]
	}
	slices.SortFunc(standings, compare)
	return standings
}

func byRemoval(a, b *standing) int {
	if a.stage == b.stage && a.available != b.available {
		return compareBool(a.available, b.available)
	}
	return byRemovalWhateverAvailable(a, b)
}

// byRemovalWhateverAvailable is the order of removal without availability, from which spread ranks are
// computed.
func byRemovalWhateverAvailable(a, b *standing) int {
	switch {
	case a.stage != b.stage:
		return cmp.Compare(a.stage, b.stage)
	case a.ready != b.ready:
		return compareBool(a.ready, b.ready)
	case a.cost != b.cost:
		return cmp.Compare(a.cost, b.cost)
	case a.rank != b.rank:
		return cmp.Compare(b.rank, a.rank)
	}
	return byAge(a, b)
}

func byUpdate(a, b *standing) int {
	switch {
	case a.stage != b.stage:
		return cmp.Compare(a.stage, b.stage)
	case a.ready != b.ready:
		return compareBool(a.ready, b.ready)
	}
	return byAge(a, b)
}

// byAge is the last part of both orders.
func byAge(a, b *standing) int {
	if a.ready && b.ready { // otherwise the times mean nothing
		if a.readySince != b.readySince {
			return cmp.Compare(a.readySince, b.readySince)
		}
	}
	if a.restarts != b.restarts {
		return cmp.Compare(b.restarts, a.restarts)
	}
	if a.created != b.created {
		return cmp.Compare(a.created, b.created)
	}
	return cmp.Compare(a.name, b.name)
}

// DeletionCost returns the pod's deletion cost; it is 0 if absent or invalid (CS-144).
func DeletionCost(pod *corev1.Pod) int32 {
	text, ok := pod.Annotations[pub.PodDeletionCost]
	if !ok {
		return 0
	}
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

// compareBool orders false before true.
func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case !a:
		return -1
	}
	return 1
}

func readySince(pod *corev1.Pod) int64 {
	if ready := readiness.Condition(pod, corev1.PodReady); ready != nil &&
		ready.Status == corev1.ConditionTrue {
		return age(ready.LastTransitionTime)
	}
	return age(metav1.Time{})
}

// age orders the unset time first, and later times before earlier ones. API times have whole seconds.
func age(t metav1.Time) int64 {
	if t.IsZero() {
		return math.MinInt64
	}
	return -t.Unix()
}

func restarts(pod *corev1.Pod) int32 {
	var most int32
	for i := range pod.Status.ContainerStatuses {
		most = max(most, pod.Status.ContainerStatuses[i].RestartCount)
	}
	return most
}
