package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/workloadkind"
	"github.com/afloat-project/afloat/internal/kinds/persistentpodstate"
	"github.com/afloat-project/afloat/internal/kinds/workloadspread"
	"github.com/afloat-project/afloat/internal/platform/features"
	"github.com/afloat-project/afloat/internal/simulation"
)

// places are what is recorded, as "pod node zone".
func (w *world) places(name string) string {
	state := w.state(name)
	var all []string
	for pod, entry := range state.Status.PodStates {
		all = append(all, strings.TrimSpace(fmt.Sprintf("%s %s %s", pod, entry.NodeName, entry.NodeTopologyLabels["zone"])))
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

// pinned returns a world with one node.
func pinned(t *testing.T) *world {
	w := newWorld(t, 1)
	w.node("a", "z1")
	return w
}

func (w *world) holds(name, want string) {
	w.t.Helper()
	w.settle()
	if got := w.places(name); got != want {
		w.t.Errorf("%s: recorded is %q, not %q\n%v", name, got, want, w.told)
	}
}

func (w *world) tells(reason string) (found int) {
	for _, told := range w.told {
		if strings.Contains(told, reason) {
			found++
		}
	}
	return found
}

// Reports of users: label keys of former times, which no node has. No pod waits because of them, an event
// names them once, they are remembered as soon as nodes have them, without a restart, and one that is taken
// from a node does not bind. PPS-051 (part), PPS-052 (part).
func TestLabelKeysOfFormerTimesHoldNoPod(t *testing.T) {
	w := pinned(t)
	w.make("web", 2, 0, nil)
	w.write("places", "web", func(s *appsv1beta1.PersistentPodState) {
		s.Spec.RequiredPersistentTopology.Keys = []string{"failure-domain.beta.kubernetes.io/zone"}
		s.Spec.PreferredPersistentTopology = []appsv1beta1.PreferredTopologyTerm{{Weight: 100, Preference: appsv1beta1.NodeTopologyTerm{Keys: []string{"host"}}}}
	})
	w.settle()
	again := func() *corev1.Pod {
		t.Helper()
		before := w.Get(key("Pod", "web-1")).GetUID()
		w.EndGracefully(key("Pod", "web-1"))
		w.settle()
		pod, _ := w.Get(key("Pod", "web-1")).(*corev1.Pod)
		if pod == nil {
			t.Fatal("it does not run: pod: got nil, want a value")
		} else if pod.UID == before {
			t.Fatalf("it does not run: pod.UID: got %q, want another value\n%+v", pod.UID, pod)
		} else if pod.Spec.NodeName == "" {
			t.Fatalf("it does not run: pod.Spec.NodeName: got nothing, want some text\n%+v", pod)
		}
		return pod
	}
	pod := again()
	if len(pod.Spec.NodeSelector) > 0 {
		t.Errorf("node selector: got %v, want none\n%+v", pod.Spec.NodeSelector, pod.Spec)
	}
	if pod.Spec.Affinity == nil {
		t.Errorf("affinity: got nil, want a value\n%+v", pod.Spec)
	}
	if got := w.tells("NodeTopologyKeyMissing: None of the nodes on which pods are ready has these labels, so that they bind no pod: failure-domain.beta.kubernetes.io/zone"); got != 1 {
		t.Errorf("w.tells(\"NodeTopologyKeyMissing: None of the nodes on which pods are ready has these labels, so that they bind no pod: failure-domain.beta.kubernetes.io/zone\"): got %d, want 1\n%q",
			got, w.told)
	}
	label := func(change func(map[string]string)) {
		w.Change(key("Node", "a"), func(o client.Object) { change(o.GetLabels()) })
		w.settle()
	}
	label(func(labels map[string]string) { labels["failure-domain.beta.kubernetes.io/zone"] = "old" })
	if pod := again(); pod.Spec.NodeSelector["failure-domain.beta.kubernetes.io/zone"] != "old" {
		t.Errorf("pod.Spec.NodeSelector[\"failure-domain.beta.kubernetes.io/zone\"]: got %q, want %q\n%+v",
			pod.Spec.NodeSelector["failure-domain.beta.kubernetes.io/zone"], "old", pod.Spec)
	} else if pod.Spec.Affinity == nil {
		t.Errorf("affinity: got nil, want a value\n%+v", pod.Spec)
	}
	label(func(labels map[string]string) { delete(labels, "failure-domain.beta.kubernetes.io/zone") })
	if pod := again(); len(pod.Spec.NodeSelector) > 0 {
		t.Errorf("node selector: got %v, want none\n%+v", pod.Spec.NodeSelector, pod.Spec)
	}
	if got := w.tells("NodeTopologyKeyMissing"); got != 2 {
		t.Errorf("w.tells(\"NodeTopologyKeyMissing\"): got %d, want 2\n%q", got, w.told)
	}
}

// Reports of users: scaling in and out with both policies, a start ordinal, an evicted pod, and a set that is
// made again without its pods having gone. PPS-055 (part), PPS-060 (part), PPS-061 (part), PPS-063 (part),
// PPS-064, PPS-078 (part), PPS-101 (part), PPS-108.
func TestScalingInAndOut(t *testing.T) {
	w := pinned(t)
	scale := func(replicas int32) {
		w.respec(ss, "web", func(o client.Object) { o.(*appsv1.StatefulSet).Spec.Replicas = &replicas })
		w.settle()
	}
	w.make("web", 3, 5, map[string]string{pub.AutoGeneratePersistentPodState: "true", pub.RequiredPersistentTopology: "zone"})
	w.holds("web", "web-5 a z1, web-6 a z1, web-7 a z1")
	scale(1)
	w.holds("web", "web-5 a z1")
	scale(3)
	if pod := w.Get(key("Pod", "web-7")).(*corev1.Pod); len(pod.Spec.NodeSelector) > 0 {
		t.Errorf("a place that was forgotten: %v", pod.Spec.NodeSelector)
	}
	w.Change(key(ss, "web"), func(o client.Object) { o.GetAnnotations()[pub.PersistentPodStateRetentionPolicy] = "WhenDeleted" })
	w.settle()
	scale(0)
	w.holds("web", "web-5 a z1, web-6 a z1, web-7 a z1")
	scale(3)
	if pod := w.Get(key("Pod", "web-7")).(*corev1.Pod); pod.Spec.NodeSelector["zone"] != "z1" {
		t.Errorf("a place that was kept: %v", pod.Spec.NodeSelector)
	}
	w.settle()
	// Evicted, and gone: the record stays for the pod that follows.
	w.Change(key("Pod", "web-6"), func(o client.Object) { o.(*corev1.Pod).Status = corev1.PodStatus{Phase: corev1.PodFailed} })
	w.holds("web", "web-5 a z1, web-6 a z1, web-7 a z1")
	// Deleted by hand: it is generated anew, with what is the case now.
	w.EndGracefully(key(pps, "web"))
	w.settle()
	if state := w.state("web"); state == nil || !metav1.IsControlledBy(state, w.set("web")) || len(state.Status.PodStates) != 2 { // web-6 has failed
		t.Errorf("it is not generated anew: %+v", state)
	}
	// Orphaned: the garbage collector takes the references away, and the set is made again. Its pods stay,
	// and so does what is remembered.
	uid := w.state("web").UID
	for _, kind := range []string{"Pod", pps} {
		for _, object := range w.List(kind, false) {
			w.Change(w.KeyOf(kind, object), func(o client.Object) { o.SetOwnerReferences(nil) })
		}
	}
	annotations := w.set("web").Annotations
	w.Remove(key(ss, "web"))
	w.make("web", 3, 5, annotations)
	w.holds("web", "web-5 a z1, web-7 a z1")
	state := w.state("web")
	if state.UID != uid {
		t.Errorf("it is not the new set's: state.UID: got %q, want %q\n%+v", state.UID, uid, state.OwnerReferences)
	}
	if !metav1.IsControlledBy(state, w.set("web")) {
		t.Errorf("it is not the new set's: metav1.IsControlledBy(state, w.set(\"web\")): got false, want true\n%+v", state.OwnerReferences)
	}
	w.Change(key(ss, "web"), func(o client.Object) { o.GetAnnotations()[pub.PersistentPodStateRetentionPolicy] = "WhenScaled" })
	scale(1)
	w.holds("web", "web-5 a z1")
	w.Remove(key(ss, "web"))
	w.settle()
	if w.state("web") != nil {
		t.Error("it stays without its workload")
	}
}

// PPS-047: when the workload is deleted, or is about to, what is remembered goes and the object stays.
func TestADeletedWorkloadIsForgotten(t *testing.T) {
	w := pinned(t)
	w.make("web", 2, 0, nil)
	w.write("places", "web", func(s *appsv1beta1.PersistentPodState) {
		s.Spec.PersistentPodStateRetentionPolicy = appsv1beta1.RetainWhenDeleted
	})
	w.holds("places", "web-0 a z1, web-1 a z1")
	w.Change(key(ss, "web"), func(o client.Object) {
		now := metav1.NewTime(w.Now())
		o.SetFinalizers([]string{"foregroundDeletion"})
		o.SetDeletionTimestamp(&now)
	})
	w.respec(pps, "places", func(client.Object) {})
	w.holds("places", "")
	if state := w.state("places"); state.Status.ObservedGeneration != 2 {
		t.Errorf("observed generation: got %d, want 2\n%+v", state.Status.ObservedGeneration, state.Status)
	}
	w.Remove(key(ss, "web"))
	w.respec(pps, "places", func(client.Object) {})
	w.holds("places", "")
	if state := w.state("places"); state.Status.ObservedGeneration != 3 {
		t.Errorf("observed generation: got %d, want 3\n%+v", state.Status.ObservedGeneration, state.Status)
	}
}

// PPS-077, PPS-079, PPS-100: what users wrote stays as it is; the workload has an event, once.
func TestWhatUsersWroteStays(t *testing.T) {
	w := pinned(t)
	asks := map[string]string{pub.AutoGeneratePersistentPodState: "true", pub.RequiredPersistentTopology: "zone"}
	w.write("web", "elsewhere", nil)
	w.write("by-hand", "db", nil)
	before := w.state("web").Spec
	w.make("web", 1, 0, asks)
	w.make("db", 1, 0, asks)
	w.make("bad", 1, 0, map[string]string{pub.AutoGeneratePersistentPodState: "true", pub.RequiredPersistentTopology: "a b"})
	w.settle()
	if after := w.state("web").Spec; after.TargetRef != before.TargetRef {
		t.Errorf("target ref: got %+v, want %+v\n%+v\n%+v", after.TargetRef, before.TargetRef, after, w.state("db"))
	} else if got := w.state("db"); got != nil {
		t.Errorf("w.state(\"db\"): got %+v, want nil\n%+v", got, after)
	} else if got := w.state("bad"); got != nil {
		t.Errorf("w.state(\"bad\"): got %+v, want nil\n%+v\n%+v", got, after, w.state("db"))
	}
	if got := w.tells("web Warning PersistentPodStateConflict"); got != 1 {
		t.Errorf("w.tells(\"web Warning PersistentPodStateConflict\"): got %d, want 1\n%q", got, w.told)
	}
	if got := w.tells("db Warning PersistentPodStateConflict"); got != 1 {
		t.Errorf("w.tells(\"db Warning PersistentPodStateConflict\"): got %d, want 1\n%q", got, w.told)
	}
	if got := w.tells("bad Warning PersistentPodStateInvalid"); got != 1 {
		t.Errorf("w.tells(\"bad Warning PersistentPodStateInvalid\"): got %d, want 1\n%q", got, w.told)
	}
	w.EndGracefully(key(pps, "by-hand"))
	w.holds("db", "db-0 a z1")
	w.Change(key(ss, "web"), func(o client.Object) { o.SetAnnotations(nil) })
	w.settle()
	if w.state("web") == nil {
		t.Error("what a user wrote is deleted with the annotation")
	}
}

// PPS-097, PPS-105 (part): the gate is alpha and off. With it, a place is forgotten once its node is looked
// for in vain: not while that cannot be told. The pod that waits keeps its selector; the next one starts
// anywhere.
func TestPlacesOnNodesThatAreGone(t *testing.T) {
	known := features.Known()[features.PersistentPodStateAutoCleanup]
	if known.Default {
		t.Errorf("default: got true, want false\n%+v", known)
	}
	if known.PreRelease != "ALPHA" {
		t.Errorf("pre release: got %q, want %q\n%+v", known.PreRelease, "ALPHA", known)
	}
	w := pinned(t)
	w.node("b", "z2")
	w.make("web", 1, 0, nil)
	w.write("places", "web", nil)
	w.settle()
	pod := w.Get(key("Pod", "web-0")).(*corev1.Pod)
	was, zone := pod.Spec.NodeName, w.state("places").Status.PodStates["web-0"].NodeTopologyLabels["zone"]
	w.r.Cleanup = false
	w.Remove(key("Node", was))
	w.settle()
	if got, want := w.places("places"), fmt.Sprintf("web-0 %s %s", was, zone); got != want {
		t.Errorf("without the gate: got %s, want %s", got, want)
	}
	if node := w.Get(key("Pod", "web-0")).(*corev1.Pod).Spec.NodeName; node != "" {
		t.Errorf("without the gate: the pod came to node %s", node)
	}
	w.r.Cleanup = true
	w.Answer = func(r *simulation.Request) error {
		if r.Key.Kind == "Node" {
			return errors.New("no answer")
		}
		return nil
	}
	w.settle()
	if got := w.places("places"); got == "" {
		t.Error("a node that cannot be read counts as gone")
	}
	w.Answer = nil
	w.settle()
	if got := w.places("places"); got != "" {
		t.Errorf("places after the node went: got %s, want none", got)
	}
	if n := w.tells("PodStateCleaned: Node " + was + " does not exist any more"); n != 1 {
		t.Errorf("events about the node that went: got %d, want 1: %v", n, w.told)
	}
	waits := w.Get(key("Pod", "web-0")).(*corev1.Pod)
	if waits.Spec.NodeSelector["zone"] != zone {
		t.Errorf("the pod that waits: waits.Spec.NodeSelector[\"zone\"]: got %q, want %q\n%+v", waits.Spec.NodeSelector["zone"], zone,
			waits.Spec)
	}
	if waits.Spec.NodeName != "" {
		t.Errorf("the pod that waits: waits.Spec.NodeName: got %q, want %q\n%+v", waits.Spec.NodeName, "", waits.Spec)
	}
	w.EndGracefully(key("Pod", "web-0"))
	w.settle()
	if next := w.Get(key("Pod", "web-0")).(*corev1.Pod); next.Spec.NodeName == "" {
		t.Errorf("the next pod: %+v", next.Spec)
	}
}

// PPS-053, PPS-081 (part): a node that cannot be read keeps what is remembered, and is looked for again; the
// others are remembered.
func TestANodeThatTheCacheLacks(t *testing.T) {
	w := pinned(t)
	w.make("web", 1, 0, nil)
	w.write("places", "web", nil)
	w.settle()
	w.make("web2", 1, 0, nil)
	w.Events(1 << 20)
	w.Hide(key("Node", "a"))
	w.Change(key("Pod", "web-0"), func(o client.Object) { o.GetAnnotations()["x"] = "y" })
	w.Events(1 << 20)
	w.Manage()
	got := w.places("places")
	if got != "web-0 a z1" {
		t.Errorf("w.places(\"places\"): got %q, want %q\n%v", got, "web-0 a z1", w.Queue.Due())
	}
	if w.Queue.Due().IsZero() {
		t.Errorf("w.Queue.Due().IsZero(): got true, want false\n%v", w.Queue.Due())
	}
}

// scales are the scales of custom kinds, by name.
type scales map[string]int64

// Get implements client.SubResourceReader.
func (s scales) Get(_ context.Context, object, into client.Object, _ ...client.SubResourceGetOption) error {
	replicas, found := s[object.GetName()]
	if !found {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "games"}, object.GetName())
	}
	into.(*unstructured.Unstructured).Object = map[string]any{"spec": map[string]any{"replicas": replicas}}
	return nil
}

// PPS-012, PPS-016, PPS-061, PPS-103, ASTS-362 (part): how many pods each kind has, and from which ordinal.
func TestOrdinalsOfEachKind(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := errors.Join(appsv1beta1.AddToScheme(scheme), appsv1.AddToScheme(scheme), autoscalingv1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	game := schema.GroupVersionKind{Group: "games.example.com", Version: "v1", Kind: "Game"}
	scheme.AddKnownTypeWithName(game, &unstructured.Unstructured{})
	scheme.AddKnownTypeWithName(game.GroupVersion().WithKind("GameList"), &unstructured.UnstructuredList{})
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{game.GroupVersion()})
	mapper.Add(game, meta.RESTScopeNamespace)
	native := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "n"}}
	native.Spec.Replicas, native.Spec.Ordinals = new(int32(2)), &appsv1.StatefulSetOrdinals{Start: 3}
	advanced := &appsv1beta1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "a"}}
	advanced.Spec.Replicas, advanced.Spec.Ordinals = new(int32(2)), &appsv1beta1.StatefulSetOrdinals{Start: 3}
	advanced.Spec.ReserveOrdinals = []intstr.IntOrString{intstr.FromInt32(4), intstr.FromString("0-1")}
	custom := func(name string, spec map[string]any) *unstructured.Unstructured {
		u := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
		u.SetGroupVersionKind(game)
		u.SetNamespace("shop")
		u.SetName(name)
		return u
	}
	objects := []client.Object{native, advanced, custom("plain", map[string]any{"replicas": int64(2)}), custom("scaled", map[string]any{"size": int64(5)}), custom("sized", map[string]any{"size": int64(5)}),
		custom("full", map[string]any{"replicas": int64(2), "ordinals": map[string]any{"start": int64(1)}, "reserveOrdinals": []any{int64(2), "4-5"}}),
		custom("odd", map[string]any{"replicas": int64(2), "reserveOrdinals": []any{true}})}
	c := fake.NewClientBuilder().WithScheme(scheme).WithRESTMapper(mapper).WithObjects(objects...).Build()
	list, err := workloadspread.ParseListAt(persistentpodstate.AllowListKey, `{"workloads":[{"Group":"games.example.com","Version":"v0","Kind":"Game"},{"Group":"x.example.com","Kind":"Gone"}]}`)
	if err != nil {
		t.Fatal(err)
	}
	listed, ready := list, true
	kinds := func(start bool) *Kinds {
		return &Kinds{caches: c, live: c, scales: scales{"scaled": 3}, mapper: mapper, listed: func() workloadspread.AllowList { return listed },
			ready: func() bool { return ready }, startOrdinal: start, followed: map[schema.GroupKind]cache.Informer{}, told: map[string]bool{}}
	}
	ordinals := func(start bool, kind schema.GroupKind, name string) string {
		workload, err := kinds(start).Read(t.Context(), "shop", persistentpodstate.Reference{GroupKind: kind, Name: name}, false)
		switch {
		case err != nil:
			return err.Error()
		case workload == nil:
			return "none"
		case workload.Slots == nil:
			return "unknown"
		}
		var all []int32
		for rank := range workload.Slots.Len() {
			ordinal, _ := workload.Slots.Nth(rank)
			all = append(all, ordinal)
		}
		return fmt.Sprint(workload.APIVersion, all)
	}
	gameKind := game.GroupKind()
	for name, got := range map[string][2]string{
		"of Kubernetes":                {ordinals(false, workloadkind.StatefulSet, "web"), "apps/v1[3 4]"},
		"of the other group":           {ordinals(true, workloadkind.AdvancedStatefulSet, "web"), "apps.kruise.io/v1beta1[3 5]"},
		"of the other group, gate off": {ordinals(false, workloadkind.AdvancedStatefulSet, "web"), "apps.kruise.io/v1beta1[2 3]"},
		"one that is not there":        {ordinals(true, workloadkind.StatefulSet, "db"), "none"},
		"listed, with replicas":        {ordinals(true, gameKind, "plain"), "games.example.com/v1[0 1]"},
		"listed, like a StatefulSet":   {ordinals(true, gameKind, "full"), "games.example.com/v1[1 3]"},
		"listed, without a scale":      {ordinals(true, gameKind, "sized"), "unknown"},
		"listed, with a scale":         {ordinals(true, gameKind, "scaled"), "games.example.com/v1[0 1 2]"},
		"listed, with an odd field":    {ordinals(true, gameKind, "odd"), "unknown"},
		"listed, not served":           {ordinals(true, schema.GroupKind{Group: "x.example.com", Kind: "Gone"}, "x"), errUnknown.Error()},
		"neither supported nor listed": {ordinals(true, schema.GroupKind{Group: "apps", Kind: "Deployment"}, "x"), errUnknown.Error()},
	} {
		if got[0] != got[1] {
			t.Errorf("%s: %s, want %s", name, got[0], got[1])
		}
	}
	for version, want := range map[string]bool{"apps/v1": true, "apps/v1beta2": true, "apps.kruise.io/v1beta1": true, "apps.kruise.io/v1alpha1": true, "games.example.com/v1": false} {
		state := &appsv1beta1.PersistentPodState{}
		state.Spec.TargetRef = appsv1beta1.PersistentPodStateTarget{APIVersion: version, Kind: "StatefulSet", Name: "web"}
		if got := persistentpodstate.BuiltIn(persistentpodstate.TargetOf(state).GroupKind); got != want {
			t.Errorf("a StatefulSet of %s is supported: %v", version, got)
		}
	}
	if all := kinds(true).All(); len(all) != 4 {
		t.Errorf("len(all): got %d, want 4\n%v", len(all), all)
	}
	if ready = false; !strings.Contains(ordinals(true, gameKind, "plain"), "not known yet") {
		t.Error("before the list is read")
	}
}

// PPS-060 (part), PPS-047 (part): a manager that began to lead with caches that lag saw the set as it was
// before a scale-out, and a pod where it was ready once. It forgot the place of the pod that took its name
// since.
func TestThePlaceOfAPodInUseWasForgottenAfterAScaleOut(t *testing.T) {
	w := pinned(t)
	w.node("b", "z2")
	w.make("web", 2, 0, nil)
	w.write("places", "web", nil)
	w.settle()
	before := w.places("places")
	former := w.Get(key("Pod", "web-1")).DeepCopyObject().(*corev1.Pod)
	w.Remove(key("Pod", "web-1"))
	w.Store(key("Pod", "web-1"), podBy("web-1", "apps/v1", ss, "web"))
	former.Spec.NodeName = map[string]string{"a": "b", "b": "a"}[former.Spec.NodeName]
	w.Show(key("Pod", "web-1"), former)
	smaller := w.set("web").DeepCopy()
	smaller.Spec.Replicas = new(int32(1))
	w.Show(key(ss, "web"), smaller)
	if _, err := w.r.controller().Run(t.Context(), client.ObjectKeyFromObject(w.state("places")), w.state("places").UID); err != nil {
		t.Fatal(err)
	}
	if got := w.places("places"); got != before {
		t.Errorf("recorded is %q, not %q", got, before)
	}
}
