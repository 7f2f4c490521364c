//go:build integration

package integration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
)

// owned creates a pod that a workload controls; there is no controller of StatefulSets here. On a node it is
// ready.
func owned(t *testing.T, by client.Object, apiVersion, kind, name, node string) *corev1.Pod {
	t.Helper()
	no := false
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: by.GetNamespace(), Name: name, Annotations: map[string]string{"example.com/ip": "10.0.0.7"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: by.GetName(), UID: by.GetUID(), Controller: new(true)}}},
		Spec: corev1.PodSpec{AutomountServiceAccountToken: &no, NodeName: node, TerminationGracePeriodSeconds: new(int64),
			Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	makes(t, pod)
	if node == "" {
		return pod
	}
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}
	if err := kube.Status().Update(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	return pod
}

// recorded waits until a place is recorded.
func recordedOn(t *testing.T, state, pod, node string) *appsv1beta1.PersistentPodState {
	t.Helper()
	found := &appsv1beta1.PersistentPodState{}
	if err := wait(func() error {
		err := kube.Get(t.Context(), types.NamespacedName{Namespace: "default", Name: state}, found)
		if entry := found.Status.PodStates[pod]; err == nil && entry.NodeName != node {
			return fmt.Errorf("%s is recorded as %+v", pod, found.Status)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return found
}

func wholly(t *testing.T, object client.Object) {
	t.Helper()
	if err := kube.Delete(t.Context(), object, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	if err := wait(func() error {
		if err := kube.Get(t.Context(), client.ObjectKeyFromObject(object), object.DeepCopyObject().(client.Object)); !apierrors.IsNotFound(err) { //nolint:forcetypeassert // a copy
			return fmt.Errorf("it is there: %w", err)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

func nativeSet(t *testing.T, name string, replicas int32, annotations map[string]string) *appsv1.StatefulSet {
	t.Helper()
	labels := map[string]string{"app": name}
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Annotations: annotations},
		Spec: appsv1.StatefulSetSpec{Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}}}
	makes(t, set)
	return set
}

// PPS-030 (part), PPS-031 (part), PPS-032 (part), PPS-033 (part), PPS-034 (part), PPS-035 (part),
// PPS-036 (part), PPS-050 (part), PPS-051, PPS-060 (part), PPS-104 (part): a pod of a StatefulSet of
// Kubernetes that is deleted at once after its place is recorded gets that place, also while the
// PersistentPodState is new; scaling in forgets it.
func TestPlacesOfPods(t *testing.T) {
	makes(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "places-a", Labels: map[string]string{"topology.kubernetes.io/zone": "z1", "kubernetes.io/hostname": "places-a"}}})
	set := nativeSet(t, "places", 2, nil)
	pod := owned(t, set, "apps/v1", "StatefulSet", "places-1", "places-a")
	made(t, `{apiVersion: apps.kruise.io/v1alpha1, kind: PersistentPodState, metadata: {name: places, namespace: default, annotations: {kruise.io/inject-persistent-pod-annotations: "true"}},
spec: {targetRef: {apiVersion: apps/v1, kind: StatefulSet, name: places}, requiredPersistentTopology: {nodeTopologyKeys: [topology.kubernetes.io/zone]},
preferredPersistentTopology: [{weight: 40, preference: {nodeTopologyKeys: [kubernetes.io/hostname]}}], persistentPodAnnotations: [{key: example.com/ip}]}}`)
	state := recordedOn(t, "places", "places-1", "places-a")
	entry := state.Status.PodStates["places-1"]
	for key, want := range map[string]string{"topology.kubernetes.io/zone": "z1",
		"kubernetes.io/hostname": "places-a"} {
		if got := entry.NodeTopologyLabels[key]; got != want {
			t.Errorf("recorded %s: got %q, want %s", key, got, want)
		}
	}
	if got := entry.Annotations["example.com/ip"]; got != "10.0.0.7" {
		t.Errorf("recorded address: got %q, want 10.0.0.7", got)
	}
	wholly(t, pod)
	again := owned(t, set, "apps/v1", "StatefulSet", "places-1", "")
	terms := again.Spec.Affinity
	if zone := again.Spec.NodeSelector["topology.kubernetes.io/zone"]; zone != "z1" {
		t.Errorf("the pod was not brought back: got zone %q, want z1", zone)
	}
	if by := again.Annotations[pub.InjectedPersistentPodState]; by != "places" {
		t.Errorf("the pod was not brought back: got %+v, want it by places", again.Annotations)
	}
	if terms == nil || len(terms.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution) != 1 {
		t.Errorf("the pod was not brought back: got affinity %+v, want one preferred term", terms)
	}
	if first := owned(t, set, "apps/v1", "StatefulSet", "places-0", ""); len(first.Spec.NodeSelector) > 0 {
		t.Errorf("PPS-031: a first pod gets %v", first.Spec.NodeSelector)
	}
	alpha := &appsv1alpha1.PersistentPodState{}
	if err := kube.Get(t.Context(), client.ObjectKeyFromObject(state), alpha); err != nil {
		t.Errorf("PPS-090: %v", err)
	} else if key := alpha.Spec.RequiredPersistentTopology.NodeTopologyKeys[0]; key != "topology.kubernetes.io/zone" {
		t.Errorf("PPS-090: required key in v1alpha1: got %s, want topology.kubernetes.io/zone", key)
	} else if node := alpha.Status.PodStates["places-1"].NodeName; node != "places-a" {
		t.Errorf("PPS-090: recorded node in v1alpha1: got %s, want places-a", node)
	}
	wholly(t, again)
	if err := kube.Patch(t.Context(), set, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":1}}`))); err != nil {
		t.Fatal(err)
	}
	recordedOn(t, "places", "places-1", "")
}

// PPS-004 (part), PPS-070 (part), PPS-071 (part), PPS-072 (part), PPS-073 (part), PPS-074 (part),
// PPS-075 (part), PPS-076 (part), PPS-077 (part), PPS-078 (part), PPS-082 (part): one is generated for an
// Advanced StatefulSet, follows its annotations, is made anew, and goes; one that a user wrote stays, and an
// event tells.
func TestGeneratedPersistentPodStates(t *testing.T) {
	const annotated = `kruise.io/auto-generate-persistent-pod-state: "true", kruise.io/preferred-persistent-topology: "kubernetes.io/hostname, zone"`
	set := made(t, `{apiVersion: apps.kruise.io/v1beta1, kind: StatefulSet, metadata: {name: generated, namespace: default, annotations: {`+annotated+`}},
spec: {replicas: 0, serviceName: x, selector: {matchLabels: {app: generated}}, template: {metadata: {labels: {app: generated}}, spec: {containers: [{name: c, image: i}]}}}}`)
	name := types.NamespacedName{Namespace: "default", Name: "generated"}
	state := &appsv1beta1.PersistentPodState{}
	holds := func(what string, check func() bool) {
		t.Helper()
		if err := wait(func() error {
			*state = appsv1beta1.PersistentPodState{}
			if err := kube.Get(t.Context(), name, state); err != nil {
				return err
			}
			if !check() {
				return errors.New(what)
			}
			return nil
		}); err != nil {
			t.Fatalf("waited for this: %v: %+v", err, state)
		}
	}
	holds("what is generated", func() bool {
		owner := metav1.GetControllerOf(state)
		return owner != nil && owner.UID == set.GetUID() && owner.BlockOwnerDeletion == nil && state.Spec.PreferredPersistentTopology[0].Weight == 100 &&
			slices.Equal(state.Spec.PreferredPersistentTopology[0].Preference.Keys, []string{"kubernetes.io/hostname", "zone"}) && state.Status.ObservedGeneration == state.Generation
	})
	patch := func(object client.Object, body string) {
		t.Helper()
		if err := kube.Patch(t.Context(), object, client.RawPatch(types.MergePatchType, []byte(body))); err != nil {
			t.Fatal(err)
		}
	}
	patch(state, `{"spec":{"persistentPodStateRetentionPolicy":"WhenDeleted","preferredPersistentTopology":[{"weight":5,"preference":{"keys":["x"]}}]}}`)
	holds("kept equal, but for the policy", func() bool {
		return state.Spec.PreferredPersistentTopology[0].Weight == 100 && state.Spec.PersistentPodStateRetentionPolicy == "WhenDeleted"
	})
	patch(set, `{"metadata":{"annotations":{"kruise.io/persistent-pod-annotations":"a,b"}}}`)
	holds("annotations of pods", func() bool { return len(state.Spec.PersistentPodAnnotations) == 2 })
	uid := state.UID
	wholly(t, state.DeepCopy())
	holds("made anew", func() bool { return state.UID != uid })
	patch(set, `{"metadata":{"annotations":{"kruise.io/auto-generate-persistent-pod-state":"no"}}}`)
	if err := wait(func() error {
		if err := kube.Get(t.Context(), name, state); !apierrors.IsNotFound(err) {
			return fmt.Errorf("it is there: %w", err)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	byHand := made(t, `{apiVersion: apps.kruise.io/v1beta1, kind: PersistentPodState, metadata: {name: generated, namespace: default},
spec: {targetRef: {apiVersion: apps/v1, kind: StatefulSet, name: other}, requiredPersistentTopology: {keys: [zone]}}}`)
	patch(set, `{"metadata":{"annotations":{"kruise.io/auto-generate-persistent-pod-state":"true"}}}`)
	hasEvent(t, set, "PersistentPodStateConflict", "was not generated for this workload")
	holds("what a user wrote", func() bool {
		return state.UID == byHand.GetUID() && state.Spec.RequiredPersistentTopology != nil && len(state.OwnerReferences) == 0
	})
}

// PPS-013, PPS-014, PPS-016, PPS-021 (part): a kind that an administrator lists counts without a restart, by
// its scale; its pods come back.
func TestPlacesOfAListedKind(t *testing.T) {
	const number = `{type: object, properties: {replicas: {type: integer}, size: {type: integer}}}`
	made(t, `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: arenas.integration.example.com},
		spec: {group: integration.example.com, scope: Namespaced, names: {kind: Arena, plural: arenas, singular: arena}, versions: [{name: v1, served: true, storage: true,
		subresources: {status: {}, scale: {specReplicasPath: .spec.size, statusReplicasPath: .status.replicas}}, schema: {openAPIV3Schema: {type: object, properties: {spec: `+number+`, status: `+number+`}}}}]}}`)
	const arena = `{apiVersion: integration.example.com/v1, kind: Arena, metadata: {namespace: default, name: arena}, spec: {size: 2}}`
	if err := wait(func() error { return kube.Create(t.Context(), document(t, arena), client.DryRunAll) }); err != nil { // served in a moment
		t.Fatal(err)
	}
	const state = `{apiVersion: apps.kruise.io/v1beta1, kind: PersistentPodState, metadata: {namespace: default, name: arena},
spec: {targetRef: {apiVersion: integration.example.com/v1, kind: Arena, name: arena}, requiredPersistentTopology: {keys: [zone]}, persistentPodAnnotations: [{key: example.com/ip}]}}`
	if err := kube.Create(t.Context(), document(t, state)); err == nil || !strings.Contains(err.Error(), "not listed") {
		t.Errorf("PPS-021: creation: got %v, want that the kind is not listed", err)
	}
	text, err := json.Marshal(`{"workloads":[{"Group":"integration.example.com","Version":"v1","Kind":"Arena"}]}`)
	if err != nil {
		t.Fatal(err)
	}
	made(t, fmt.Sprintf(`{apiVersion: v1, kind: ConfigMap, metadata: {namespace: kruise-system, name: kruise-configuration}, data: {PPS_Watch_Custom_Workload_WhiteList: %s}}`, text))
	target := made(t, arena)
	made := document(t, state)
	if err := wait(func() error { return kube.Create(t.Context(), made) }); err != nil { // until the list is read
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = kube.Delete(context.Background(), made) })
	makes(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "arena-a", Labels: map[string]string{"zone": "z1"}}})
	pod := owned(t, target, "integration.example.com/v1", "Arena", "arena-1", "arena-a")
	recordedOn(t, "arena", "arena-1", "arena-a")
	asked := func() (times int) {
		for _, path := range reads.with("/arenas/arena") {
			if strings.HasSuffix(path, "/arenas/arena") {
				times++
			}
		}
		return times
	}
	before := asked()
	for i := range 5 { // each of which has a pass made
		ip := fmt.Sprint("10.0.1.", i)
		if err := kube.Patch(t.Context(), pod, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"example.com/ip":"`+ip+`"}}}`))); err != nil {
			t.Fatal(err)
		}
		if err := wait(func() error {
			if recorded := recordedOn(t, "arena", "arena-1", "arena-a").Status.PodStates["arena-1"].Annotations["example.com/ip"]; recorded != ip {
				return errors.New(recorded)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	if times := asked() - before; times > 0 {
		t.Errorf("the API server was asked %d times for a workload that the caches have", times)
	}
	wholly(t, pod)
	again := owned(t, target, "integration.example.com/v1", "Arena", "arena-1", "")
	if again.Spec.NodeSelector["zone"] != "z1" {
		t.Errorf("the pod was not brought back: %+v", again.Spec.NodeSelector)
	}
	wholly(t, again)
	if err := kube.Patch(t.Context(), target, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"size":1}}`))); err != nil {
		t.Fatal(err)
	}
	recordedOn(t, "arena", "arena-1", "")
}
