package controller

import (
	"flag"
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/util/intstr"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/kinds/workloadspread"
	"github.com/afloat-project/afloat/internal/kinds/workloadspread/workloadspreadtest"
	"github.com/afloat-project/afloat/internal/simulation/simulationtest"
)

var update = flag.Bool("update", false, "write the golden narratives")

// tale is a story whose every plan is written down.
type tale struct {
	*simulated
	t    *testing.T
	text simulationtest.Narrative
}

func (n *tale) note(plan *workloadspread.Plan) {
	n.text.Plan(n.Now(), plan.String())
}

// then lets the user do something and everything come to rest.
func (n *tale) then(title string, do func()) {
	n.t.Helper()
	fmt.Fprintf(&n.text, "\n# %s\n", title)
	if do != nil {
		do()
	}
	if err := n.Settle(500); err != nil {
		n.t.Fatal(err)
	}
	fmt.Fprintf(&n.text, "\nAt rest:\n")
	for _, pod := range n.active() {
		placed, _ := pub.ParsePlacement(pod.Annotations)
		fmt.Fprintf(&n.text, "%s in %q on %s, cost %s\n", pod.Name, placed.Subset, pod.Spec.NodeName, pod.Annotations[pub.PodDeletionCost])
	}
}

// TestNarratives plays stories and compares every plan, as printed, with a golden file; -update writes them.
func TestNarratives(t *testing.T) {
	abc := func() *appsv1beta1.WorkloadSpread {
		return workloadspreadtest.Spread(workloadspreadtest.Subset("a", 2, workloadspreadtest.Zone("a")),
			workloadspreadtest.Subset("b", 1, workloadspreadtest.Zone("b")), workloadspreadtest.Subset("c", nil, workloadspreadtest.Zone("c")))
	}
	for name, tt := range map[string]struct {
		spread *appsv1beta1.WorkloadSpread
		pods   int32
		play   func(*tale)
	}{
		"scaling out and in": {abc(), 0, func(n *tale) { // WS-002, WS-161
			n.then("four pods", func() { n.scale(4) })
			n.then("two pods", func() { n.scale(2) })
		}},
		"pods that were there before": {abc(), 4, func(n *tale) { // WS-141 to WS-145
			n.then("two pods more", func() { n.scale(6) })
		}},
		"a rolling update fills the subsets anew": {abc(), 0, func(n *tale) { // WS-080, WS-163
			n.then("three pods", func() { n.scale(3) })
			n.then("the next version", func() { n.rollOut("v2") })
		}},
		"a quota gets smaller": {abc(), 0, func(n *tale) { // WS-004, WS-161
			n.then("three pods", func() { n.scale(3) })
			n.then("one pod in a", func() {
				n.Edit(func(s *appsv1beta1.WorkloadSpread) {
					s.Spec.Subsets[0].MaxReplicas = &intstr.IntOrString{IntVal: 1}
				})
			})
			n.then("two pods", func() { n.scale(2) })
		}},
		"WS-198 percentages": {workloadspreadtest.Spread(workloadspreadtest.Subset("a", "50%", workloadspreadtest.Zone("a")),
			workloadspreadtest.Subset("b", "50%", workloadspreadtest.Zone("b"))), 0, func(n *tale) {
			n.then("six pods", func() { n.scale(6) })
			n.then("two pods", func() { n.scale(2) })
		}},
		"a zone that is full": {workloadspreadtest.Adaptive(abc(), 60), 0, func(n *tale) { // WS-171 to WS-175
			n.then("a pod, and no room in a", func() { n.full["a"] = true; n.scale(1) })
			n.then("there is room again", func() { n.full["a"] = false; n.scale(2) })
		}},
		"a pod that never comes": {abc(), 0, func(n *tale) { // WS-152
			n.then("one of two pods is refused after it was admitted", func() { n.scale(2); n.workload(); n.coming = nil })
		}},
	} {
		t.Run(name, func(t *testing.T) {
			n := &tale{t: t, simulated: simulate(7, tt.spread, tt.pods)}
			n.told = n.note
			n.then(fmt.Sprintf("a WorkloadSpread of %d pods", tt.pods), nil)
			tt.play(n)
			simulationtest.Golden(t, name, n.text.String(), n.Recorded, *update)
		})
	}
}
