package reconcile

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// heldByBudgets holds the names of a controller's objects whose pods are held by budgets, by namespace.
type heldByBudgets struct {
	mu    sync.Mutex
	names map[string]sets.Set[types.NamespacedName]
}

// set records whether a budget holds pods of the object.
func (h *heldByBudgets) set(name types.NamespacedName, held bool) {
	h.mu.Lock()
	defer h.mu.Unlock()

	names := h.names[name.Namespace]
	switch {
	case held && names == nil:
		if h.names == nil {
			h.names = map[string]sets.Set[types.NamespacedName]{}
		}
		h.names[name.Namespace] = sets.New(name)
	case held:
		names.Insert(name)
	case names != nil:
		if names.Delete(name); names.Len() == 0 {
			delete(h.names, name.Namespace)
		}
	}
}

// in returns the objects whose pods a budget of that namespace may hold. Cluster-scoped objects may have pods
// in any namespace.
func (h *heldByBudgets) in(namespace string) []types.NamespacedName {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append(h.names[namespace].UnsortedList(), h.names[""].UnsortedList()...)
}

// wake returns a source that requeues objects that budgets hold when these budgets allow more.
func (h *heldByBudgets) wake(guard Guard) source.Func {
	return func(_ context.Context, queue workqueue.TypedRateLimitingInterface[ctrl.Request]) error {
		guard.Tell(func(namespace string) {
			for _, name := range h.in(namespace) {
				queue.Add(ctrl.Request{NamespacedName: name})
			}
		})
		return nil
	}
}
