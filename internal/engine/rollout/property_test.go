package rollout

import (
	"cmp"
	"fmt"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/afloat-project/afloat/api/pub"
)

// workload draws all pods of a workload, each with its own name, in any order.
func workload(t *rapid.T) []Candidate {
	phases := []corev1.PodPhase{corev1.PodRunning, corev1.PodRunning, corev1.PodPending, corev1.PodUnknown, ""}
	var pods []Candidate
	for i := range rapid.IntRange(0, 25).Draw(t, "pods") {
		c := candidate(fmt.Sprintf("pod-%02d", i), inPhase(rapid.SampledFrom(phases).Draw(t, "phase")),
			readySinceMinutes(rapid.IntRange(0, 2).Draw(t, "ready")), createdAfterMinutes(rapid.IntRange(0, 2).Draw(t, "created")),
			restarted(rapid.Int32Range(0, 2).Draw(t, "restarts")),
			on(rapid.SampledFrom([]string{"", "x-1", "x-2", "y-1", "lost"}).Draw(t, "node")))
		c.Ready, c.Available = rapid.Bool().Draw(t, "is ready"), rapid.Bool().Draw(t, "is available")
		for _, key := range []string{"role", "number"} {
			if value := rapid.SampledFrom([]string{"none", "", "m", "n", "p-1", "p-10", "2"}).Draw(t, key); value != "none" {
				c.Pod.Labels[key] = value
			}
		}
		if rapid.IntRange(0, 5).Draw(t, "hook") == 0 {
			waitingForHook(&c)
		}
		pods = append(pods, c)
	}
	return shuffled(t, pods)
}

func shuffled(t *rapid.T, pods []Candidate) []Candidate {
	return rapid.Permutation(pods).Draw(t, "order")
}

func anyPriority(t *rapid.T) *pub.UpdatePriorityStrategy {
	values := rapid.SampledFrom([]string{"", "m", "n", "p-1", "not a value!"})
	switch rapid.IntRange(0, 2).Draw(t, "priority") {
	case 0:
		return nil
	case 1:
		return keys(rapid.SliceOfN(rapid.SampledFrom([]string{"role", "number", "other"}), 1, 3).Draw(t, "keys")...)
	}
	return weights(rapid.SliceOfN(rapid.Custom(func(t *rapid.T) pub.UpdatePriorityWeightTerm {
		return pub.UpdatePriorityWeightTerm{Weight: rapid.Int32Range(0, 3).Draw(t, "weight"), MatchSelector: metav1.LabelSelector{
			MatchExpressions: []metav1.LabelSelectorRequirement{{
				Key: rapid.SampledFrom([]string{"role", "number", "no key!"}).Draw(t, "key"),
				Operator: rapid.SampledFrom([]metav1.LabelSelectorOperator{"In", "NotIn", "Exists", "DoesNotExist", "Near"}).Draw(t,
					"operator"),
				Values: rapid.SliceOfN(values, 0, 2).Draw(t, "values")}}}}
	}), 1, 4).Draw(t, "terms")...)
}

func anyScatter(t *rapid.T) []pub.UpdateScatterTerm {
	return roles(rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"", "m", "n", "p-1", "q"}), 0, 3, rapid.ID).Draw(t, "scatter")...)
}

// CS-180, CS-365: no pod is lost or doubled, and the order of the input makes no difference.
func TestAnyUpdateOrderIsAPermutationAndDeterministic(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := workload(t)
		candidates := all[:rapid.IntRange(0, len(all)).Draw(t, "candidates")]
		priority, scatter := anyPriority(t), anyScatter(t)
		got := names(SortForUpdate(candidates, all, priority, scatter))
		if diff := gocmp.Diff(slices.Sorted(slices.Values(names(candidates))), slices.Sorted(slices.Values(got))); diff != "" {
			t.Fatalf("the order is no permutation of the candidates (-candidates +order):\n%s", diff)
		}
		if diff := gocmp.Diff(got, names(SortForUpdate(shuffled(t, candidates), shuffled(t, all), priority, scatter))); diff != "" {
			t.Fatalf("the order depends on that in which pods are found (-one +other):\n%s", diff)
		}
	})
}

// CS-187, CS-181, CS-182, CS-180: without scatter, each pod comes before the next by the first rule in which
// the two differ.
func TestAnyUpdateOrderWithoutScatterHoldsThePriority(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := workload(t)
		priority := anyPriority(t)
		got := SortForUpdate(all, all, priority, nil)
		for i := range len(got) - 1 {
			a, b := got[i], got[i+1]
			order := cmp.Or(compareBool(!preparingUpdate(a.Pod), !preparingUpdate(b.Pod)), comparePriority(priority, a.Pod, b.Pod),
				ByUpdate(a, b))
			if order >= 0 {
				t.Fatalf("%s comes before %s, against the order, in %v", a.Pod.Name, b.Pod.Name, names(got))
			}
		}
	})
}

// comparePriority is the rule in another form, for two pods.
func comparePriority(priority *pub.UpdatePriorityStrategy, a, b *corev1.Pod) int {
	if priority == nil {
		return 0
	}
	weight := func(pod *corev1.Pod) (sum int32) {
		for _, term := range priority.WeightPriority {
			e := term.MatchSelector.MatchExpressions[0]
			value, has := pod.Labels[e.Key]
			in := has && slices.Contains(e.Values, value)
			usable := e.Key != "no key!" && !slices.Contains(e.Values, "not a value!") && e.Operator != "Near"
			switch e.Operator {
			case "In", "NotIn":
				usable = usable && len(e.Values) > 0
			default:
				usable = usable && len(e.Values) == 0
			}
			if usable && (e.Operator == "In" && in || e.Operator == "NotIn" && !in || e.Operator == "Exists" && has ||
				e.Operator == "DoesNotExist" && !has) {
				sum += term.Weight
			}
		}
		return sum
	}
	position := func(pod *corev1.Pod) (position, number int) {
		numbers := map[string]int{"p-1": 1, "p-10": 10, "2": 2}
		for i, term := range priority.OrderPriority {
			if value, ok := pod.Labels[term.OrderedKey]; ok {
				return i, numbers[value]
			}
		}
		return -1, 0
	}
	positionA, numberA := position(a)
	positionB, numberB := position(b)
	return cmp.Or(cmp.Compare(weight(b), weight(a)), cmp.Compare(positionA, positionB), cmp.Compare(numberB, numberA))
}

// CS-184, CS-185: one term moves matching pods between the others, keeps the order of both, and puts a
// matching pod at the very end.
func TestAnyScatterKeepsTheOrderOfEither(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := workload(t)
		candidates := all[:rapid.IntRange(0, len(all)).Draw(t, "candidates")]
		got := Scatter(candidates, all, roles("m")...)
		matches := func(c Candidate) bool { return c.Pod.Labels["role"] == "m" }
		part := func(pods []Candidate, in bool) []Candidate {
			return slices.DeleteFunc(slices.Clone(pods), func(c Candidate) bool { return matches(c) != in })
		}
		for _, in := range []bool{true, false} {
			if diff := gocmp.Diff(names(part(candidates, in)), names(part(got, in))); diff != "" {
				t.Fatalf("order of the pods that match (%t) (-want +got):\n%s", in, diff)
			}
		}
		if len(part(got, true)) > 1 && len(part(got, false)) > 1 && !matches(got[len(got)-1]) {
			t.Fatalf("no matching pod at the end: %s", letters(got))
		}
	})
}

// CS-184: a matching pod stands at either end, and the first groups have the sizes that rounding gives.
func TestAnyScatterIsEven(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m, u := rapid.IntRange(2, 30).Draw(t, "matching"), rapid.IntRange(2, 60).Draw(t, "others")
		got := letters(Scatter(row(string(slices.Repeat([]byte("m"), m))+string(slices.Repeat([]byte("."), u))), nil, roles("m")...))
		if got[0] != 'm' {
			t.Fatalf("no matching pod stands first: %s", got)
		}
		if got[len(got)-1] != 'm' {
			t.Fatalf("no matching pod stands last: %s", got)
		}
		groups := min(m-1, u)
		wantM, wantU := (2*(m-1)+groups)/(2*groups), (2*u+groups)/(2*groups)
		first := slices.Repeat([]byte("m"), wantM)
		first = append(first, slices.Repeat([]byte("."), wantU)...)
		if got[:len(first)] != string(first) {
			t.Fatalf("groups of %d and %d: %s", wantM, wantU, got)
		}
	})
}

// CS-150, CS-151, CS-152: the ranks do not depend on the order of the input; those of a node with k pods are
// k-1 to 0.
func TestAnyRank(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pods := workload(t)
		topologyKeys := rapid.SliceOfN(rapid.SampledFrom([]string{"zone", corev1.LabelHostname, "rack"}), 0, 3).Draw(t, "keys")
		Rank(pods, topologyKeys, zoned)
		again := shuffled(t, pods)
		Rank(again, topologyKeys, zoned)
		if diff := gocmp.Diff(ranks(pods), ranks(again)); diff != "" {
			t.Fatalf("ranks depend on the order in which pods are found (-one +other):\n%s", diff)
		}
		if len(topologyKeys) > 0 {
			return
		}
		stacks := map[string][]float64{}
		for _, c := range pods {
			if node := c.Pod.Spec.NodeName; node != "" {
				stacks[node] = append(stacks[node], c.Rank)
			}
		}
		for node, stack := range stacks {
			slices.Sort(stack)
			for i, rank := range stack {
				if rank != float64(i) {
					t.Fatalf("ranks on node %s: got %v, want 0, 1 and so on", node, stack)
				}
			}
		}
	})
}
