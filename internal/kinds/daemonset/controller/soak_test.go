package controller

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/afloat-project/afloat/internal/simulation/simulationtest"
)

// TestSoak plays days of one life with one manager, some of whose requests fail.
func TestSoak(t *testing.T) {
	r := newRun(1)
	r.Apart, r.calm = true, false
	faults := r.Faults
	faults.Die = 0 // a manager that starts again forgets what it should not have kept
	simulationtest.Soak(t, r.Now, func() string {
		r.Faults, r.Others = faults, nil
		r.Writes, r.Recorded = nil, nil // these are the test's
		r.play(1000)
		// A rollout that has taken the pod of a node waits for as long as that is lost (ADS-121), and this manager never forgets that it has.
		for _, node := range r.simulated.nodes() {
			r.Change(nodeKey(node.Name), func(o client.Object) { o.(*corev1.Node).Spec = corev1.NodeSpec{} })
		}
		if r.failure == "" {
			r.finish()
		}
		return r.failure
	})
}
