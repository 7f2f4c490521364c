package podapply

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/afloat-project/afloat/internal/engine/podplan"
)

// What is kept of updates that are under way goes with their pods, and what waits goes with the workload
// (CS-238 (part)).
func TestMetersForgetPodsThatGo(t *testing.T) {
	m, name := NewMeters("cloneset"), types.NamespacedName{Namespace: "shop", Name: "web"}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u"}}
	begun := &podplan.Verdict{Pod: pod, Action: podplan.UpdateInPlace, Reason: podplan.ReasonOutdated}
	held := &podplan.Verdict{Pod: pod, Action: podplan.Wait, Reason: podplan.ReasonPaused}
	m.Observe(name, &podplan.Plan{Verdicts: []*podplan.Verdict{begun}}, Outcome{Done: []*podplan.Verdict{begun}})
	m.Observe(name, &podplan.Plan{Verdicts: []*podplan.Verdict{held}}, Outcome{})
	if n := testutil.CollectAndCount(m.waiting); n != 1 {
		t.Errorf("reasons that pods wait for: got %d, want 1", n)
	}
	if n := len(m.workloads[name].started); n != 1 {
		t.Errorf("updates under way: got %d, want 1", n)
	}
	m.Observe(name, &podplan.Plan{}, Outcome{})
	if n := testutil.CollectAndCount(m.waiting); n != 0 {
		t.Errorf("the pod is gone: %d reasons to wait, want 0", n)
	}
	if n := len(m.workloads[name].started); n != 0 {
		t.Errorf("the pod is gone: %d updates under way, want 0", n)
	}
	m.Observe(name, &podplan.Plan{Verdicts: []*podplan.Verdict{held}}, Outcome{})
	m.Forget(name)
	if n := testutil.CollectAndCount(m.waiting); n != 0 {
		t.Errorf("the workload is gone: %d reasons to wait, want 0", n)
	}
	if n := len(m.workloads); n != 0 {
		t.Errorf("the workload is gone: %d workloads are kept, want 0", n)
	}
}
