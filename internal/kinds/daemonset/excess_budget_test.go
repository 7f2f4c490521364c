package daemonset

import "testing"

// A node has two pods, of which one is too many, and a budget holds that one: it takes no place of maxUnavailable (PUB-100).
func TestABudgetOfAnExcessPodHoldsUpNoOther(t *testing.T) {
	w := between(t, 3, maxUnavailable(1))
	w.on("n1 n2 n3", "a:1", gated)
	w.pod("n1", "a:1", gated, born(1))
	w.Disruptions = protects("n1-2")
	if plan := w.plan(); len(w.words(plan)) == 0 {
		t.Errorf("nothing moves:\n%s", plan)
	}
}
