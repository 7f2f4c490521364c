package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/readiness"
	"github.com/afloat-project/afloat/internal/engine/workloadkind"
	"github.com/afloat-project/afloat/internal/kinds/persistentpodstate"
	"github.com/afloat-project/afloat/internal/kinds/workloadspread"
	"github.com/afloat-project/afloat/internal/platform/slim"
	"github.com/afloat-project/afloat/internal/reconcile"
	"github.com/afloat-project/afloat/internal/simulation"
)

const pps, ss = "PersistentPodState", "StatefulSet"

// requestsOf keeps the requests that event handlers ask for.
type requestsOf struct {
	queue
	names map[types.NamespacedName]bool
}

// Add implements the queue.
func (q *requestsOf) Add(request ctrl.Request) { q.names[request.NamespacedName] = true }

func (q *requestsOf) take() []types.NamespacedName {
	names := slices.SortedFunc(maps.Keys(q.names), func(a, b types.NamespacedName) int { return strings.Compare(a.String(), b.String()) })
	clear(q.names)
	return names
}

// world is a cluster with StatefulSets of Kubernetes, their pods and nodes, the manager that leads, and one
// that only answers webhooks, whose caches lag apart.
type world struct {
	simulation.Play
	t    *testing.T
	r    *Reconciler
	g    *Generator
	loop *reconcile.Loop
	// records and asks are what passes are asked for.
	records, asks *requestsOf
	// watches are those of the manager that leads and of the other one, whose caches are other.
	watches [2]*Watch
	other   *simulation.View
	second  bool
	told    []string
	// stood has the nodes on which pods of a name were ready.
	stood map[string]bool
	// created counts the pods that were created.
	created int
}

func newWorld(t *testing.T, seed uint64) *world {
	t.Helper()
	c := simulation.New(seed)
	w := &world{t: t, stood: map[string]bool{}}
	c.Slim, c.Apart, c.Namespaces = slim.Any, true, true
	if err := Indexed(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	w.Play = simulation.Play{Cluster: c, Queue: simulation.NewQueue(c, "any"), Start: w.start, EnvironmentStep: w.environmentStep, Describe: w.describe, Reconcile: w.reconcile}
	c.BeforeWrite, c.Delivered = w.check, w.delivered
	w.other = c.Fork()
	for i := range w.watches {
		w.watches[i] = newWatch(c.APIReader(), func() workloadspread.AllowList { return workloadspread.AllowList{} }, func() bool { return true }, logr.Discard(), c.Now)
		w.watches[i].Absent()
	}
	w.start()
	return w
}

// start starts a manager that leads.
func (w *world) start() {
	w.Restart()
	w.records, w.asks = &requestsOf{names: map[types.NamespacedName]bool{}}, &requestsOf{names: map[types.NamespacedName]bool{}}
	kinds := &Kinds{caches: w.Client(), live: w.APIReader(), listed: func() workloadspread.AllowList { return workloadspread.AllowList{} },
		ready: func() bool { return true }, startOrdinal: true, followed: map[schema.GroupKind]cache.Informer{}, told: map[string]bool{}}
	w.r = &Reconciler{API: w.API(), Events: w, Pods: w.Pods(), Workloads: onlyNative{kinds}, Cleanup: true}
	w.g = &Generator{Reconciler: &Reconciler{API: w.API(), Events: w, Pods: w.Pods(), Workloads: onlyNative{kinds}}}
	w.g.Own = nil
	w.loop = w.r.controller().Loop(nil)
	w.Queue = simulation.NewQueue(w.Cluster, "any")
	w.requeueAll()
}

// onlyNative leaves out StatefulSets of the other group, which the simulation cannot tell apart.
type onlyNative struct{ *Kinds }

// All implements Workloads.
func (onlyNative) All() []schema.GroupKind { return []schema.GroupKind{workloadkind.StatefulSet} }

// requeueAll asks for all passes that a manager makes at its start.
func (w *world) requeueAll() {
	for _, object := range w.List(pps, true) {
		w.records.Add(requestFor(object))
		add(w.asks, w.g.ofState(context.Background(), schema.GroupKind{}, nil, object))
	}
	for _, object := range w.List(ss, true) {
		add(w.asks, ofAsking(context.Background(), workloadkind.StatefulSet, nil, object))
	}
	w.Queue.Add()
}

func requestFor(object client.Object) ctrl.Request {
	return reconcile.Request(object.GetNamespace(), object.GetName())
}

// delivered brings an event to the manager.
func (w *world) delivered(before, after client.Object) {
	one := after
	if one == nil {
		one = before
	}
	at := 0
	if w.second {
		at = 1
	}
	if state, ok := one.(*appsv1beta1.PersistentPodState); ok {
		if after == nil {
			w.watches[at].OnDelete(state)
		} else {
			w.watches[at].OnAdd(state, false)
		}
	}
	if w.second {
		return
	}
	switch one.(type) {
	case *appsv1beta1.PersistentPodState:
		w.records.Add(requestFor(one))
		add(w.asks, w.g.ofState(context.Background(), schema.GroupKind{}, before, after))
	case *appsv1.StatefulSet:
		add(w.records, w.r.ofWorkload(context.Background(), workloadkind.StatefulSet, before, after))
		add(w.asks, ofAsking(context.Background(), workloadkind.StatefulSet, before, after))
	case *corev1.Pod:
		switch pods := (&podEvents{w.r}); {
		case before == nil:
			pods.Create(w.t.Context(), event.CreateEvent{Object: after}, w.records)
		case after == nil:
			pods.Delete(w.t.Context(), event.DeleteEvent{Object: before}, w.records)
		default:
			pods.Update(w.t.Context(), event.UpdateEvent{ObjectOld: before, ObjectNew: after}, w.records)
		}
	case *corev1.Node:
		switch nodes := (&nodeEvents{w.r}); {
		case before == nil:
			nodes.Create(w.t.Context(), event.CreateEvent{Object: after}, w.records)
		case after == nil:
			nodes.Delete(w.t.Context(), event.DeleteEvent{Object: before}, w.records)
		default:
			nodes.Update(w.t.Context(), event.UpdateEvent{ObjectOld: before, ObjectNew: after}, w.records)
		}
	}
	if len(w.records.names)+len(w.asks.names) > 0 {
		w.Queue.Add()
	}
}

// reconcile makes the passes that are asked for.
func (w *world) reconcile() (after time.Duration, err error) {
	names, asks := w.records.take(), w.asks.take()
	for _, object := range w.List(pps, true) { // what is due is not kept by name here
		if name := client.ObjectKeyFromObject(object); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for _, name := range names {
		result, failed := w.loop.Reconcile(w.t.Context(), ctrl.Request{NamespacedName: name})
		reconcile.MinRequeue(&after, result.RequeueAfter)
		if failed != nil {
			err = failed
			w.records.names[name] = true
		}
	}
	for _, name := range asks {
		result, failed := w.g.Reconcile(w.t.Context(), ctrl.Request{NamespacedName: name})
		reconcile.MinRequeue(&after, result.RequeueAfter)
		if failed != nil || result.RequeueAfter > 0 {
			w.asks.names[name] = true
		}
		if failed != nil {
			err = failed
		}
	}
	return after, err
}

// Event implements reconcile.Recorder.
func (w *world) Event(about client.Object, kind, reason, message string) {
	w.told = append(w.told, fmt.Sprintf("%s %s %s: %s", about.GetName(), kind, reason, message))
}

func (w *world) describe() string {
	var text strings.Builder
	for _, kind := range []string{pps, ss, "Pod", "Node"} {
		for _, object := range w.List(kind, false) {
			raw, _ := json.Marshal(object)
			fmt.Fprintf(&text, "%s %s\n", kind, raw)
		}
	}
	return text.String() + strings.Join(w.told, "\n")
}

func (w *world) trace(format string, values ...any) {
	if os.Getenv("TRACE") != "" {
		w.t.Logf("%s "+format, append([]any{w.Now().Format(time.TimeOnly)}, values...)...)
	}
}

func key(kind, name string) simulation.Key {
	if kind != "Node" {
		name = "shop/" + name
	}
	return simulation.Key{Kind: kind, Name: name}
}

func (w *world) set(name string) *appsv1.StatefulSet {
	set, _ := w.Get(key(ss, name)).(*appsv1.StatefulSet)
	return set
}

func (w *world) state(name string) *appsv1beta1.PersistentPodState {
	state, _ := w.Get(key(pps, name)).(*appsv1beta1.PersistentPodState)
	return state
}

func (w *world) node(name, zone string) {
	w.Store(key("Node", name), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"host": name, "zone": zone}}})
}

func (w *world) make(name string, replicas, start int32, annotations map[string]string) {
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Annotations: annotations}}
	set.Spec.Replicas, set.Spec.Ordinals = &replicas, &appsv1.StatefulSetOrdinals{Start: start}
	w.Store(key(ss, name), set)
}

// write stores a PersistentPodState as its author does.
func (w *world) write(name, set string, change func(*appsv1beta1.PersistentPodState)) {
	state := &appsv1beta1.PersistentPodState{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: map[string]string{"by": "hand"}}}
	state.Spec.TargetRef = appsv1beta1.PersistentPodStateTarget{APIVersion: "apps/v1", Kind: ss, Name: set}
	state.Spec.RequiredPersistentTopology = &appsv1beta1.NodeTopologyTerm{Keys: []string{"zone"}}
	if change != nil {
		change(state)
	}
	w.Store(key(pps, name), state)
}

// respec changes a StatefulSet or a PersistentPodState as a user does.
func (w *world) respec(kind, name string, change func(client.Object)) {
	w.Change(key(kind, name), func(o client.Object) {
		change(o)
		o.SetGeneration(o.GetGeneration() + 1)
	})
}

// admit asks one of the managers what a pod gets that is created; false if it is refused.
func (w *world) admit(pod *corev1.Pod) bool {
	at := w.Rand.IntN(2)
	var state *appsv1beta1.PersistentPodState
	var err error
	if state, err = w.watches[at].Of(w.t.Context(), pod, pod.Namespace); err != nil {
		w.trace("%s is refused by %d: %v", pod.Name, at, err)
		return false
	}
	owner, _ := workloadspread.ControllerOf(pod)
	var states []*appsv1beta1.PersistentPodState
	for _, object := range w.List(pps, false) {
		states = append(states, object.(*appsv1beta1.PersistentPodState))
	}
	// What is recorded counts, whoever answers; of an object that a replica does not know yet the API server
	// has it read again by the entry for recent rules, which is not played here.
	want := persistentpodstate.Of(owner, states)
	if state != nil {
		patch, err := json.Marshal(persistentpodstate.Bind(state, pod))
		if err != nil {
			w.t.Fatal(err)
		}
		if string(patch) != "null" {
			apply(w.t, pod, patch)
		}
	}
	known := want != nil && slices.ContainsFunc(w.watches[at].index.referring("shop", owner), func(o *appsv1beta1.PersistentPodState) bool { return o.UID == want.UID })
	if known && w.Answer == nil {
		if entry := want.Status.PodStates[pod.Name]; want.Spec.RequiredPersistentTopology != nil && pod.Spec.NodeSelector["zone"] != entry.NodeTopologyLabels["zone"] {
			w.t.Errorf("PPS-032, PPS-038: pod %s gets %v from manager %d although %+v is recorded", pod.Name, pod.Spec.NodeSelector, at, entry)
		}
	}
	w.trace("%s is admitted by %d: %v", pod.Name, at, pod.Spec.NodeSelector)
	return true
}

// environmentStep lets everybody else act: the controller of StatefulSets, the garbage collector, the
// scheduler and the kubelets.
func (w *world) environmentStep() (moved bool) {
	for _, object := range w.List(ss, false) {
		moved = w.fill(object.(*appsv1.StatefulSet)) || moved
	}
	alive := map[types.UID]bool{}
	for _, set := range w.List(ss, false) {
		alive[set.GetUID()] = true
	}
	for _, kind := range []string{"Pod", pps} {
		for _, object := range w.List(kind, false) {
			if owner := metav1.GetControllerOf(object); owner != nil && !alive[owner.UID] && object.GetDeletionTimestamp() == nil {
				w.EndGracefully(w.KeyOf(kind, object))
				moved = true
			}
		}
	}
	for _, object := range w.List("Pod", false) {
		moved = w.run(object.(*corev1.Pod)) || moved
	}
	return moved
}

// fill makes and deletes the pods of a set, and adopts orphans.
func (w *world) fill(set *appsv1.StatefulSet) (moved bool) {
	wanted := map[string]bool{}
	for i := range *set.Spec.Replicas {
		wanted[fmt.Sprintf("%s-%d", set.Name, set.Spec.Ordinals.Start+i)] = true
	}
	for _, object := range w.List("Pod", false) {
		pod := object.(*corev1.Pod)
		owner := metav1.GetControllerOf(pod)
		if owner == nil && pod.DeletionTimestamp == nil && strings.HasPrefix(pod.Name, set.Name+"-") {
			w.Change(w.KeyOf("Pod", pod), func(o client.Object) { o.SetOwnerReferences([]metav1.OwnerReference{refTo(set)}) })
			moved = true
		} else if owner != nil && owner.UID == set.UID && !wanted[pod.Name] && pod.DeletionTimestamp == nil {
			w.EndGracefully(w.KeyOf("Pod", pod))
			moved = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		if w.Get(key("Pod", name)) != nil {
			continue
		}
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, OwnerReferences: []metav1.OwnerReference{refTo(set)},
			Annotations: map[string]string{"ip": fmt.Sprint("10.0.0.", w.created)}}}
		if w.created++; w.admit(pod) {
			w.Store(key("Pod", name), pod)
			moved = true
		}
	}
	return moved
}

func refTo(set *appsv1.StatefulSet) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: "apps/v1", Kind: ss, Name: set.Name, UID: set.UID, Controller: new(true)}
}

// run schedules a pod, makes it ready, or ends it.
func (w *world) run(pod *corev1.Pod) bool {
	at := w.KeyOf("Pod", pod)
	switch {
	case pod.DeletionTimestamp != nil:
		w.Remove(at)
	case pod.Spec.NodeName == "":
		var fit []string
		for _, node := range w.List("Node", false) {
			if matches(node.GetLabels(), pod.Spec.NodeSelector) {
				fit = append(fit, node.GetName())
			}
		}
		if len(fit) == 0 {
			return false
		}
		node := fit[w.Rand.IntN(len(fit))]
		w.Change(at, func(o client.Object) { o.(*corev1.Pod).Spec.NodeName = node })
	case w.Get(key("Node", pod.Spec.NodeName)) == nil:
		w.EndGracefully(at)
	case !readiness.Ready(pod) && pod.Status.Phase != corev1.PodFailed:
		w.Change(at, func(o client.Object) {
			o.(*corev1.Pod).Status = corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}
		})
		w.stood[pod.Name+" "+pod.Spec.NodeName] = true
	default:
		return false
	}
	return true
}

func matches(labels, selector map[string]string) bool {
	for key, value := range selector {
		if labels[key] != value {
			return false
		}
	}
	return true
}
