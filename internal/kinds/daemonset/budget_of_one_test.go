package daemonset

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/afloat-project/afloat/internal/engine/disruption"
)

// protects is a budget that covers one pod alone, and allows nothing.
type protects string

func (p protects) Take(pod *corev1.Pod, _ disruption.Operation) string {
	if pod.Name == "agent-"+string(p) {
		return "budget b allows 0 more"
	}
	return ""
}

// TestABudgetOfOnePodHoldsUpNoOther: a budget that protects the pod of one node must not keep the others from
// their update for ever (PUB-100: "a pod that is refused waits, and the others go on").
func TestABudgetOfOnePodHoldsUpNoOther(t *testing.T) {
	for name, options := range map[string][]option{
		"recreated":      {maxUnavailable(1)},
		"in place":       {maxUnavailable(1), inPlace},
		"burst replicas": {maxUnavailable(3), burst(1)},
	} {
		t.Run(name, func(t *testing.T) {
			w := between(t, 3, options...)
			w.on("n1 n2 n3", "a:1", gated)
			w.Disruptions = protects("n3")
			if plan := w.plan(); len(w.words(plan)) == 0 {
				t.Errorf("nothing moves:\n%s", plan)
			}
		})
	}
}

// TestABudgetOfOneSpecifiedPod is the same for pods that are specified for deletion.
func TestABudgetOfOneSpecifiedPod(t *testing.T) {
	w := newWorld(t, 3, maxUnavailable(1))
	w.at("a:1")
	w.on("n1 n2 n3", "a:1", specified)
	w.Disruptions = protects("n1")
	if plan := w.plan(); len(w.words(plan)) == 0 {
		t.Errorf("nothing moves:\n%s", plan)
	}
}
