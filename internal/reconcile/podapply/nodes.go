package podapply

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"github.com/afloat-project/afloat/internal/reconcile"
)

// NodeEvents enqueues the objects for which it matters that a node came (before is nil), went (after is nil),
// or changed. The nodes that exist when the controller starts enqueue nothing, since every object gets a pass
// then.
func NodeEvents(objectsOf func(ctx context.Context, before, after *corev1.Node) []ctrl.Request) handler.EventHandler {
	return reconcile.Changes(false, func(ctx context.Context, q reconcile.Queue, before, after *corev1.Node) {
		for _, request := range objectsOf(ctx, before, after) {
			q.Add(request)
		}
	})
}

// Nodes returns all nodes.
func (r *Reader) Nodes(ctx context.Context) ([]*corev1.Node, error) {
	var all corev1.NodeList
	if err := r.Client.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	nodes := make([]*corev1.Node, len(all.Items))
	for i := range all.Items {
		nodes[i] = &all.Items[i]
	}
	return nodes, nil
}

// Taken reports whether a pod has the name, as far as the caches and the own writes of the owner know. A pod
// that neither knows is found out by creating another.
func (r *Reader) Taken(ctx context.Context, owner client.Object, name string) bool {
	pod := &corev1.Pod{}
	key := types.NamespacedName{Namespace: owner.GetNamespace(), Name: name}
	err := r.Client.Get(ctx, key, pod, client.UnsafeDisableDeepCopy)
	pod.Namespace, pod.Name = key.Namespace, key.Name
	_, exists := reconcile.Newest(r.Own, owner.GetUID(), pod, err == nil)
	return exists
}

// Rules keeps what was read from the spec of each object, such as what its template asks of nodes, so that
// events need not read it again. Events may ask before the first pass over an object, and after the object is gone:
// each pass over a name without an object calls Forget. The zero value is empty. It is safe for concurrent use.
type Rules[R any] struct {
	mu sync.Mutex
	of map[types.NamespacedName]ruled[R]
}

type ruled[R any] struct {
	uid   types.UID
	rules *R
}

// Of returns the rules of an object. It calls read with the present rules, nil if there are none, and keeps
// what read returns.
func (r *Rules[R]) Of(object client.Object, read func(present *R) *R) *R {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.of == nil {
		r.of = map[types.NamespacedName]ruled[R]{}
	}
	name := client.ObjectKeyFromObject(object)
	present := r.of[name]
	if present.uid != object.GetUID() {
		present.rules = nil
	}
	rules := read(present.rules)
	r.of[name] = ruled[R]{object.GetUID(), rules}
	return rules
}

// Forget drops the rules of an object that is gone.
func (r *Rules[R]) Forget(name types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.of, name)
}

// Absent implements the field of that name of a [reconcile.Controller].
func (r *Rules[R]) Absent(_ context.Context, name types.NamespacedName) (reconcile.Outcome, error) {
	r.Forget(name)
	return reconcile.Outcome{}, nil
}
