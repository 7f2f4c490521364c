package rollout

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/afloat-project/afloat/api/pub"
)

// Prioritize moves pods of higher priority to the front; pods of the same priority keep their order (CS-181,
// CS-182). The webhook rejects weight and order together (CS-183); if both are set nevertheless, weight
// applies.
func Prioritize(candidates []Candidate, strategy *pub.UpdatePriorityStrategy) {
	copy(candidates, pick(candidates, prioritized(asGiven(candidates), candidates, strategy)))
}

func prioritized(order []int, candidates []Candidate, strategy *pub.UpdatePriorityStrategy) []int {
	switch {
	case strategy == nil:
	case len(strategy.WeightPriority) > 0:
		return sortStable(order, candidates, weigh(strategy.WeightPriority),
			func(a, b int64) int { return cmp.Compare(b, a) })
	case len(strategy.OrderPriority) > 0:
		return sortStable(order, candidates, place(strategy.OrderPriority), comparePlacing)
	}
	return order
}

// weigh returns a function that returns the weight of a pod: the sum of the weights of the terms that select
// it. An invalid selector selects nothing.
func weigh(terms []pub.UpdatePriorityWeightTerm) func(*corev1.Pod) int64 {
	selectors := make([]labels.Selector, len(terms))
	for i := range terms {
		selector, err := metav1.LabelSelectorAsSelector(&terms[i].MatchSelector)
		if err != nil {
			selector = labels.Nothing()
		}
		selectors[i] = selector
	}

	return func(pod *corev1.Pod) int64 {
		var sum int64
		for i, selector := range selectors {
			if selector.Matches(labels.Set(pod.Labels)) {
				sum += int64(terms[i].Weight)
			}
		}
		return sum
	}
}

// placing is the key by which the order priority sorts a pod.
type placing struct {
	// position is that of the term in the list, from 1; 0 for a pod with none of the keys, which comes first.
	position int
	// number is the number at the end of the label value, without leading zeros. It is a string because a
	// label value may have more digits than an integer.
	number string
}

func comparePlacing(a, b placing) int {
	switch {
	case a.position != b.position:
		return cmp.Compare(a.position, b.position)
	case len(a.number) != len(b.number):
		return cmp.Compare(len(b.number), len(a.number))
	}
	return cmp.Compare(b.number, a.number)
}

func place(terms []pub.UpdatePriorityOrderTerm) func(*corev1.Pod) placing {
	return func(pod *corev1.Pod) placing {
		for i, term := range terms {
			if value, ok := pod.Labels[term.OrderedKey]; ok {
				number := value[len(strings.TrimRight(value, "0123456789")):]
				return placing{position: i + 1, number: strings.TrimLeft(number, "0")}
			}
		}
		return placing{}
	}
}

// sortStable sorts by a key, which is computed once for each pod. Pods with the same key keep their order.
func sortStable[K any](
	order []int, candidates []Candidate, keyOf func(*corev1.Pod) K, compare func(a, b K) int,
) []int {
	type keyed struct {
		key          K
		index, place int
	}

	all := make([]keyed, len(candidates))
	for i, c := range candidates {
		all[i].key = keyOf(c.Pod)
	}
	for place, index := range order {
		all[index].index, all[index].place = index, place
	}

	slices.SortFunc(all, func(a, b keyed) int {
		if order := compare(a.key, b.key); order != 0 {
			return order
		}
		return cmp.Compare(a.place, b.place)
	})

	result := make([]int, len(order))
	for i, k := range all {
		result[i] = k.index
	}

	return result
}
