package workloadspread

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/afloat-project/afloat/internal/kinds/workloadspread/workloadspreadtest"
)

func TestCosts(t *testing.T) {
	many := func(n int) (pods []*corev1.Pod) {
		for i := range n {
			pods = append(pods, workloadspreadtest.Pod(string(rune('a'+i)), workloadspreadtest.Ready(-10)))
		}
		return pods
	}
	repeat := func(cost, n int) []int { return slices.Repeat([]int{cost}, n) }
	for name, test := range map[string]struct {
		pods   int
		quota  int32
		index  int
		former bool
		want   []int
	}{
		"WS-165 within the quota, first":            {10, 10, 0, false, repeat(300, 10)},
		"WS-165 within the quota, second":           {10, 10, 1, false, repeat(200, 10)},
		"WS-165 unlimited, third":                   {10, Unlimited, 2, false, repeat(100, 10)},
		"WS-165 beyond the quota, first":            {20, 10, 0, false, append(repeat(-100, 10), repeat(300, 10)...)},
		"WS-165 beyond the quota, second":           {20, 10, 1, false, append(repeat(-200, 10), repeat(200, 10)...)},
		"WS-161 a quota of zero":                    {2, 0, 0, false, repeat(-100, 2)},
		"WS-163 former versions are mirrored":       {3, 2, 0, true, []int{-300, 100, 100}},
		"WS-163 the last subset goes first":         {1, Unlimited, 2, true, repeat(300, 1)},
		"WS-163 the middle one stays in the middle": {1, 1, 1, true, repeat(200, 1)},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, costs(many(test.pods), test.quota, test.index, 3, !test.former)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	if got := unmatchedCost(3); got != -400 { // WS-164
		t.Errorf("cost of a pod in no subset: got %d, want -400", got)
	}
}

// WS-162: each pod goes before those behind it.
func TestRemovalOrder(t *testing.T) {
	want := []*corev1.Pod{
		workloadspreadtest.Pod("unassigned", workloadspreadtest.Homeless), // though its name is behind others
		workloadspreadtest.Pod("pending", workloadspreadtest.Phase(corev1.PodPending)),
		workloadspreadtest.Pod("unknown", workloadspreadtest.Phase(corev1.PodUnknown)),
		workloadspreadtest.Pod("not-ready", workloadspreadtest.Restarted(0)),
		workloadspreadtest.Pod("just-ready", workloadspreadtest.Ready(-1), workloadspreadtest.Restarted(0)),
		workloadspreadtest.Pod("ready-restarted", workloadspreadtest.Ready(-60), workloadspreadtest.Restarted(3)),
		workloadspreadtest.Pod("ready-newer", workloadspreadtest.Ready(-60), workloadspreadtest.Restarted(1), workloadspreadtest.Born(-100)),
		workloadspreadtest.Pod("a-ready-older", workloadspreadtest.Ready(-60), workloadspreadtest.Restarted(1), workloadspreadtest.Born(-200)),
		workloadspreadtest.Pod("b-ready-older", workloadspreadtest.Ready(-60), workloadspreadtest.Restarted(1), workloadspreadtest.Born(-200)),
		workloadspreadtest.Pod("ready-for-long", workloadspreadtest.Ready(-3600), workloadspreadtest.Restarted(9),
			workloadspreadtest.Cost("-1000")),
	}
	for shift := range want { // WS-162: stable, whatever order they come in
		given := slices.Concat(want[shift:], want[:shift])
		slices.Reverse(given)
		var got []string
		for _, i := range removalOrder(given) {
			got = append(got, given[i].Name)
		}
		var names []string
		for _, pod := range want {
			names = append(names, pod.Name)
		}
		if diff := cmp.Diff(names, got); diff != "" {
			t.Fatalf("order of the pods (-want +got):\n%s", diff)
		}
	}
}
