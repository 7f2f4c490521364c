package slim

import (
	"strings"
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
			Annotations: map[string]string{"a": "b", pub.RuntimeContainersMeta: "{}", corev1.LastAppliedConfigAnnotation: "{}"}},
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
		ObjectMeta: metav1.ObjectMeta{Name: "p", Labels: map[string]string{"v": "1"},
			Annotations: map[string]string{pub.RuntimeContainersMeta: "{}"}},
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
	if err != nil {
		t.Errorf("slimming the pod: %v", err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("what the daemon keeps of a pod (-want +got):\n%s", diff)
	}
	for i := range before.Spec.Containers {
		if inplace.EnvHash(before, &before.Spec.Containers[i]) != inplace.EnvHash(got.(*corev1.Pod),
			&got.(*corev1.Pod).Spec.Containers[i]) {
			t.Errorf("the hash of container %s changed", before.Spec.Containers[i].Name)
		}
	}
}

// Whatever somebody puts into a pod, what the daemon keeps of it is small, and it still knows the pod; a pod
// that anybody would write is kept with its hook.
func TestNodePodIsBounded(t *testing.T) {
	large, hook := strings.Repeat("x", 1<<20), func(command string) *corev1.Lifecycle {
		return &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{command}}}}
	}
	for name, tt := range map[string]struct {
		change     func(*corev1.Pod)
		containers int
		hook       bool
	}{
		"a hook":       {func(p *corev1.Pod) { p.Spec.Containers[0].Lifecycle = hook("sleep 5") }, 1, true},
		"a large hook": {func(p *corev1.Pod) { p.Spec.Containers[0].Lifecycle = hook(large) }, 1, false},
		"annotations":  {func(p *corev1.Pod) { p.Annotations = map[string]string{"a": large} }, 1, true},
		"ours":         {func(p *corev1.Pod) { p.Annotations = map[string]string{pub.InPlaceUpdateState: large} }, 0, false},
		"labels":       {func(p *corev1.Pod) { p.Labels = map[string]string{"a": large} }, 1, true},
		"an image":     {func(p *corev1.Pod) { p.Spec.Containers[0].Image = large }, 0, false},
		"containers":   {func(p *corev1.Pod) { p.Spec.InitContainers = make([]corev1.Container, 1000) }, 0, false},
		"an owner":     {func(p *corev1.Pod) { p.OwnerReferences = []metav1.OwnerReference{{Name: large}} }, 0, false},
		"readiness gates": {func(p *corev1.Pod) {
			p.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: corev1.PodConditionType(large)}}
		}, 0, false},
		"variables": {func(p *corev1.Pod) { p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "A", Value: large}} }, 1, true},
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "u"}, Spec: corev1.PodSpec{NodeName: "n",
			Containers: []corev1.Container{{Name: "a"}}}}
		tt.change(pod)
		_, err := NodePod(pod)
		if err != nil {
			t.Errorf("%s: slimming the pod: %v", name, err)
		}
		if n := pod.Size(); n > mostOfPod {
			t.Errorf("%s: the pod has %d bytes, want %d at most", name, n, mostOfPod)
		}
		if n := len(pod.Spec.Containers); n != tt.containers {
			t.Errorf("%s: containers that are kept: got %d, want %d", name, n, tt.containers)
		}
		if hook := HasHook(pod, "a"); hook != tt.hook {
			t.Errorf("%s: the hook is known: got %t, want %t", name, hook, tt.hook)
		}
		if pod.UID != "u" {
			t.Errorf("%s: UID of the pod: got %q, want \"u\"", name, pod.UID)
		}
	}
}
