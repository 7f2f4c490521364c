package controller

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/resourcedistribution"
	"github.com/afloat-project/afloat/internal/platform/slim"
	"github.com/afloat-project/afloat/internal/reconcile"
	"github.com/afloat-project/afloat/internal/simulation"
)

// world is a cluster with namespaces, ResourceDistributions of one kind and name, and their manager.
type world struct {
	simulation.Play
	t    *testing.T
	kind string
	r    *Reconciler
	loop *reconcile.Loop
	// names are those of ResourceDistributions that a pass is asked for.
	names map[string]bool
	// from is the version of the list with which the watch of copies began; blind is why there is none.
	from  int64
	blind error
	told  []string
}

func newWorld(t *testing.T, seed uint64) *world {
	c := simulation.New(seed)
	w := &world{t: t, names: map[string]bool{}, kind: []string{resourcedistribution.Secret, resourcedistribution.ConfigMap}[c.Rand.IntN(2)]}
	c.Slim, c.Apart, c.Namespaces = slim.Any, true, true
	w.Play = simulation.Play{Cluster: c, Queue: simulation.NewQueue(c, "any"), Start: w.start, EnvironmentStep: w.collect, Describe: w.describe, Reconcile: w.reconcile}
	c.BeforeWrite, c.Delivered, c.Answer = w.check, w.delivered, merge
	w.start()
	return w
}

// merge merges stringData into data, as the API server does.
func merge(r *simulation.Request) error {
	document, ok := r.Object.(*unstructured.Unstructured)
	if !ok {
		return nil
	}
	if texts, _ := document.Object["stringData"].(map[string]any); texts != nil {
		data := map[string]any{}
		for key, value := range texts {
			data[key] = base64.StdEncoding.EncodeToString([]byte(value.(string)))
		}
		document.Object["data"] = data
		delete(document.Object, "stringData")
	}
	return nil
}

// start starts a manager, whose watch begins with a list.
func (w *world) start() {
	w.Restart()
	w.r = newReconciler(w.API(), w, func(ctx context.Context, c *copies) {
		if w.blind != nil {
			c.failed(w.blind)
			return
		}
		w.list(c)
	})
	w.r.watches.start(w.t.Context())
	w.r.ask(func(name string) { w.names[name] = true; w.Queue.Add() })
	w.loop = w.r.controller().Loop(nil)
	w.Queue = simulation.NewQueue(w.Cluster, "any")
	for _, rd := range w.List(resourcedistribution.Name, false) {
		w.names[rd.GetName()] = true
	}
}

func version(object client.Object) int64 {
	n, err := strconv.ParseInt(object.GetResourceVersion(), 10, 64)
	if err != nil {
		panic(err)
	}
	return n
}

// list brings the list of the API server to copies.
func (w *world) list(c *copies) {
	marker := w.Store(simulation.Key{Kind: "Marker", Name: "marker"}, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "marker"}})
	w.from = version(marker)
	var all []any
	for _, object := range w.List(c.of.Kind, false) {
		if object.GetName() == c.of.Name {
			all = append(all, seenOf(object))
		}
	}
	_ = c.Replace(all, marker.GetResourceVersion())
}

// delivered brings an event to the manager.
func (w *world) delivered(before, after client.Object) {
	one := after
	if one == nil {
		one = before
	}
	switch one.(type) {
	case *appsv1beta1.ResourceDistribution:
		w.names[one.GetName()] = true
		w.Queue.Add()
	case *corev1.Namespace:
		w.r.namespaceChanged(before, after)
	case *corev1.Secret, *corev1.ConfigMap:
		for _, c := range w.r.watches.of {
			switch {
			case c.of.Name != one.GetName():
			case after == nil:
				_ = c.Delete(seenOf(before))
			case version(after) > w.from:
				_ = c.Update(seenOf(after))
			}
		}
	}
}

// reconcile makes a pass over each ResourceDistribution that asks for one.
func (w *world) reconcile() (after time.Duration, err error) {
	names := w.names
	w.names = map[string]bool{}
	for _, object := range w.List(resourcedistribution.Name, true) {
		names[object.GetName()] = true // what is due is not kept by name here
	}
	for name := range names {
		result, failed := w.loop.Reconcile(w.t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: name}})
		reconcile.MinRequeue(&after, result.RequeueAfter)
		if failed != nil {
			err = failed
			w.names[name] = true
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
	for _, kind := range []string{resourcedistribution.Name, "Namespace", w.kind} {
		for _, object := range w.List(kind, false) {
			raw, _ := json.Marshal(object)
			fmt.Fprintf(&text, "%s\n", raw)
		}
	}
	for c, of := range w.r.watches.of {
		fmt.Fprintf(&text, "%v %v\n", c, of.known)
	}
	for _, d := range w.r.distributions {
		fmt.Fprintf(&text, "%s: pending %v %v, whole %v, agenda %v\n", d.name, d.pending, d.queued, d.whole, d.schedule)
	}
	return text.String() + strings.Join(w.told, "\n")
}

func (w *world) key(namespace string) simulation.Key {
	return simulation.Key{Kind: w.kind, Name: namespace + "/login"}
}

// space creates a namespace, or changes it.
func (w *world) space(name string, labels map[string]string) {
	w.Store(simulation.Key{Kind: "Namespace", Name: name}, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels, Finalizers: []string{"contents"}}})
}

// document is what is distributed.
func (w *world) document(value string) map[string]any {
	document := map[string]any{"apiVersion": "v1", "kind": w.kind, "metadata": map[string]any{"name": "login", "labels": map[string]string{"l": value}}}
	if w.kind == resourcedistribution.Secret {
		document["stringData"] = map[string]string{"key": value}
	} else {
		document["data"] = map[string]string{"key": value}
	}
	return document
}

// put stores a ResourceDistribution as its author does.
func (w *world) put(rd *appsv1beta1.ResourceDistribution) {
	key := simulation.Key{Kind: resourcedistribution.Name, Name: rd.Name}
	if found := w.Get(key); found != nil {
		w.Change(key, func(o client.Object) {
			o.(*appsv1beta1.ResourceDistribution).Spec = rd.Spec
			o.SetGeneration(o.GetGeneration() + 1)
		})
		return
	}
	rd.UID, rd.Generation = "", 0
	w.Store(key, rd)
}

func (w *world) rd(name string) *appsv1beta1.ResourceDistribution {
	rd, _ := w.Get(simulation.Key{Kind: resourcedistribution.Name, Name: name}).(*appsv1beta1.ResourceDistribution)
	return rd
}

// value is what the copy in a namespace contains, empty if there is none.
func (w *world) value(namespace string) string {
	switch object := w.Get(w.key(namespace)).(type) {
	case *corev1.Secret:
		return string(object.Data["key"])
	case *corev1.ConfigMap:
		return object.Data["key"]
	}
	return ""
}

// foreign is an object of somebody else of the name.
func (w *world) foreign(namespace string, owner types.UID) {
	var object client.Object = &corev1.ConfigMap{Data: map[string]string{"key": "foreign"}}
	if w.kind == resourcedistribution.Secret {
		object = &corev1.Secret{Data: map[string][]byte{"key": []byte("foreign")}}
	}
	object.SetNamespace(namespace)
	object.SetName("login")
	if owner != "" {
		object.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: appsv1beta1.GroupVersion.String(), Kind: resourcedistribution.Name, Name: "a", UID: owner,
			Controller: new(true)}})
	}
	w.Store(w.key(namespace), object)
}

// check holds each write of the manager against what it may do.
func (w *world) check(write simulation.Write, before, after client.Object) {
	if os.Getenv("TRACE") != "" {
		w.t.Logf("%s %+v", w.Now().Format(time.TimeOnly), write)
	}
	if write.Key.Kind == resourcedistribution.Name {
		if write.Subresource != "status" {
			w.t.Errorf("a write to %+v", write)
		}
		return
	}
	owner := func(object client.Object) *metav1.OwnerReference { return metav1.GetControllerOf(object) }
	of := after
	if before != nil {
		of = before
	}
	namespace, ref := of.GetNamespace(), owner(of)
	if ref == nil {
		w.t.Fatalf("RD-003: ref: got nil, want a value; %s of what belongs to somebody else: %+v", write.Verb, of)
	} else if ref.Kind != resourcedistribution.Name {
		w.t.Fatalf("RD-003: kind of the owner: got %q, want %q; %s of what belongs to somebody else: %+v",
			ref.Kind, resourcedistribution.Name,
			write.Verb, of)
	}
	rd, _ := w.Cached(simulation.Key{Kind: resourcedistribution.Name, Name: ref.Name}).(*appsv1beta1.ResourceDistribution)
	if rd == nil {
		w.t.Fatalf("RD-052, RD-059: rd: got nil, want a value; %s for %+v, which is not there or is going", write.Verb, ref)
	} else if rd.UID != ref.UID {
		w.t.Fatalf("RD-052, RD-059: UID: got %q, want %q; %s for %+v, which is not there or is going", rd.UID,
			ref.UID, write.Verb, ref)
	} else if rd.DeletionTimestamp != nil {
		w.t.Fatalf("RD-052, RD-059: time of deletion: got %v, want nil; %s for %+v, which is not there or is going",
			rd.DeletionTimestamp, write.Verb, ref)
	}
	// An own write of the status may have shown a spec that the cache does not show yet.
	wanted := w.wants(rd, namespace)
	if rd = w.rd(ref.Name); rd == nil {
		return
	}
	if newest := w.wants(rd, namespace); newest != wanted {
		return
	}
	switch {
	case namespace == metav1.NamespaceSystem && write.Verb != "delete":
		w.t.Errorf("RD-044: %s in %s", write.Verb, namespace)
	case write.Verb != "delete" && !wanted:
		w.t.Errorf("RD-042: %s in %s, which is no target", write.Verb, namespace)
	case write.Verb == "patch" && (owner(after) == nil || owner(after).UID != ref.UID || len(after.GetOwnerReferences()) < len(before.GetOwnerReferences())):
		w.t.Errorf("RD-054: owners %+v become %+v", before.GetOwnerReferences(), after.GetOwnerReferences())
	case write.Verb == "patch" && resourcedistribution.CopyOf(before).Immutable && resourcedistribution.CopyOf(before).Content != resourcedistribution.CopyOf(after).Content:
		w.t.Errorf("RD-058: a patch of what is immutable")
	case write.Verb == "delete" && wanted && !resourcedistribution.CopyOf(before).Immutable && resourcedistribution.CopyOf(before).Type == resourcedistribution.CopyOf(after0(w, rd)).Type:
		w.t.Errorf("RD-070: the copy in %s is deleted, which is a target", namespace)
	}
}

// wants tells whether a namespace is a target as the cache has it.
func (w *world) wants(rd *appsv1beta1.ResourceDistribution, namespace string) bool {
	targets, err := resourcedistribution.TargetsOf(rd)
	if err != nil {
		w.t.Fatal(err)
	}
	ns, _ := w.Cached(simulation.Key{Kind: "Namespace", Name: namespace}).(*corev1.Namespace)
	var labels map[string]string
	if ns != nil {
		labels = ns.Labels
	}
	return targets.Wants(namespace, ns != nil && ns.DeletionTimestamp == nil, labels)
}

// after0 is a copy as the ResourceDistribution wants it, for its type.
func after0(w *world, rd *appsv1beta1.ResourceDistribution) client.Object {
	object := (resourcedistribution.Of{Kind: w.kind}).Object()
	if err := json.Unmarshal(rd.Spec.Resource.Raw, object); err != nil {
		w.t.Fatal(err)
	}
	object.SetOwnerReferences([]metav1.OwnerReference{resourcedistribution.Owner(rd)})
	return object
}

// collect is the garbage collector, and what ends namespaces.
func (w *world) collect() (moved bool) {
	alive := map[types.UID]bool{}
	for _, rd := range w.List(resourcedistribution.Name, false) {
		alive[rd.GetUID()] = true
	}
	for _, object := range w.List(w.kind, false) {
		key := w.KeyOf(w.kind, object)
		space := w.Get(simulation.Key{Kind: "Namespace", Name: object.GetNamespace()})
		owner := metav1.GetControllerOf(object)
		if object.GetDeletionTimestamp() == nil && (space == nil || space.GetDeletionTimestamp() != nil || owner != nil && !alive[owner.UID]) {
			w.EndGracefully(key)
			moved = true
		}
	}
	for _, space := range w.List("Namespace", false) {
		empty := true
		for _, object := range w.List(w.kind, false) {
			empty = empty && object.GetNamespace() != space.GetName()
		}
		if space.GetDeletionTimestamp() != nil && empty {
			w.Remove(simulation.Key{Kind: "Namespace", Name: space.GetName()})
			moved = true
		}
	}
	return moved
}

// quiet lets all act until nothing is left to do now.
func (w *world) quiet() {
	w.t.Helper()
	for range 1000 {
		due := w.Queue.Due()
		if !w.Round() && !w.Dead() {
			if due = w.Queue.Due(); due.IsZero() || due.Sub(w.Now()) >= time.Second {
				return
			}
		}
		if !due.IsZero() && due.Sub(w.Now()) < time.Second { // what batches statuses
			w.Pass(max(due.Sub(w.Now()), 0))
		}
	}
	w.t.Fatal("no rest: ", w.describe())
}

// settle lets what is under way come to rest, with all that waits for time.
func (w *world) settle() {
	w.t.Helper()
	w.Faults = simulation.Faults{}
	for range 12 {
		w.quiet()
		w.Queue.Wait()
	}
	w.Pass(time.Hour)
	w.Queue.Add()
	w.quiet()
	w.Queue.Wait()
	w.quiet()
}
