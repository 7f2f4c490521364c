package statefulset

import (
	"testing"

	"github.com/afloat-project/afloat/internal/engine/podplan"
)

// As TestABudgetOfOnePodHoldsUpNoOtherInParallel, for pods that lack a volume of a new claim template.
func TestABudgetOfOnePodThatLacksAVolumeHoldsUpNoOther(t *testing.T) {
	w := newWorld(t, 3, inParallel, maxUnavailable(1), policy(possible))
	w.at("a:1")
	w.templates(`{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}}`)
	all(w, "a:1", 3)
	for _, pod := range w.Pods {
		pod.Spec.Volumes = nil
	}
	plan := Make(w.Snapshot)
	count := func(plan *Plan) (n int) {
		for _, v := range plan.Verdicts {
			if v.Action == podplan.Delete {
				n++
			}
		}
		return n
	}
	if count(plan) != 1 {
		t.Skipf("world is not as expected:\n%s", plan)
	}
	w.Disruptions = protects("-2")
	if plan = Make(w.Snapshot); count(plan) != 1 {
		t.Errorf("nothing moves:\n%s", plan)
	}
}
