//go:build integration

package integration

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/afloat-project/afloat/api/pub"
)

// launched returns a pod whose containers a, b... have these launch priorities; empty means none.
func launched(name string, priorities ...string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	for i, priority := range priorities {
		container := corev1.Container{Name: string(rune('a' + i)), Image: "i"}
		if priority != "" {
			container.Env = []corev1.EnvVar{{Name: pub.LaunchPriorityEnv, Value: priority}}
		}
		pod.Spec.Containers = append(pod.Spec.Containers, container)
	}
	return pod
}

func remove(t *testing.T, object client.Object) {
	t.Helper()
	if err := kube.Delete(context.WithoutCancel(t.Context()), object, client.GracePeriodSeconds(0)); client.IgnoreNotFound(err) != nil {
		t.Errorf("deleting %s: %v", object.GetName(), err)
	}
}

// barrierIs waits until the barrier ConfigMap belongs to the pod and has exactly these keys.
func barrierIs(t *testing.T, pod *corev1.Pod, keys ...string) *corev1.ConfigMap {
	t.Helper()
	barrier := &corev1.ConfigMap{}
	err := wait(func() error {
		if err := kube.Get(t.Context(), types.NamespacedName{Namespace: "default", Name: pod.Name + "-barrier"}, barrier); err != nil {
			return err
		}
		got := slices.Sorted(maps.Keys(barrier.Data))
		if owner := barrier.OwnerReferences; !slices.Equal(got, keys) || len(owner) != 1 || owner[0].UID != pod.UID ||
			owner[0].Controller != nil || barrier.Labels[pub.LaunchBarrier] != "true" {
			return fmt.Errorf("keys %v, owners %+v, labels %v", got, owner, barrier.Labels)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return barrier
}

// state makes the named containers ready and all others waiting.
func state(t *testing.T, pod *corev1.Pod, ready string) {
	t.Helper()
	if err := kube.Get(t.Context(), client.ObjectKeyFromObject(pod), pod); err != nil {
		t.Fatal(err)
	}
	pod.Status.Phase, pod.Status.ContainerStatuses = corev1.PodRunning, nil
	for _, container := range pod.Spec.Containers {
		status := corev1.ContainerStatus{Name: container.Name,
			State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CreateContainerConfigError"}}}
		if strings.Contains(ready, container.Name) {
			status.Ready, status.State = true, corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
		}
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, status)
	}
	if err := kube.Status().Update(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
}

// ND-123, ND-125 to ND-133, ND-196, OPS-067: pods are changed at creation, and those without launch priority
// are not.
func TestLaunchPriorityAtCreation(t *testing.T) {
	references := func(pod *corev1.Pod) (all []string) {
		for _, container := range pod.Spec.Containers {
			for _, env := range container.Env {
				if env.Name == pub.ContainerBarrierEnv {
					all = append(all, env.ValueFrom.ConfigMapKeyRef.Name+"/"+env.ValueFrom.ConfigMapKeyRef.Key)
				}
			}
		}
		return all
	}
	ordered := launched("", "", "")
	ordered.GenerateName, ordered.Annotations = "ordered-", map[string]string{pub.LaunchPriority: pub.LaunchOrdered}
	for name, test := range map[string]struct {
		pod  *corev1.Pod
		keys []string
	}{
		"by environment": {launched("launch-env", "", "5"), []string{"p_0", "p_5"}},
		"a name is made": {ordered, []string{"p_0", "p_-1"}},
		"equal":          {launched("launch-equal", "5", "5"), nil},
		"none":           {launched("launch-none", "", ""), nil},
		"one container":  {launched("launch-one", "high"), nil},
	} {
		t.Run(name, func(t *testing.T) {
			if err := kube.Create(t.Context(), test.pod); err != nil {
				t.Fatal(err)
			}
			defer remove(t, test.pod)
			var want []string
			for _, key := range test.keys {
				want = append(want, test.pod.Name+"-barrier/"+key)
			}
			if got := references(test.pod); !slices.Equal(got, want) {
				t.Errorf("barriers of pod %s: got %q, want %q", test.pod.Name, got, want)
			}
			if !strings.HasPrefix(test.pod.Name, test.pod.GenerateName) {
				t.Errorf("name of the pod: got %s, want it to begin with %s", test.pod.Name, test.pod.GenerateName)
			}
		})
	}
	err := kube.Create(t.Context(), launched("launch-bad", "", "high"))
	if text := fieldsOf(t, err)["spec.containers[1].env[0].value"]; !strings.Contains(text, `"high"`) {
		t.Errorf("ND-128: error of the priority: got %q, want the value in it", text)
	}
	if !strings.Contains(err.Error(), "container b") {
		t.Errorf("ND-128: got %v, want the container in it", err)
	}
	if err := kube.Create(t.Context(), launched(strings.Repeat("l", 250), "", "5")); !names(fieldsOf(t, err), "metadata.name") {
		t.Errorf("ND-133: %v", err)
	}
}

// ND-135 to ND-138, ND-142: keys are written in the order of priorities, once, and again if they are lost.
func TestLaunchPriorityReleasesInOrder(t *testing.T) {
	pod := launched("launch-order", "", "5", "-5")
	if err := kube.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	defer remove(t, pod)
	done := func() bool {
		if err := kube.Get(t.Context(), client.ObjectKeyFromObject(pod), pod); err != nil {
			t.Fatal(err)
		}
		return pod.Annotations[pub.LaunchCompleted] == "true"
	}
	barrierIs(t, pod, "p_5")
	state(t, pod, "b")
	barrier := barrierIs(t, pod, "p_0", "p_5")
	if err := kube.Delete(t.Context(), barrier); err != nil {
		t.Fatal(err)
	}
	if again := barrierIs(t, pod, "p_0", "p_5"); again.UID == barrier.UID {
		t.Errorf("the barrier that was deleted is still there: %+v", again)
	}
	if done() {
		t.Error("the launch is completed although a container has not started")
	}
	state(t, pod, "ab")
	barrier = barrierIs(t, pod, "p_-5", "p_0", "p_5")
	if err := wait(func() error {
		if !done() {
			return fmt.Errorf("not marked: %v", pod.Annotations)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if written := writes.with("PATCH /api/v1/namespaces/default/configmaps/launch-order-barrier"); len(written) != 2 {
		t.Errorf("writes of the barrier: got %v, want 2", written)
	}
	state(t, pod, "abc")
	if err := kube.Delete(t.Context(), barrier); err != nil {
		t.Fatal(err)
	}
	state(t, pod, "") // its node was restarted
	barrierIs(t, pod, "p_-5", "p_0", "p_5")
}

// ND-139, ND-201: the ConfigMap of a former pod of the same name is replaced.
func TestLaunchPriorityAfterAFormerPod(t *testing.T) {
	for name, labels := range map[string]map[string]string{"launch-former": {pub.LaunchBarrier: "true"}, "launch-former-reference": nil} {
		left := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name + "-barrier", Labels: labels,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: name, UID: "former"}}},
			Data: map[string]string{"p_5": "true", "p_0": "true", "p_x": "true"}}
		pod := launched(name, "", "5")
		for _, object := range []client.Object{left, pod} {
			if err := kube.Create(t.Context(), object); err != nil {
				t.Fatal(err)
			}
			defer remove(t, object)
		}
		barrierIs(t, pod, "p_5")
	}
}

// ND-144: a foreign ConfigMap is not changed, which an event of the pod reports; after its deletion the pod's
// own is made.
func TestLaunchPriorityWithAForeignConfigMap(t *testing.T) {
	foreign := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "launch-foreign-barrier",
		Labels: map[string]string{pub.LaunchBarrier: "true"}}, Data: map[string]string{"own": "x"}}
	pod := launched("launch-foreign", "", "5")
	for _, object := range []client.Object{foreign, pod} {
		if err := kube.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
		defer remove(t, object)
	}
	if err := wait(func() error {
		var events corev1.EventList
		if err := kube.List(t.Context(), &events, client.InNamespace("default")); err != nil {
			return err
		}
		for _, event := range events.Items {
			if event.InvolvedObject.UID == pod.UID && event.Type == corev1.EventTypeWarning && event.Reason == "LaunchBlocked" &&
				strings.Contains(event.Message, foreign.Name) {
				return nil
			}
		}
		return fmt.Errorf("no event among %d", len(events.Items))
	}); err != nil {
		t.Fatal(err)
	}
	version := foreign.ResourceVersion
	if err := kube.Get(t.Context(), client.ObjectKeyFromObject(foreign), foreign); err != nil {
		t.Errorf("the ConfigMap of somebody else: %v", err)
	} else if foreign.ResourceVersion != version {
		t.Errorf("the ConfigMap of somebody else was written: %+v", foreign)
	}
	if err := kube.Delete(t.Context(), foreign); err != nil {
		t.Fatal(err)
	}
	barrierIs(t, pod, "p_5")
}
