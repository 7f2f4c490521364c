package simulationtest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/afloat-project/afloat/internal/engine/nodes"
	"github.com/afloat-project/afloat/internal/platform/slim"
	"github.com/afloat-project/afloat/internal/simulation"
)

// World is a manager that looks after one object in a simulated cluster, beside kubelets and whoever else
// acts there. O is a pointer to the type of the object.
type World[O client.Object] struct {
	simulation.Play
	// Key is that of the object.
	Key simulation.Key
	// NewManager makes a manager.
	NewManager func()
	// Node simulates the scheduler and the kubelets, if [World.AddKubelets] was called.
	Node *simulation.Node
	// Others acts beside kubelets and the garbage collector, and reports whether anything happened. nil means
	// nobody.
	Others func() bool
	// Trace means that every pass and event is printed.
	Trace bool
	// Recorded are the events of the manager: type, reason and message.
	Recorded []string

	recording sync.Mutex // writes run in parallel
}

// NewWorld returns a world without the object. The caller sets NewManager, Reconcile and Describe, stores
// what there is at the beginning, and starts the manager.
func NewWorld[O client.Object](seed uint64, key simulation.Key) *World[O] {
	w := &World[O]{Play: simulation.Play{Cluster: simulation.New(seed)}, Key: key}
	w.Queue = simulation.NewQueue(w.Cluster, key.Name)
	w.EnvironmentStep = w.Step
	w.Start = func() { w.Restart(); w.StandIn() }
	w.Slim = slim.Any
	return w
}

// AddKubelets adds kubelets, which may be newer ones that report the observed generation.
func (w *World[O]) AddKubelets() {
	w.Node = w.NewNode()
	w.Node.Observes = w.Chance(0.5)
}

// StandIn starts a manager that stood by: its caches are as they are.
func (w *World[O]) StandIn() {
	w.Queue = simulation.NewQueue(w.Cluster, w.Key.Name)
	w.NewManager()
}

// Recover lets another manager begin now and then, if the manager has died. It may have stood by.
func (w *World[O]) Recover() {
	switch {
	case !w.Dead():
	case w.Chance(0.2):
		w.Start()
	case w.Chance(0.2):
		w.Revive()
		w.StandIn()
	}
}

// Event implements reconcile.Recorder.
func (w *World[O]) Event(_ client.Object, eventType, reason, message string) {
	w.recording.Lock()
	defer w.recording.Unlock()
	w.Recorded = append(w.Recorded, eventType+" "+reason+" "+message)
	if w.Trace {
		fmt.Println("event", eventType, reason, message)
	}
}

// EventsWith returns the events that have all of these words.
func (w *World[O]) EventsWith(words ...string) (events []string) {
	for _, event := range w.Recorded {
		if !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(event, word) }) {
			events = append(events, event)
		}
	}
	return events
}

// Object returns the object as it is in the API server, or nil if it is gone.
func (w *World[O]) Object() O {
	object, _ := w.Get(w.Key).(O)
	return object
}

// Edit changes the object as a user does.
func (w *World[O]) Edit(change func(O)) {
	w.Change(w.Key, func(object client.Object) {
		change(object.(O))
		object.SetGeneration(object.GetGeneration() + 1)
	})
}

// AllPods returns all pods as they are in the API server, in the order of their names.
func (w *World[O]) AllPods() []*corev1.Pod { return All[*corev1.Pod](w.Cluster, "Pod", false) }

// Pod returns the pod of that name as it is in the API server, or nil if there is none.
func (w *World[O]) Pod(name string) *corev1.Pod {
	pod, _ := w.Get(PodKey(name)).(*corev1.Pod)
	return pod
}

// PodsOn returns the pods that are meant for a node.
func (w *World[O]) PodsOn(node string) []*corev1.Pod {
	return slices.DeleteFunc(w.AllPods(), func(pod *corev1.Pod) bool { return nodes.Target(pod) != node })
}

// Step lets the garbage collector, kubelets, and whoever else there is, act once, and reports whether
// anything happened.
func (w *World[O]) Step() bool {
	w.CollectGarbage()
	moved := w.ProvisionVolumes()
	for _, pod := range w.AllPods() {
		if w.Node.Step(pod.Name) {
			moved = true
		}
	}
	return w.Others != nil && w.Others() || moved
}

// ProvisionVolumes gives each claim a volume of the size that it asks for, and reports whether anything happened.
func (w *World[O]) ProvisionVolumes() (moved bool) {
	for _, claim := range All[*corev1.PersistentVolumeClaim](w.Cluster, "PersistentVolumeClaim", false) {
		want, have := claim.Spec.Resources.Requests[corev1.ResourceStorage], claim.Status.Capacity[corev1.ResourceStorage]
		if want.Cmp(have) != 0 && claim.DeletionTimestamp == nil {
			w.Change(ClaimKey(claim.Name), func(object client.Object) {
				object.(*corev1.PersistentVolumeClaim).Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: want}
			})
			moved = true
		}
	}
	return moved
}

// ActFor lets everybody act for that time, as far as there is anything to do.
func (w *World[O]) ActFor(d time.Duration) {
	for end := w.Now().Add(d); w.Now().Before(end); {
		if w.Round() {
			continue
		}
		if w.Dead() {
			w.Start()
			continue
		}
		if due := w.Queue.Due(); due.IsZero() || due.After(end) {
			return
		}
		w.Queue.Wait()
	}
}

// RunFor lets everybody act for that time.
func (w *World[O]) RunFor(d time.Duration) {
	end := w.Now().Add(d)
	w.ActFor(d)
	w.Pass(max(end.Sub(w.Now()), 0))
}

// Deny refuses the chosen requests, as a policy does, and notes when.
func (w *World[O]) Deny(chosen func(*simulation.Request) bool) *[]time.Time {
	var when []time.Time
	w.Answer = func(r *simulation.Request) error {
		if !chosen(r) {
			return nil
		}
		when = append(when, w.Now())
		return apierrors.NewForbidden(corev1.Resource(strings.ToLower(r.Key.Kind)+"s"), r.Key.Name,
			errors.New("a policy says no"))
	}
	return &when
}

// WrittenAtRest makes passes although nothing happens, and returns what they wrote, which should be nothing.
func (w *World[O]) WrittenAtRest() []simulation.Write {
	before := len(w.Writes)
	for range 3 {
		w.Pass(time.Minute)
		w.Queue.Add()
		w.Manage()
	}
	return w.Writes[before:]
}

// DescribePods says what the pods are and what they run, for failures.
func (w *World[O]) DescribePods() string {
	var text strings.Builder
	for _, pod := range w.AllPods() {
		fmt.Fprintf(&text, "%s %s on %q labels %v deleted %v phase %s", pod.Name, pod.UID, pod.Spec.NodeName,
			pod.Labels, pod.DeletionTimestamp != nil, pod.Status.Phase)
		for i, c := range pod.Spec.Containers {
			fmt.Fprintf(&text, " %s", c.Image)
			if i < len(pod.Status.ContainerStatuses) {
				status := &pod.Status.ContainerStatuses[i]
				fmt.Fprintf(&text, " (runs %s ready %v)", status.Image, status.Ready)
			}
		}
		text.WriteString("\n")
	}
	return text.String()
}

// Print prints a pass if the world is traced. plan is nil if there is none.
func (w *World[O]) Print(plan any, after time.Duration, err error) {
	if !w.Trace {
		return
	}
	fmt.Printf("--- %s after %s err %v\n", w.Now().Format("15:04:05.000"), after, err)
	if plan != nil {
		fmt.Print(plan)
	}
}

// All returns the objects of a kind in the order of their names, as they are in the API server or in the
// caches. T is a pointer to their type.
func All[T client.Object](cluster *simulation.Cluster, kind string, cached bool) []T {
	objects := cluster.List(kind, cached)
	all := make([]T, len(objects))
	for i, object := range objects {
		all[i] = object.(T)
	}
	return all
}

// PodKey returns the key of a pod.
func PodKey(name string) simulation.Key { return simulation.Key{Kind: "Pod", Name: name} }

// NodeKey returns the key of a node.
func NodeKey(name string) simulation.Key { return simulation.Key{Kind: "Node", Name: name} }

// ClaimKey returns the key of a PersistentVolumeClaim.
func ClaimKey(name string) simulation.Key {
	return simulation.Key{Kind: "PersistentVolumeClaim", Name: name}
}

// RevisionKey returns the key of a ControllerRevision.
func RevisionKey(name string) simulation.Key {
	return simulation.Key{Kind: "ControllerRevision", Name: name}
}
