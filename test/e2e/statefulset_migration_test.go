//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
)

// TestStatefulSetTakesOverANativeOne: pods of a StatefulSet of Kubernetes that was deleted without them
// become those of one of ours with the same spec: they get another owner and nothing else, and are updated in
// place from then on. They can be given back in the same way (ASTS-001 (part), ASTS-070 (part),
// ASTS-071 (part), ASTS-072 (part), ASTS-083 (part)).
func TestStatefulSetTakesOverANativeOne(t *testing.T) {
	t.Parallel()
	for name, policy := range map[string]string{"in-order": "OrderedReady", "together": "Parallel"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			takeOver(t, name, policy)
		})
	}
}

func takeOver(t *testing.T, name, policy string) {
	t.Helper()
	native := &appsv1.StatefulSet{}
	document(t, native, name, namespace(t), `
replicas: 3
serviceName: kept
podManagementPolicy: `+policy+`
volumeClaimTemplates:
- metadata: {name: data}
  spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 10Mi}}}
`+speaking("echo start >>/data/starts; wc -l </data/starts", ", volumeMounts: [{name: data, mountPath: /data}]"))
	s := follow(t, &appsv1beta1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: native.Namespace, Name: native.Name}})
	if err := kube.Create(t.Context(), native); err != nil {
		t.Fatal(err)
	}
	nativeServes(t, native)
	claims, revisions := claimUIDs(t, s.key.Namespace), s.revisions()
	live := orphan(t, native)
	before := s.pods()
	since := time.Now()

	live.SetAPIVersion("apps.kruise.io/v1beta1")
	if err := kube.Create(t.Context(), live); err != nil {
		t.Fatal(err)
	}
	s.settled()
	s.owned(s.get())
	s.pass()
	for name, pod := range s.pods() {
		old := before[name]
		old.OwnerReferences, old.ManagedFields, old.ResourceVersion = pod.OwnerReferences, pod.ManagedFields, pod.ResourceVersion
		if !equality.Semantic.DeepEqual(pod, old) {
			t.Errorf("pod %s is now\n%s\nand was\n%s", name, pod.String(), old.String())
		}
		if writes := podWrites(t, since)[name]; len(writes) != 1 {
			t.Errorf("pod %s took %v, not one write of its owner", name, writes)
		}
	}
	if after := s.revisions(); len(after) != 1 || after[0].UID != revisions[0].UID || !metav1.IsControlledBy(&after[0], s.get()) {
		t.Errorf("revisions are %v, and were %v", after, revisions)
	}

	s.seen = s.pods()
	s.told()
	s.change(`spec: {updateStrategy: {rollingUpdate: {podUpdatePolicy: InPlaceIfPossible}}}`)
	s.image("app:v2")
	s.restarted(1)
	s.inPlace("app:v2", 1)
	var order []string
	happened, _ := s.told()
	for _, what := range happened {
		if what[2:] == "app:v2" {
			order = append(order, what[:1])
		}
	}
	if !slices.Equal(order, []string{"2", "1", "0"}) {
		t.Errorf("the pods were updated in the order %v: %v", order, happened)
	}
	s.change(`spec: {replicas: 4}`)
	s.settled()
	s.pass()
	after, kept := s.revisions(), s.seen
	s.seen = s.pods()

	spec := orphan(t, s.get()).Object["spec"].(map[string]any)
	for _, ours := range []string{"volumeClaimUpdateStrategy", "updateStrategy", "scaleStrategy", "lifecycle", "ordinals"} {
		delete(spec, ours)
	}
	back := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "apps/v1", "kind": "StatefulSet", "spec": spec,
		"metadata": map[string]any{"namespace": s.key.Namespace, "name": s.key.Name}}}
	if err := kube.Create(t.Context(), back); err != nil {
		t.Fatal(err)
	}
	nativeServes(t, native)
	s.owned(native)
	s.inPlace("app:v2", 0)
	if now := s.revisions(); len(now) != len(after) {
		t.Errorf("revisions are %v, and were %v", now, after)
	}
	now := claimUIDs(t, s.key.Namespace)
	for name, uid := range claims {
		if now[name] != uid {
			t.Errorf("claim %s is another one", name)
		}
	}
	for name := range kept {
		if n := logs(t, s.key.Namespace, name); n != "2" {
			t.Errorf("the claim of pod %s saw %s starts, not 2", name, n)
		}
	}
}

// TestStatefulSetWaitsForTheNativeOne: whoever makes ours while the native one of the same name still has its
// pods is told so, and gets the pods as they are when the native one gives them up (ASTS-083 (part),
// ASTS-106 (part), ASTS-307 (part)).
func TestStatefulSetWaitsForTheNativeOne(t *testing.T) {
	t.Parallel()
	native := &appsv1.StatefulSet{}
	ours := &appsv1beta1.StatefulSet{}
	document(t, native, "both", namespace(t), "replicas: 3")
	document(t, ours, native.Name, native.Namespace, "replicas: 3")
	s := follow(t, ours)
	if err := kube.Create(t.Context(), native); err != nil {
		t.Fatal(err)
	}
	nativeServes(t, native)
	s.seen = s.pods()
	if err := kube.Create(t.Context(), ours); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the condition", func(context.Context) string {
		conditions := s.get().Status.Conditions
		if len(conditions) != 1 || conditions[0].Type != appsv1beta1.StatefulSetConditionFailedCreatePod ||
			!strings.Contains(conditions[0].Message, "both-0 exists") {
			return fmt.Sprintf("%+v", conditions)
		}
		return ""
	})
	orphan(t, native)
	s.owned(s.get())
	s.settled()
	s.inPlace("nginx:1.26", 0)
	if conditions := s.get().Status.Conditions; len(conditions) > 0 {
		t.Errorf("conditions %+v are left", conditions)
	}
}

// nativeServes waits until all pods of a StatefulSet of Kubernetes are ready and updated.
func nativeServes(t *testing.T, set *appsv1.StatefulSet) {
	t.Helper()
	eventually(t, "the StatefulSet of Kubernetes", func(ctx context.Context) string {
		if err := kube.Get(ctx, client.ObjectKeyFromObject(set), set); err != nil {
			return err.Error()
		}
		if is := set.Status; is.ObservedGeneration != set.Generation || is.AvailableReplicas != *set.Spec.Replicas ||
			is.UpdatedReplicas != is.AvailableReplicas || is.CurrentRevision != is.UpdateRevision {
			return fmt.Sprintf("%+v", is)
		}
		return ""
	})
}

// orphan deletes a StatefulSet without its pods, and returns it as somebody would apply it who read it
// before.
func orphan(t *testing.T, set client.Object) *unstructured.Unstructured {
	t.Helper()
	gvk, err := kube.GroupVersionKindFor(set)
	if err != nil {
		t.Fatal(err)
	}
	live := &unstructured.Unstructured{}
	live.SetGroupVersionKind(gvk)
	if err := kube.Get(t.Context(), client.ObjectKeyFromObject(set), live); err != nil {
		t.Fatal(err)
	}
	if err := kube.Delete(t.Context(), set, client.PropagationPolicy(metav1.DeletePropagationOrphan)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the end of the StatefulSet", func(ctx context.Context) string {
		err := kube.Get(ctx, client.ObjectKeyFromObject(set), live.DeepCopy())
		if !apierrors.IsNotFound(err) {
			return fmt.Sprint("it is there: ", err)
		}
		return ""
	})
	delete(live.Object, "status")
	live.Object["metadata"] = map[string]any{"namespace": set.GetNamespace(), "name": set.GetName()}
	return live
}

// owned waits until all pods are controlled by the owner.
func (s *stateful) owned(owner client.Object) {
	s.t.Helper()
	eventually(s.t, "the owner of pods", func(context.Context) string {
		for _, pod := range s.pods() {
			if !metav1.IsControlledBy(&pod, owner) {
				return fmt.Sprintf("pod %s has %v", pod.Name, pod.OwnerReferences)
			}
		}
		return ""
	})
}

// restarted waits until the container of each pod runs after that many more restarts.
func (s *stateful) restarted(times int32) {
	s.t.Helper()
	eventually(s.t, "restarts", func(context.Context) string {
		for name, pod := range s.pods() {
			was, is := s.seen[name].Status.ContainerStatuses[0], pod.Status.ContainerStatuses[0]
			if is.RestartCount < was.RestartCount+times || !is.Ready {
				return fmt.Sprintf("pod %s restarted %d times", name, is.RestartCount-was.RestartCount)
			}
		}
		return ""
	})
}

func (s *stateful) revisions() []appsv1.ControllerRevision {
	s.t.Helper()
	var list appsv1.ControllerRevisionList
	if err := kube.List(s.t.Context(), &list, client.InNamespace(s.key.Namespace)); err != nil {
		s.t.Fatal(err)
	}
	return list.Items
}
