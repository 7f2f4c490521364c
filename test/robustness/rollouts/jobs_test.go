package rollouts

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/afloat-project/afloat/api/pub"
)

// Pods of jobs end, some after a while; ephemeral containers run, and then end.
func TestWhatBecomesOfPodsByAndBy(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	begin := metav1.NewTime(now)
	job := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{pub.BroadcastJobName: "job", "lasts": "long"}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, StartTime: &begin}}
	if got := finished(&job, now.Add(20*time.Second)); got != "" {
		t.Errorf("a pod that lasts long ends early: %s", got)
	}
	if got := finished(&job, now.Add(30*time.Second)); !strings.Contains(got, "Succeeded") {
		t.Errorf("a pod that lasts long does not end: %s", got)
	}

	pod := corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodRunning}}
	if got := finished(&pod, now); got != "" {
		t.Errorf("a usual pod becomes %s", got)
	}
	pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "look"}}}
	for _, step := range []struct {
		after time.Duration
		want  string
	}{{0, "running"}, {time.Second, ""}, {10 * time.Second, "terminated"}, {20 * time.Second, ""}} {
		got := finished(&pod, now.Add(step.after))
		if (got == "") != (step.want == "") || !strings.Contains(got, step.want) {
			t.Errorf("after %s: %q, want %q", step.after, got, step.want)
		}
		if got == "" {
			continue
		}
		pod.Status.EphemeralContainerStatuses = nil
		if err := json.Unmarshal([]byte(got), &pod.Status); err != nil {
			t.Fatal(err)
		}
	}
}
