package broadcastjob

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// BenchmarkPlan measures a plan for a job on 5,000 nodes of which each has a pod that runs: what an event of
// one pod costs at most.
func BenchmarkPlan(b *testing.B) {
	w := newWorld(&testing.T{}, 5000)
	for i := range 5000 {
		w.pod(fmt.Sprint("n", i+1), corev1.PodRunning)
	}
	b.ReportAllocs()
	for b.Loop() {
		Make(w.Snapshot)
	}
}
