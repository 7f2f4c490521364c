package controller

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/readiness"
	"github.com/afloat-project/afloat/internal/kinds/persistentpodstate"
	"github.com/afloat-project/afloat/internal/simulation"
	"github.com/afloat-project/afloat/internal/simulation/simulationtest"
)

func apply(t *testing.T, pod *corev1.Pod, operations []byte) {
	t.Helper()
	patch, err := jsonpatch.DecodePatch(operations)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(pod)
	if err == nil {
		raw, err = patch.Apply(raw)
	}
	if err == nil {
		*pod = corev1.Pod{}
		err = json.Unmarshal(raw, pod)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// PPS-003 (part), PPS-030 (part), PPS-031 (part), PPS-032 (part), PPS-033 (part), PPS-034 (part),
// PPS-035 (part), PPS-036 (part), PPS-037 (part), PPS-038 (part), PPS-039 (part), PPS-045 (part),
// PPS-046 (part), PPS-047 (part), PPS-048 (part), PPS-050 (part), PPS-051 (part), PPS-052 (part),
// PPS-053 (part), PPS-054 (part), PPS-055 (part), PPS-056 (part), PPS-060 (part), PPS-061 (part),
// PPS-062 (part), PPS-063 (part), PPS-064 (part), PPS-065 (part), PPS-070 (part), PPS-071 (part),
// PPS-072 (part), PPS-073 (part), PPS-074 (part), PPS-075 (part), PPS-076 (part), PPS-077 (part),
// PPS-078 (part), PPS-079 (part), PPS-080 (part), PPS-081 (part): whatever users do, and whatever lags, is
// lost, or dies, what is recorded is where a pod of that name was ready; it is forgotten only when its
// workload or its ordinal is gone; a must that is recorded is given to pods by whichever manager answers;
// what users wrote is not touched by generation; and in the end everything is as its plan wants it, and
// nothing is written at rest.
func TestSimulatedPlaces(t *testing.T) {
	simulationtest.Seeds(t, 300, func(t *testing.T, seed uint64) {
		w := newWorld(t, seed)
		for i := range 4 {
			w.node(fmt.Sprint("node-", i), fmt.Sprint("z", i%2))
		}
		w.make("web", 3, int32(w.Rand.IntN(2)*5), nil)
		w.make("db", 2, 0, map[string]string{pub.AutoGeneratePersistentPodState: "true", pub.RequiredPersistentTopology: "zone", pub.PersistentPodAnnotations: "ip"})
		w.write("places", "web", func(s *appsv1beta1.PersistentPodState) {
			if w.Chance(0.5) {
				s.Spec.PersistentPodStateRetentionPolicy = appsv1beta1.RetainWhenDeleted
			}
		})
		for range 3 {
			w.Faults = simulation.Faults{Refuse: 0.05, Lose: 0.05, Die: 0.03}
			for range 40 {
				switch w.Rand.IntN(7) {
				case 0:
					w.users()
				case 1:
					w.Pass(time.Duration(w.Rand.IntN(3000)) * time.Millisecond)
				case 2, 3:
					w.environmentStep()
				case 4:
					w.second = true
					w.As(w.other, func() { w.Deliver(w.Rand.IntN(6)) })
					w.second = false
				default:
					w.Events(w.Rand.IntN(6))
					w.Manage()
				}
				if w.Dead() {
					w.start()
				}
			}
			if w.Dead() {
				w.start()
			}
			w.settle()
			w.judge()
			if t.Failed() {
				t.Fatalf("the simulated cluster failed:\n%s", w.describe())
			}
		}
	})
}

// users change something.
func (w *world) users() {
	name := []string{"web", "db"}[w.Rand.IntN(2)]
	set := w.set(name)
	what := w.Rand.IntN(10)
	w.trace("user does %d to %s", what, name)
	switch pods := w.List("Pod", false); {
	case what < 3 && len(pods) > 0:
		w.EndGracefully(w.KeyOf("Pod", pods[w.Rand.IntN(len(pods))]))
	case what == 3 && len(pods) > 0: // evicted
		w.Change(w.KeyOf("Pod", pods[w.Rand.IntN(len(pods))]), func(o client.Object) { o.(*corev1.Pod).Status = corev1.PodStatus{Phase: corev1.PodFailed} })
	case what == 4 && set != nil:
		w.respec(ss, name, func(o client.Object) {
			replicas := int32(w.Rand.IntN(4))
			o.(*appsv1.StatefulSet).Spec.Replicas = &replicas
		})
	case what == 5 && set != nil:
		if w.Chance(0.5) { // without what belongs to it
			for _, kind := range []string{"Pod", pps} {
				for _, object := range w.List(kind, false) {
					if owner := metav1.GetControllerOf(object); owner != nil && owner.UID == set.UID {
						w.Change(w.KeyOf(kind, object), func(o client.Object) { o.SetOwnerReferences(nil) })
					}
				}
			}
		}
		w.Remove(key(ss, name))
	case set == nil:
		annotations := map[string]string{}
		if name == "db" && w.Chance(0.8) {
			annotations = map[string]string{pub.AutoGeneratePersistentPodState: "true", pub.PreferredPersistentTopology: "host", pub.RequiredPersistentTopology: "zone"}
		}
		w.make(name, 2, 0, annotations)
	case what == 6:
		w.Change(key(ss, name), func(o client.Object) {
			annotations := map[string]string{pub.AutoGeneratePersistentPodState: fmt.Sprint(w.Chance(0.7)), pub.RequiredPersistentTopology: []string{"zone", "zone,host", ""}[w.Rand.IntN(3)]}
			o.SetAnnotations(annotations)
		})
	case what == 7 && w.state("places") != nil:
		w.respec(pps, "places", func(o client.Object) {
			o.(*appsv1beta1.PersistentPodState).Spec.RequiredPersistentTopology.Keys = [][]string{{"zone"}, {"zone", "host"}, {"none", "zone"}}[w.Rand.IntN(3)]
		})
	case what == 8:
		if w.state("db") == nil && w.Chance(0.2) {
			w.write("db", "db", nil)
		} else if w.state("db") != nil {
			w.EndGracefully(key(pps, "db"))
		}
	default:
		node := fmt.Sprint("node-", w.Rand.IntN(4))
		if w.Get(key("Node", node)) == nil {
			w.node(node, "z1")
		} else if w.Chance(0.3) {
			w.Remove(key("Node", node))
		} else {
			w.Change(key("Node", node), func(o client.Object) { o.GetLabels()["zone"] = fmt.Sprint("z", w.Rand.IntN(2)) })
		}
	}
}

// check holds each write of the manager against what it may do.
func (w *world) check(write simulation.Write, before, after client.Object) {
	w.trace("%+v", write)
	if write.Key.Kind != pps {
		w.t.Fatalf("PPS-003: a write to %+v", write)
	}
	byHand := func(object client.Object) bool { return object != nil && object.GetLabels()["by"] == "hand" }
	if write.Subresource == "" && (byHand(before) || byHand(after)) {
		w.t.Fatalf("PPS-077: %s of what a user wrote", write.Verb)
	}
	if write.Subresource == "" && write.Verb != "delete" {
		owner := metav1.GetControllerOf(after)
		if set := w.set(after.GetName()); set == nil {
			w.t.Errorf("PPS-078: set of the state: got nil, want a value; generated for %+v", owner)
		} else if owner == nil {
			w.t.Error("PPS-078: owner: got nil, want a value")
		} else if owner.UID != set.UID {
			w.t.Errorf("PPS-078: UID of the owner: got %q, want %q; generated for %+v", owner.UID, set.UID, owner)
		}
	}
	if write.Subresource != "status" {
		return
	}
	old, state := before.(*appsv1beta1.PersistentPodState), after.(*appsv1beta1.PersistentPodState)
	set := w.set(state.Spec.TargetRef.Name)
	for name, entry := range state.Status.PodStates {
		was, known := old.Status.PodStates[name]
		if known && equality.Semantic.DeepEqual(was, entry) {
			continue
		}
		if !w.stood[name+" "+entry.NodeName] {
			w.t.Errorf("PPS-050: %s was never ready on %s", name, entry.NodeName)
		}
		pod, _ := w.Get(key("Pod", name)).(*corev1.Pod)
		if known && was.NodeName != entry.NodeName && (pod == nil || !readiness.Ready(pod) || pod.Spec.NodeName != entry.NodeName) {
			w.t.Errorf("PPS-054: %s moves from %s to %s, where it is not", name, was.NodeName, entry.NodeName)
		}
	}
	for name, entry := range old.Status.PodStates {
		if _, kept := state.Status.PodStates[name]; kept || set == nil || set.DeletionTimestamp != nil {
			continue
		}
		emptied := metav1.GetControllerOf(old) == nil || metav1.GetControllerOf(old).UID != set.UID
		ordinal, _ := persistentpodstate.Ordinal(name)
		used := ordinal >= set.Spec.Ordinals.Start && ordinal < set.Spec.Ordinals.Start+*set.Spec.Replicas
		switch {
		case state.Name == "db" && emptied && !byHand(old): // of an earlier workload
		case w.Get(key("Node", entry.NodeName)) == nil: // PPS-105
		case used:
			w.t.Errorf("PPS-060: %s is forgotten by %+v although it is in use", name, state.Name)
		case state.Spec.PersistentPodStateRetentionPolicy == appsv1beta1.RetainWhenDeleted:
			w.t.Errorf("PPS-063: %s is forgotten", name)
		}
	}
}

// settle lets what is under way come to rest.
func (w *world) settle() {
	w.t.Helper()
	w.Faults = simulation.Faults{}
	for range 20 {
		for range 300 {
			if !w.Round() {
				break
			}
		}
		w.second = true
		w.As(w.other, func() { w.Deliver(1 << 20) })
		w.second = false
		w.Pass(6 * time.Second)
		w.Queue.Add()
		w.requeueAll()
	}
}

// judge says what holds at rest.
func (w *world) judge() {
	writes := len(w.Writes)
	w.requeueAll()
	for range 5 {
		w.Round()
	}
	if len(w.Writes) > writes {
		w.t.Errorf("PPS-081: written at rest: %v", w.Writes[writes:])
	}
	for _, object := range w.List(pps, false) {
		state := object.(*appsv1beta1.PersistentPodState)
		set := w.set(state.Spec.TargetRef.Name)
		if state.Status.ObservedGeneration != state.Generation {
			w.t.Errorf("PPS-080: %s has observed %d of %d", state.Name, state.Status.ObservedGeneration, state.Generation)
		}
		if set == nil {
			for name := range state.Status.PodStates {
				if pod, _ := w.Get(key("Pod", name)).(*corev1.Pod); pod == nil {
					w.t.Errorf(`PPS-047: pod: got nil, want a value; %s has %s without a workload`, state.Name, name)
				} else if !readiness.Active(pod) {
					w.t.Errorf("PPS-047: the pod is active: got false, want true; %s has %s without a workload", state.Name,
						name)
				}
			}
			continue
		}
		for _, object := range w.List("Pod", false) {
			pod := object.(*corev1.Pod)
			if owner := metav1.GetControllerOf(pod); owner == nil || owner.UID != set.UID || !readiness.Ready(pod) || !readiness.Active(pod) {
				continue
			}
			node := w.Get(key("Node", pod.Spec.NodeName))
			entry := state.Status.PodStates[pod.Name]
			if entry.NodeName != pod.Spec.NodeName {
				w.t.Errorf("PPS-051: node: got %q, want %q; %s is remembered as %+v by %s, and is on %s", entry.NodeName,
					pod.Spec.NodeName, pod.Name, entry, state.Name, pod.Spec.NodeName)
			}
			if entry.NodeTopologyLabels["zone"] != node.GetLabels()["zone"] {
				w.t.Errorf(`PPS-051: node topology label zone: got %q, want %q; %s is remembered as %+v by %s, and is on %s`,
					entry.NodeTopologyLabels["zone"], node.GetLabels()["zone"], pod.Name, entry, state.Name, pod.Spec.NodeName)
			}
		}
	}
	if set := w.set("db"); set != nil {
		state := w.state("db")
		asked := persistentpodstate.Asks(set.Annotations) && set.Annotations[pub.RequiredPersistentTopology] != ""
		if asked && state == nil {
			w.t.Errorf("PPS-073: nothing is generated for %v", set.Annotations)
		}
		if state != nil && state.Labels["by"] != "hand" && metav1.IsControlledBy(state, set) && !persistentpodstate.Asks(set.Annotations) {
			w.t.Errorf("PPS-076: it stays for %v", set.Annotations)
		}
	}
}
