package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	"github.com/afloat-project/afloat/internal/kinds/podprobemarker"
	"github.com/afloat-project/afloat/internal/platform/slim"
	"github.com/afloat-project/afloat/internal/reconcile"
	"github.com/afloat-project/afloat/internal/simulation"
)

// world is a cluster with nodes whose daemons stand by, and a manager with both controllers, whose caches
// lag, whose requests fail, and which dies.
type world struct {
	t *testing.T
	*simulation.Play
	r            *Reconcilers
	node, marker *reconcile.Loop
	// nodes and markers are asked for by events, due at a time.
	nodes, markers map[types.NamespacedName]time.Time
	told           []string
	options        Options
	live           int // how often pods were read from the API server
}

func newWorld(t *testing.T, seed uint64, options Options) *world {
	c := simulation.New(seed)
	w := &world{t: t, Play: &simulation.Play{Cluster: c}, options: options}
	c.Namespaces, c.Slim, c.Apart = true, slim.Any, c.Rand.IntN(2) == 0
	c.Delivered = w.delivered
	c.BeforeWrite = w.check
	c.Answer = func(r *simulation.Request) error {
		if r.Verb == "get" && r.Key.Kind == "Pod" {
			w.live++
		}
		return nil
	}
	if err := c.IndexField(t.Context(), &appsv1alpha1.NodePodProbe{}, byMarker, indexMarkers); err != nil {
		t.Fatal(err)
	}
	w.Start, w.Reconcile, w.Describe = w.start, w.reconcile, w.describe
	w.EnvironmentStep = func() bool { return false }
	w.start()
	return w
}

// start is a manager that remembers nothing.
func (w *world) start() {
	w.Restart()
	w.options.Pods = w.Pods()
	w.r = NewReconcilers(w.API(), w.options, w)
	w.r.Nodes.API = w.API()
	w.node, w.marker = w.r.NodeLoop(nil), w.r.Markers.controller().Loop(nil)
	w.nodes, w.markers = map[types.NamespacedName]time.Time{}, map[types.NamespacedName]time.Time{}
	w.r.Wake(func(namespace, name string) { w.ask(w.markers)(reconcile.Request(namespace, name), 0) })
	for _, kind := range []string{"Node", "NodePodProbe"} {
		for _, object := range w.List(kind, true) {
			w.nodes[types.NamespacedName{Name: object.GetName()}] = w.Now()
		}
	}
	for _, object := range w.List("PodProbeMarker", true) {
		w.markers[client.ObjectKeyFromObject(object)] = w.Now()
	}
	w.Queue = simulation.NewQueue(w.Cluster, "all")
}

// ask puts what is asked for into a queue.
func (w *world) ask(queue map[types.NamespacedName]time.Time) add {
	return func(request ctrl.Request, after time.Duration) {
		due := w.Now().Add(after)
		if before, there := queue[request.NamespacedName]; !there || due.Before(before) {
			queue[request.NamespacedName] = due
		}
		if w.Queue != nil {
			w.Queue.Add()
		}
	}
}

// delivered is what the watches of the controllers do with an event.
func (w *world) delivered(before, after client.Object) {
	if w.Dead() || w.r == nil {
		return
	}
	object := after
	if object == nil {
		object = before
	}
	update := event.UpdateEvent{ObjectOld: before, ObjectNew: after}
	both := before != nil && after != nil
	ctx, nodes, markers := context.Background(), w.ask(w.nodes), w.ask(w.markers)
	self := ctrl.Request{NamespacedName: client.ObjectKeyFromObject(object)}
	switch object.(type) {
	case *corev1.Node:
		if !both || nodeChanged(update) {
			nodes(self, 0)
		}
		w.r.MarkersOfNode(ctx, before, after, markers)
	case *appsv1alpha1.NodePodProbe:
		nodes(self, 0)
		MarkersOfList(ctx, before, after, markers)
	case *appsv1alpha1.PodProbeMarker:
		if !both || markerChanged(update) {
			markers(self, 0)
		}
		w.r.NodesOfMarker(ctx, before, after, nodes)
	case *corev1.Pod:
		w.r.NodesOfPod(ctx, before, after, nodes)
		w.r.MarkersOfPod(ctx, before, after, markers)
	}
}

// reconcile makes a pass over all that is due.
func (w *world) reconcile() (after time.Duration, err error) {
	for i, queue := range []map[types.NamespacedName]time.Time{w.nodes, w.markers} {
		loop := []*reconcile.Loop{w.node, w.marker}[i]
		for _, kind := range []string{"Node", "NodePodProbe", "PodProbeMarker"} { // in an order that comes from the seed, and those that are gone
			for _, object := range w.List(kind, false) {
				w.one(loop, queue, client.ObjectKeyFromObject(object), &err)
			}
		}
		for len(queue) > 0 {
			least := types.NamespacedName{}
			for name, due := range queue {
				if !due.After(w.Now()) && (least.Name == "" || name.String() < least.String()) {
					least = name
				}
			}
			if least.Name == "" {
				break
			}
			if before := queue[least]; !w.one(loop, queue, least, &err) || queue[least].Equal(before) {
				break
			}
		}
		for _, due := range queue {
			reconcile.MinRequeue(&after, max(due.Sub(w.Now()), time.Millisecond))
		}
	}
	return after, nil
}

func (w *world) one(loop *reconcile.Loop, queue map[types.NamespacedName]time.Time, name types.NamespacedName, failed *error) bool {
	due, there := queue[name]
	if !there || due.After(w.Now()) || w.Dead() {
		return false
	}
	delete(queue, name)
	result, err := loop.Reconcile(w.t.Context(), ctrl.Request{NamespacedName: name})
	if err != nil {
		*failed = err
		result.RequeueAfter = 50 * time.Millisecond
	}
	if result.RequeueAfter > 0 {
		w.ask(queue)(ctrl.Request{NamespacedName: name}, result.RequeueAfter)
	}
	return true
}

// Event implements reconcile.Recorder.
func (w *world) Event(about client.Object, kind, reason, message string) {
	w.told = append(w.told, fmt.Sprintf("%s %s %s: %s", about.GetName(), kind, reason, message))
}

func (w *world) describe() string {
	var text strings.Builder
	for _, kind := range []string{"Node", "NodePodProbe", "PodProbeMarker", "Pod"} {
		for _, object := range w.List(kind, false) {
			raw, _ := json.Marshal(object)
			fmt.Fprintf(&text, "%s %s\n", kind, raw)
		}
	}
	return text.String() + fmt.Sprint(w.nodes, w.markers, w.r.Nodes.told, w.Undelivered())
}

func podKey(namespace, name string) simulation.Key {
	return simulation.Key{Kind: "Pod", Name: namespace + "/" + name}
}
func markerKey(namespace, name string) simulation.Key {
	return simulation.Key{Kind: "PodProbeMarker", Name: namespace + "/" + name}
}
func nodeKey(name string) simulation.Key { return simulation.Key{Kind: "Node", Name: name} }
func listKey(name string) simulation.Key { return simulation.Key{Kind: "NodePodProbe", Name: name} }

func (w *world) list(node string) *appsv1alpha1.NodePodProbe {
	list, _ := w.Get(listKey(node)).(*appsv1alpha1.NodePodProbe)
	return list
}

func (w *world) pod(namespace, name string) *corev1.Pod {
	pod, _ := w.Get(podKey(namespace, name)).(*corev1.Pod)
	return pod
}

func (w *world) get(namespace, name string) *appsv1alpha1.PodProbeMarker {
	marker, _ := w.Get(markerKey(namespace, name)).(*appsv1alpha1.PodProbeMarker)
	return marker
}

// put stores a PodProbeMarker as its author does.
func (w *world) put(marker *appsv1alpha1.PodProbeMarker) {
	key := markerKey(marker.Namespace, marker.Name)
	if w.Get(key) == nil {
		marker.UID, marker.Generation = "", 0
		w.Store(key, marker)
		return
	}
	w.Change(key, func(o client.Object) {
		o.(*appsv1alpha1.PodProbeMarker).Spec = marker.Spec
		o.SetGeneration(o.GetGeneration() + 1)
	})
}

// probing is the daemon of a node: what it is told it answers, by what the probes of the node say, and
// forgets the rest (PPM-096).
func (w *world) probing(node string, answer func(pod *appsv1alpha1.PodProbe, probe *appsv1alpha1.ContainerProbe) appsv1alpha1.ContainerProbeState) bool {
	list := w.list(node)
	if list == nil {
		return false
	}
	before := map[string]appsv1alpha1.ContainerProbeState{}
	for _, pod := range list.Status.PodProbeStatuses {
		for _, state := range pod.ProbeStates {
			before[pod.UID+" "+state.Name] = state
		}
	}
	var statuses []appsv1alpha1.PodProbeStatus
	for i := range list.Spec.PodProbes {
		pod := &list.Spec.PodProbes[i]
		status := appsv1alpha1.PodProbeStatus{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}
		for j := range pod.Probes {
			state := answer(pod, &pod.Probes[j])
			if was, ok := before[pod.UID+" "+state.Name]; ok && was.State == state.State && was.Message == state.Message {
				state = was
			}
			status.ProbeStates = append(status.ProbeStates, state)
		}
		statuses = append(statuses, status)
	}
	a, _ := json.Marshal(statuses)
	if b, _ := json.Marshal(list.Status.PodProbeStatuses); string(a) == string(b) {
		return false
	}
	w.Change(listKey(node), func(o client.Object) { o.(*appsv1alpha1.NodePodProbe).Status.PodProbeStatuses = statuses })
	return true
}

// check holds each write of the manager against what it may do.
func (w *world) check(write simulation.Write, before, after client.Object) {
	if os.Getenv("TRACE") != "" {
		w.t.Logf("%s %+v", w.Now().Format(time.TimeOnly), write)
	}
	switch write.Key.Kind {
	case "NodePodProbe":
		list, ok := after.(*appsv1alpha1.NodePodProbe)
		if write.Subresource != "" {
			w.t.Errorf("only the daemon writes the status: %+v", write)
		}
		if !ok {
			if node := w.Get(nodeKey(write.Key.Name)); node != nil && node.GetDeletionTimestamp() == nil && !podprobemarker.Virtual(node.(*corev1.Node)) {
				w.t.Errorf("the NodePodProbe of a node that is there is deleted") // PPM-065
			}
			return
		}
		if text, _ := json.Marshal(list.Spec); len(text) > podprobemarker.MostListBytes {
			w.t.Errorf("%d bytes", len(text))
		}
		for _, pod := range list.Spec.PodProbes {
			for _, probe := range pod.Probes {
				if marker := podprobemarker.MarkerOf(probe.Name); marker == "" {
					w.t.Errorf("marker of the probe: got nothing, want some text; %+v is to be probed", probe)
				}
				if got := podprobemarker.Fault(&probe.Probe); got != "" {
					w.t.Errorf("fault of the probe: got %q, want %q; %+v is to be probed", got, "", probe)
				}
			}
		}
	case "PodProbeMarker":
		if before.GetDeletionTimestamp() != nil && len(before.GetFinalizers()) > 0 && (after == nil || len(after.GetFinalizers()) < len(before.GetFinalizers())) {
			key := before.GetNamespace() + "/" + before.GetName()
			for _, object := range w.List("NodePodProbe", false) { // PPM-057
				if podprobemarker.Listed(object.(*appsv1alpha1.NodePodProbe).Spec.PodProbes)[key] {
					w.t.Errorf("%s goes, and %s still has its probes", key, object.GetName())
				}
			}
		}
	case "Pod":
		if write.Verb != "patch" {
			w.t.Errorf("verb of the write: got %q, want %q\n%+v", write.Verb, "patch", write)
		}
		if write.Subresource != "" && write.Subresource != "status" {
			w.t.Errorf("subresource of the write: got %q, want %q\n%+v", write.Subresource, "status", write)
		}
		was, is := before.(*corev1.Pod), after.(*corev1.Pod)
		if fmt.Sprint(was.Spec) != fmt.Sprint(is.Spec) || is.Labels["app"] != was.Labels["app"] || is.Labels["mine"] != was.Labels["mine"] { // PPM-074
			w.t.Errorf("%+v changes more than what is its own", write)
		}
		for _, c := range was.Status.Conditions {
			if !strings.HasPrefix(string(c.Type), "example.com/") && !holds(is, c) {
				w.t.Errorf("condition %s is written over", c.Type)
			}
		}
	default:
		w.t.Errorf("a write to %+v", write)
	}
}

func holds(pod *corev1.Pod, want corev1.PodCondition) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == want.Type && c.Status == want.Status {
			return true
		}
	}
	return false
}

// quiet lets all act until nothing is left to do.
func (w *world) quiet() {
	w.t.Helper()
	w.Faults = simulation.Faults{}
	if err := w.Settle(3000); err != nil {
		w.t.Fatal(err)
	}
}
