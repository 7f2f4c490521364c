package rollout

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/afloat-project/afloat/api/pub"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// candidate returns a pod that runs, ready and available since noon; options change it.
func candidate(name string, options ...func(*Candidate)) Candidate {
	c := Candidate{Ready: true, Available: true, Pod: &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(noon), Labels: map[string]string{},
			Annotations: map[string]string{}},
		Spec: corev1.PodSpec{NodeName: "n"},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{
			{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(noon)}}},
	}}
	for _, option := range options {
		option(&c)
	}
	return c
}

func unassigned(c *Candidate)  { c.Pod.Spec.NodeName = "" }
func unavailable(c *Candidate) { c.Available = false }
func notReady(c *Candidate)    { c.Ready, c.Available = false, false }
func waitingForHook(c *Candidate) {
	c.Pod.Labels[pub.LifecycleState] = string(pub.LifecycleStatePreparingUpdate)
}
func inPhase(phase corev1.PodPhase) func(*Candidate) {
	return func(c *Candidate) { c.Pod.Status.Phase = phase }
}
func cost(text string) func(*Candidate) {
	return func(c *Candidate) { c.Pod.Annotations[pub.PodDeletionCost] = text }
}
func rank(rank float64) func(*Candidate) { return func(c *Candidate) { c.Rank = rank } }
func readySinceMinutes(minutes int) func(*Candidate) {
	return func(c *Candidate) {
		c.Pod.Status.Conditions[0].LastTransitionTime = metav1.NewTime(noon.Add(time.Duration(minutes) * time.Minute))
	}
}
func noReadyTime(c *Candidate) { c.Pod.Status.Conditions[0].LastTransitionTime = metav1.Time{} }
func restarted(counts ...int32) func(*Candidate) {
	return func(c *Candidate) {
		for _, count := range counts {
			c.Pod.Status.ContainerStatuses = append(c.Pod.Status.ContainerStatuses, corev1.ContainerStatus{RestartCount: count})
		}
	}
}
func createdAfterMinutes(minutes int) func(*Candidate) {
	return func(c *Candidate) {
		c.Pod.CreationTimestamp = metav1.NewTime(noon.Add(time.Duration(minutes) * time.Minute))
	}
}
func noCreationTime(c *Candidate) { c.Pod.CreationTimestamp = metav1.Time{} }

func labelled(key, value string) func(*Candidate) {
	return func(c *Candidate) { c.Pod.Labels[key] = value }
}
func selecting(key, value string) metav1.LabelSelector {
	return metav1.LabelSelector{MatchLabels: map[string]string{key: value}}
}

func names(candidates []Candidate) []string {
	got := make([]string, 0, len(candidates))
	for _, c := range candidates {
		got = append(got, c.Pod.Name)
	}
	return got
}

type orderCase struct {
	first, second func(*Candidate)
}

// check compares every pair in both directions, with names that would give the opposite order.
func check(t *testing.T, compare func(a, b Candidate) int, tests map[string]orderCase) {
	t.Helper()
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			first, second := candidate("z"), candidate("a")
			if tt.first != nil {
				tt.first(&first)
			}
			if tt.second != nil {
				tt.second(&second)
			}
			if got := compare(first, second); got >= 0 {
				t.Errorf("compared %d, want the first pod first", got)
			}
			if got := compare(second, first); got <= 0 {
				t.Errorf("the other way round %d, want the first pod first", got)
			}
		})
	}
}

// The rows are in the order of the criteria. In each row the pod that goes first would lose by the next
// criterion.
func TestByRemoval(t *testing.T) {
	check(t, ByRemoval, map[string]orderCase{
		"CS-141 not assigned to a node": {unassigned, inPhase(corev1.PodPending)},
		"CS-142 Pending before Unknown": {inPhase(corev1.PodPending),
			both(inPhase(corev1.PodUnknown), notReady)},
		"CS-142 Unknown before Running":                            {inPhase(corev1.PodUnknown), notReady},
		"CS-142 no phase is Pending":                               {inPhase(""), inPhase(corev1.PodUnknown)},
		"CS-143 not available before available, whatever the cost": {unavailable, cost("-100")},
		"CS-143 then not Ready before Ready":                       {notReady, both(unavailable, cost("-100"))},
		"CS-144 the lower deletion cost":                           {cost("-5"), rank(9)},
		"CS-144 an absent cost is 0":                               {nil, both(cost("1"), rank(9))},
		"CS-145 the higher spread rank":                            {rank(2), both(rank(1), readySinceMinutes(5))},
		"CS-146 ready later":                                       {readySinceMinutes(5), restarted(9)},
		"CS-146 no ready time first":                               {noReadyTime, readySinceMinutes(5)},
		"CS-147 the higher maximum of restarts":                    {restarted(0, 7), both(restarted(6, 6), createdAfterMinutes(9))},
		"CS-148 the younger":                                       {createdAfterMinutes(1), nil},
		"CS-148 no creation time first":                            {noCreationTime, createdAfterMinutes(9)},
	})
	t.Run("CS-146 ready times count only between ready pods", func(t *testing.T) {
		a, b := candidate("a", notReady), candidate("b", notReady, readySinceMinutes(9))
		if ByRemoval(a, b) >= 0 {
			t.Error("the ready time of a pod that is not ready counted")
		}
	})
}

func TestByUpdate(t *testing.T) {
	check(t, ByUpdate, map[string]orderCase{
		"CS-180 unassigned":                             {unassigned, inPhase(corev1.PodPending)},
		"CS-180 Pending before Unknown":                 {inPhase(corev1.PodPending), both(inPhase(corev1.PodUnknown), notReady)},
		"CS-180 Unknown before Running":                 {inPhase(corev1.PodUnknown), notReady},
		"CS-180 not Ready":                              {notReady, readySinceMinutes(5)},
		"CS-180 most recently Ready":                    {readySinceMinutes(5), restarted(9)},
		"CS-180 more restarts":                          {restarted(2), createdAfterMinutes(9)},
		"CS-180 younger":                                {createdAfterMinutes(1), nil},
		"CS-180 neither cost nor rank nor availability": {createdAfterMinutes(1), both(both(cost("-9"), rank(9)), unavailable)},
	})
}

func TestSortForUpdate(t *testing.T) {
	weight := &pub.UpdatePriorityStrategy{
		WeightPriority: []pub.UpdatePriorityWeightTerm{{Weight: 5, MatchSelector: selecting("role", "canary")}}}
	leaders := []pub.UpdateScatterTerm{{Key: "role", Value: "leader"}}
	canary, leader := labelled("role", "canary"), labelled("role", "leader")
	tests := map[string]struct {
		candidates []Candidate
		priority   *pub.UpdatePriorityStrategy
		scatter    []pub.UpdateScatterTerm
		want       []string
	}{
		"no candidates": {nil, weight, leaders, []string{}},
		"CS-180 the base order, names last": {
			[]Candidate{candidate("d"), candidate("c"), candidate("b", notReady), candidate("a", readySinceMinutes(1)),
				candidate("e", unassigned)},
			nil, nil, []string{"e", "b", "a", "c", "d"}},
		"CS-181 priority goes over the base order": {
			[]Candidate{candidate("a", unassigned), candidate("b", notReady), candidate("c", canary), candidate("d", canary, notReady)},
			weight, nil, []string{"d", "c", "a", "b"}},
		"CS-188 scatter goes over the priority": {
			[]Candidate{candidate("a", leader), candidate("b", leader), candidate("c"), candidate("d"), candidate("e", canary)},
			weight, leaders, []string{"a", "e", "c", "d", "b"}},
		"CS-187 those in PreparingUpdate before all others, as scattered": {
			[]Candidate{candidate("a", leader), candidate("b", leader, waitingForHook), candidate("c"), candidate("d", waitingForHook),
				candidate("e", unassigned)},
			nil, leaders, []string{"d", "b", "a", "e", "c"}},
		"CS-187 and before those of higher priority": {
			[]Candidate{candidate("a", canary), candidate("b", waitingForHook), candidate("c", canary, waitingForHook)},
			weight, nil, []string{"c", "b", "a"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			before := names(tt.candidates)
			if diff := cmp.Diff(tt.want, names(SortForUpdate(tt.candidates, tt.candidates, tt.priority, tt.scatter))); diff != "" {
				t.Errorf("order of the update (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(before, names(tt.candidates)); diff != "" {
				t.Errorf("the candidates given were moved: %s", diff)
			}
		})
	}
}

func both(a, b func(*Candidate)) func(*Candidate) { return func(c *Candidate) { a(c); b(c) } }

// CS-152, CS-365: equal pods are ordered by their names, so that the result does not depend on the order of
// the input.
func TestEqualPodsAreOrderedByName(t *testing.T) {
	want := []string{"a", "b", "c", "d", "e", "f"}
	random := rand.New(rand.NewPCG(1, 2))
	for name, compare := range map[string]func(a, b Candidate) int{"removal": ByRemoval, "update": ByUpdate} {
		for range 20 {
			var pods []Candidate
			for _, i := range random.Perm(len(want)) {
				pods = append(pods, candidate(want[i]))
			}
			slices.SortFunc(pods, compare)
			if diff := cmp.Diff(want, names(pods)); diff != "" {
				t.Fatalf("%s: order of equal pods (-want +got):\n%s", name, diff)
			}
		}
	}
}

// CS-144: int32; absent or invalid is 0.
func TestDeletionCost(t *testing.T) {
	for text, want := range map[string]int32{
		"": 0, "0": 0, "7": 7, "-7": -7, "2147483647": 2147483647, "-2147483648": -2147483648, "2147483648": 0,
		"+7": 0, "007": 0, "-07": 0, "7.5": 0, "many": 0, " 7": 0,
	} {
		pod := candidate("a", cost(text)).Pod
		if got := DeletionCost(pod); got != want {
			t.Errorf("cost %q is %d, want %d", text, got, want)
		}
	}
	if got := DeletionCost(&corev1.Pod{}); got != 0 {
		t.Errorf("cost of a deletion that is absent: got %d, want 0", got)
	}
}

// SS-213: sidecars are upgraded in the base order, over it the priority: the sum of the weights that match,
// or none of the keys, then the first key that a pod has, then the number at the end of its value.
func TestOrderOfSidecarUpgrades(t *testing.T) {
	check(t, func(a, b Candidate) int {
		pair := []Candidate{a, b}
		if names(SortForSidecars(pair, pair, nil, nil))[0] == a.Pod.Name {
			return -1
		}
		return 1
	}, map[string]orderCase{
		"not assigned":                   {unassigned, inPhase(corev1.PodPending)},
		"Pending before Unknown":         {inPhase(corev1.PodPending), both(inPhase(corev1.PodUnknown), notReady)},
		"Unknown before Running":         {inPhase(corev1.PodUnknown), notReady},
		"not ready":                      {notReady, readySinceMinutes(5)},
		"ready later":                    {readySinceMinutes(5), restarted(9)},
		"the higher maximum of restarts": {restarted(0, 7), both(restarted(6, 6), createdAfterMinutes(9))},
		"the newer":                      {createdAfterMinutes(1), nil},
	})
	weights := &pub.UpdatePriorityStrategy{
		WeightPriority: []pub.UpdatePriorityWeightTerm{{Weight: 5, MatchSelector: selecting("tier", "a")},
			{Weight: 4, MatchSelector: selecting("zone", "x")}, {Weight: 3, MatchSelector: selecting("new", "yes")}}}
	keys := &pub.UpdatePriorityStrategy{OrderPriority: []pub.UpdatePriorityOrderTerm{{OrderedKey: "first"}, {OrderedKey: "second"}}}
	for name, test := range map[string]struct {
		priority *pub.UpdatePriorityStrategy
		pods     []Candidate
		want     []string
	}{
		"sums of weights, then as they are": {weights, []Candidate{candidate("none", notReady), candidate("five", labelled("tier", "a")),
			candidate("seven", both(labelled("zone", "x"), labelled("new", "yes"))),
			candidate("five, not ready", both(labelled("tier", "a"), notReady))},
			[]string{"seven", "five, not ready", "five", "none"}},
		"keys, then numbers, larger first": {keys, []Candidate{candidate("second-3", labelled("second", "x-3")),
			candidate("first-2", labelled("first", "x-2")), candidate("first", labelled("first", "x")),
			candidate("first-10", labelled("first", "x-10")), candidate("both", both(labelled("second", "99"), labelled("first", "x-1"))),
			candidate("neither", labelled("third", "9")), candidate("first, not ready", both(labelled("first", "y"), notReady))},
			[]string{"neither", "first-10", "first-2", "both", "first, not ready", "first", "second-3"}},
	} {
		if diff := cmp.Diff(test.want, names(SortForSidecars(test.pods, test.pods, test.priority, nil))); diff != "" {
			t.Errorf("%s: order of the upgrade (-want +got):\n%s", name, diff)
		}
	}
}
