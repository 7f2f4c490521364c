package statefulset

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/afloat-project/afloat/internal/engine/disruption"
	"github.com/afloat-project/afloat/internal/engine/podplan"
)

type protects string

func (p protects) Take(pod *corev1.Pod, _ disruption.Operation) string {
	if strings.HasSuffix(pod.Name, string(p)) {
		return "budget b allows 0 more"
	}
	return ""
}

// TestABudgetOfOnePodHoldsUpNoOtherInParallel: with podManagementPolicy Parallel, a budget of one pod must not keep
// the others from their update (PUB-100).
func TestABudgetOfOnePodHoldsUpNoOtherInParallel(t *testing.T) {
	w := newWorld(t, 4, inParallel, maxUnavailable(1), policy(possible))
	w.at("a:1")
	w.at("a:2")
	all(w, "a:1", 4)
	w.Disruptions = protects("-3")
	plan := Make(w.Snapshot)
	for _, v := range plan.Verdicts {
		if v.Action != podplan.Wait && v.Action != podplan.Keep {
			return
		}
	}
	t.Errorf("nothing moves:\n%s", plan)
}
