package controller

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/kinds/podprobemarker"
	given "github.com/afloat-project/afloat/internal/kinds/podprobemarker/podprobemarkertest"
	"github.com/afloat-project/afloat/internal/simulation"
	"github.com/afloat-project/afloat/internal/simulation/simulationtest"
)

var (
	simNodes  = []string{"n1", "n2", "v"}
	simSpaces = []string{"shop", "other"}
	simNames  = []string{"b", "ab"} // one is in the other
)

func pick(w *world, of []string) string { return of[w.Rand.IntN(len(of))] }

// author creates, changes or deletes a PodProbeMarker.
func (w *world) author() {
	space, name := pick(w, simSpaces), pick(w, simNames)
	if w.Chance(0.3) {
		if w.get(space, name) != nil {
			w.EndGracefully(markerKey(space, name))
		}
		return
	}
	if marker := w.get(space, name); marker != nil && marker.DeletionTimestamp != nil {
		return
	}
	var probes []appsv1alpha1.PodContainerProbe
	for i := range 1 + w.Rand.IntN(2) {
		p := given.Probe(fmt.Sprint("p", i))
		switch w.Rand.IntN(5) {
		case 0:
			p.Probe = appsv1alpha1.ContainerProbeSpec{ContainerProbeHandler: appsv1alpha1.ContainerProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromString(pick(w, []string{"http", "none", "81"}))}}}
		case 1:
			p.MarkerPolicy[0].Annotations = map[string]string{"example.com/note": name}
		case 2:
			p.MarkerPolicy = p.MarkerPolicy[:1]
		case 3:
			p.PodConditionType = ""
		}
		probes = append(probes, p)
	}
	marker := given.Marker(name, probes...)
	marker.Namespace = space
	if w.get(space, name) == nil && w.Chance(0.3) {
		marker.Spec.Selector.MatchLabels = map[string]string{"app": "db"}
	} else if before := w.get(space, name); before != nil {
		marker.Spec.Selector = before.Spec.Selector
	}
	w.put(marker)
}

// users let pods and nodes come, change and go.
func (w *world) users() {
	space, name, node := pick(w, simSpaces), pick(w, []string{"a", "b", "c"}), pick(w, simNodes)
	key := podKey(space, name)
	switch n := w.Rand.IntN(13); {
	case n < 3:
		w.author()
	case w.pod(space, name) == nil && w.Get(nodeKey(node)) != nil:
		w.Store(key, given.Pod(name, func(p *corev1.Pod) {
			p.Namespace, p.UID, p.Spec.NodeName, p.Labels["mine"] = space, "", node, "yes"
			p.Spec.Containers[0].Ports = []corev1.ContainerPort{{Name: "http", ContainerPort: 80}}
			p.Status = corev1.PodStatus{Phase: corev1.PodPending}
			if w.Chance(0.3) { // one that the caches keep whole
				p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps.kruise.io/v1beta1", Kind: "CloneSet", Name: "x", UID: "x", Controller: new(true)}}
			}
		}))
	case n == 3:
		w.Remove(key)
	case n == 4:
		w.EndGracefully(key)
	case n == 5:
		w.Change(key, func(o client.Object) { o.GetLabels()["app"] = pick(w, []string{"web", "db"}) })
	case n == 6:
		w.Change(key, func(o client.Object) {
			o.GetLabels()["p0"], o.GetLabels()["mine"] = "users", fmt.Sprint(w.Rand.IntN(3))
		})
	case n == 7 && node != "v":
		if w.Get(nodeKey(node)) == nil {
			w.Store(nodeKey(node), given.Node(node))
		} else if w.Chance(0.3) {
			w.Remove(nodeKey(node))
			for _, pod := range w.List("Pod", false) {
				if pod.(*corev1.Pod).Spec.NodeName == node {
					w.Remove(w.KeyOf("Pod", pod))
				}
			}
		} else {
			w.Change(nodeKey(node), func(o client.Object) {
				o.(*corev1.Node).Status.Conditions[0].Status = []corev1.ConditionStatus{"True", "False"}[w.Rand.IntN(2)]
			})
		}
	case n == 8:
		w.Change(key, func(o client.Object) { o.(*corev1.Pod).Status.Phase = corev1.PodFailed })
	case n == 9 && node != "v":
		w.Remove(listKey(node)) // somebody deletes it
	default:
		w.Change(key, func(o client.Object) { // kubelet
			status := &o.(*corev1.Pod).Status
			status.Phase, status.PodIP = corev1.PodRunning, fmt.Sprint("10.0.0.", w.Rand.IntN(3))
			if o.(*corev1.Pod).Spec.NodeName == "v" { // the provider probes
				status.Conditions = []corev1.PodCondition{{Type: "example.com/p0", Status: []corev1.ConditionStatus{"True", "False"}[w.Rand.IntN(2)]}}
			}
		})
	}
}

// daemons let nodes probe; what they find changes with the time.
func (w *world) daemons(rest bool) (moved bool) {
	for _, node := range simNodes {
		if !rest && w.Chance(0.5) { // it is away
			continue
		}
		moved = w.probing(node, func(pod *appsv1alpha1.PodProbe, probe *appsv1alpha1.ContainerProbe) appsv1alpha1.ContainerProbeState {
			states := []appsv1alpha1.ProbeState{appsv1alpha1.ProbeSucceeded, appsv1alpha1.ProbeFailed, appsv1alpha1.ProbeUnknown}
			state := states[(len(pod.UID)+len(probe.Name)+int(pod.UID[len(pod.UID)-1]))%2]
			if !rest {
				state = states[w.Rand.IntN(3)]
			}
			result := given.Result(probe.Name, state, "it is "+string(state))
			result.LastProbeTime = metav1.NewTime(w.Now())
			return result
		}) || moved
	}
	return moved
}

// TestSimulatedProbes (PPM-050, PPM-051 (part), PPM-054 (part), PPM-055, PPM-056 (part), PPM-057, PPM-059,
// PPM-060, PPM-065, PPM-066 (part), PPM-074 (part), PPM-116 (part)): whatever dies, lags, is lost, or is done
// by users, no PodProbeMarker goes while a node has its probes, nothing of others is written, and in the end
// each node is told what it is to probe, each pod has what the results say, all are counted, and nothing is
// written at rest.
func TestSimulatedProbes(t *testing.T) {
	simulationtest.Seeds(t, 200, func(t *testing.T, seed uint64) {
		w := newWorld(t, seed, Options{Serverless: true})
		for _, name := range simNodes {
			node := given.Node(name)
			node.UID = ""
			if name == "v" {
				node.Labels[pub.NodeType] = pub.VirtualNode
			}
			w.Store(nodeKey(name), node)
		}
		w.author()
		for range 3 {
			w.EnvironmentStep = func() bool { return false }
			w.Faults = simulation.Faults{Refuse: 0.05, Lose: 0.05, Die: 0.03}
			for range 60 {
				switch w.Rand.IntN(8) {
				case 0, 1, 2:
					w.users()
				case 3:
					w.Pass(time.Duration(w.Rand.IntN(1500)) * time.Millisecond)
				case 4:
					w.daemons(false)
				default:
					w.Events(w.Rand.IntN(6))
					w.Manage()
				}
				if w.Dead() {
					w.start()
				}
			}
			w.EnvironmentStep = func() bool { return w.daemons(true) }
			w.quiet()
			w.judge()
			writes := len(w.Writes)
			w.start()
			w.quiet()
			if len(w.Writes) > writes {
				t.Errorf("written at rest: %v", w.Writes[writes:])
			}
			if t.Failed() {
				t.Fatalf("the simulated cluster failed:\n%s", w.describe())
			}
		}
	})
}

// judge says what holds at rest: the plan for what there is is empty.
func (w *world) judge() {
	var pods []*corev1.Pod
	for _, pod := range w.List("Pod", false) {
		pods = append(pods, pod.(*corev1.Pod))
	}
	nodes := map[string]bool{}
	for _, name := range simNodes {
		node, _ := w.Get(nodeKey(name)).(*corev1.Node)
		nodes[name] = node != nil
		s := podprobemarker.Snapshot{Name: name, Node: node, List: w.list(name), Now: w.Now(), Serverless: true, Ports: podprobemarker.Port,
			Whole:    func(*corev1.Pod) bool { return true },
			Replaced: func(*corev1.Pod, string, time.Time) bool { return false }}
		for _, pod := range pods {
			if pod.Spec.NodeName == name {
				s.Pods = append(s.Pods, pod)
			}
		}
		s.Markers = func(namespace string) []podprobemarker.Marker {
			var all []*appsv1alpha1.PodProbeMarker
			for _, object := range w.List("PodProbeMarker", false) {
				if object.GetNamespace() == namespace {
					all = append(all, object.(*appsv1alpha1.PodProbeMarker))
				}
			}
			markers, _ := podprobemarker.Markers(all, nil)
			return markers
		}
		if left := podprobemarker.PlanNode(&s).String(); left != "" {
			w.t.Errorf("%s: %s is left to do", name, left)
		}
	}
	for _, object := range w.List("PodProbeMarker", false) {
		marker := object.(*appsv1alpha1.PodProbeMarker)
		want := appsv1alpha1.PodProbeMarkerStatus{ObservedGeneration: marker.Generation,
			MatchedPods: podprobemarker.Matches(marker, pods, func(node string) bool { return nodes[node] })}
		if marker.DeletionTimestamp != nil {
			w.t.Errorf("time of deletion of the marker: got %v, want nil; %s/%s: %+v %v, want %+v",
				marker.DeletionTimestamp, marker.Namespace,
				marker.Name, marker.ObjectMeta, marker.Status, want)
		} else if marker.Status != want {
			w.t.Errorf("status of the marker: got %+v, want %+v; %s/%s: %+v %v, want %+v", marker.Status, want,
				marker.Namespace, marker.Name,
				marker.ObjectMeta, marker.Status, want)
		} else if len(marker.Finalizers) != 1 {
			w.t.Errorf("number of finalizers of the marker: got %d, want 1; %s/%s: %+v %v, want %+v",
				len(marker.Finalizers), marker.Namespace, marker.Name,
				marker.ObjectMeta, marker.Status, want)
		}
	}
}
