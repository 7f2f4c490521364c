package slim

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/inplace"
)

// ND-057: the daemon's cache keeps what the daemon reads, with the same hashes, and nothing else.
func TestNodePod(t *testing.T) {
	ref := corev1.EnvVar{Name: "V",
		ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels['v']"}}}
	hook := &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 1}}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", Labels: map[string]string{"v": "1"}, ManagedFields: []metav1.ManagedFieldsEntry{{}},
			Annotations: map[string]string{"a": "b", corev1.LastAppliedConfigAnnotation: "{}"}},
		Spec: corev1.PodSpec{NodeName: "n", RestartPolicy: corev1.RestartPolicyNever, Volumes: []corev1.Volume{{}},
			Containers: []corev1.Container{
				{Name: "a", Image: "i", Command: []string{"x"}, Env: []corev1.EnvVar{{Name: "SECRET", Value: "s"}, ref},
					Ports: []corev1.ContainerPort{{Name: "web"}}, Lifecycle: &corev1.Lifecycle{PreStop: hook, PostStart: hook}},
				{Name: "b", Env: []corev1.EnvVar{ref, {Name: "V", Value: "literal"}}},
			}},
		Status: corev1.PodStatus{PodIP: "10.0.0.1", HostIP: "10.0.0.2", Phase: corev1.PodRunning,
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady}, {Type: pub.InPlaceUpdateReady}},
			ContainerStatuses: []corev1.ContainerStatus{{Name: "a", ContainerID: "c://1", RestartCount: 2, Image: "i",
				State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}}}}},
	}
	before := pod.DeepCopy()
	got, err := NodePod(pod)
	want := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", Labels: map[string]string{"v": "1"}, Annotations: map[string]string{"a": "b"}},
		Spec: corev1.PodSpec{NodeName: "n", RestartPolicy: corev1.RestartPolicyNever, InitContainers: []corev1.Container{},
			Containers: []corev1.Container{
				{Name: "a", Image: "i", Env: []corev1.EnvVar{ref}, Ports: []corev1.ContainerPort{{Name: "web"}},
					Lifecycle: &corev1.Lifecycle{PreStop: hook}},
				{Name: "b", Env: []corev1.EnvVar{ref, {Name: "V", Value: "literal"}}},
			}},
		Status: corev1.PodStatus{PodIP: "10.0.0.1", Phase: corev1.PodRunning,
			Conditions:            []corev1.PodCondition{{Type: pub.InPlaceUpdateReady}},
			InitContainerStatuses: []corev1.ContainerStatus{},
			ContainerStatuses: []corev1.ContainerStatus{{Name: "a", ContainerID: "c://1", RestartCount: 2,
				State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}},
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Error(err, diff)
	}
	for i := range before.Spec.Containers {
		if inplace.EnvHash(before, &before.Spec.Containers[i]) != inplace.EnvHash(got.(*corev1.Pod),
			&got.(*corev1.Pod).Spec.Containers[i]) {
			t.Errorf("the hash of container %s changed", before.Spec.Containers[i].Name)
		}
	}
}
