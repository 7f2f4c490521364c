//go:build integration

package integration

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
)

// Who may write pods in one namespace gives them the UID of a CloneSet in another one: that deletes none of its own pods for them.
func TestPodsOfAnotherNamespace(t *testing.T) {
	neighbour := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "neighbour"}}
	set := cloneSet("v1beta1", "neighboured", `{"spec": {"replicas": 2}}`)
	for _, object := range []client.Object{neighbour, set} {
		if err := kube.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = kube.Delete(t.Context(), object) }()
	}
	name := types.NamespacedName{Namespace: set.GetNamespace(), Name: set.GetName()}
	running := func(n int) (uids map[types.UID]bool, err error) {
		err = wait(func() error {
			var current appsv1beta1.CloneSet
			if err := kube.Get(t.Context(), name, &current); err != nil {
				return err
			}
			if uids = map[types.UID]bool{}; current.Status.ObservedGeneration != current.Generation {
				return fmt.Errorf("generation %d is not observed", current.Generation)
			}
			for _, pod := range pods(t, name.Name) {
				uids[pod.UID] = true
			}
			if len(uids) != n || int(current.Status.Replicas) != n {
				return fmt.Errorf("%d pods, the status has %d", len(uids), current.Status.Replicas)
			}
			return nil
		})
		return uids, err
	}
	before, err := running(2)
	if err != nil {
		t.Fatal(err)
	}
	yes := true
	for i := range 4 {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: neighbour.Name, Name: fmt.Sprintf("hostile-%d", i), Labels: map[string]string{"app": "neighboured"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: set.GetAPIVersion(), Kind: "CloneSet", Name: set.GetName(), UID: set.GetUID(), Controller: &yes}}},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
		if err := kube.Create(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
	}
	if err := kube.Patch(t.Context(), set, client.RawPatch(types.MergePatchType, []byte(`{"spec": {"replicas": 3}}`))); err != nil {
		t.Fatal(err)
	}
	after, err := running(3)
	if err != nil {
		t.Fatal(err)
	}
	for uid := range before {
		if !after[uid] {
			t.Errorf("pod %s was deleted", uid)
		}
	}
}
