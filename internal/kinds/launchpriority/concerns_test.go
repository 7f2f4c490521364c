package launchpriority

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/afloat-project/afloat/internal/kinds/launchpriority/launchprioritytest"
)

// ND-135 (part), ND-141: a pod concerns the controller while one of its containers waits for its key, which
// it does with reason CreateContainerConfigError, and not when all are ready, whatever its other conditions
// say.
func TestWhichPodsConcernTheController(t *testing.T) {
	condition := func(of corev1.PodConditionType, status corev1.ConditionStatus) launchprioritytest.PodOption {
		return func(pod *corev1.Pod) {
			pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: of, Status: status})
		}
	}
	for name, tt := range map[string]struct {
		pod  *corev1.Pod
		want bool
	}{
		"launching":                {launchprioritytest.Pod([]int{2, 1}), true},
		"its containers are ready": {launchprioritytest.Pod([]int{2, 1}, condition(corev1.ContainersReady, corev1.ConditionTrue)), false},
		"they are not":             {launchprioritytest.Pod([]int{2, 1}, condition(corev1.ContainersReady, corev1.ConditionFalse)), true},
		"it is scheduled":          {launchprioritytest.Pod([]int{2, 1}, condition(corev1.PodScheduled, corev1.ConditionTrue)), true},
		"scheduled, then ready": {launchprioritytest.Pod([]int{2, 1}, condition(corev1.PodScheduled, corev1.ConditionTrue),
			condition(corev1.ContainersReady, corev1.ConditionTrue)), false},
		"one runs":           {launchprioritytest.Pod([]int{2, 1}, launchprioritytest.Running(true, 0)), true},
		"both run":           {launchprioritytest.Pod([]int{2, 1}, launchprioritytest.Running(true, 0, 1)), false},
		"without priorities": {&corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a"}}}}, false},
		"being deleted": {launchprioritytest.Pod([]int{2, 1}, func(pod *corev1.Pod) { pod.DeletionTimestamp = &metav1.Time{} }),
			false},
		"ended": {launchprioritytest.Pod([]int{2, 1}, func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodSucceeded }),
			false},
		"failed": {launchprioritytest.Pod([]int{2, 1}, func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodFailed }),
			false},
		"with an unknown, no condition": {launchprioritytest.Pod([]int{2, 1}, condition(corev1.ContainersReady, corev1.ConditionUnknown)), true},
	} {
		if got := Concerns(tt.pod); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
