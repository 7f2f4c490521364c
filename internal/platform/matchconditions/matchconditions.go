// Package matchconditions has the common parts of kinds whose objects select the pods that the API server
// sends to the webhook. Every replica follows these objects, and a match condition says which pods are sent
// (docs/decisions/0017-pods-of-sidecarsets.md).
package matchconditions

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// Limits of an expression. They are far below the cost limit of the API server for a match condition; above
// that it would refuse the pod.
const (
	MaxLength = 8000
	MaxTerms  = 100
)

// Remembered is how long a term that is not needed any more stays in the condition, because other replicas
// and API servers may lag.
const Remembered = 30 * time.Second

// Memory adds terms to a scope at once, and removes them only after a while.
type Memory[T any] struct {
	last map[string]remembered[T]
}

type remembered[T any] struct {
	term T
	// gone is since when the term is not needed any more; zero while it is.
	gone time.Time
}

// Recall returns the terms in the order of their keys: those that are needed now, and those that were needed
// less than Remembered ago.
func (m *Memory[T]) Recall(asked map[string]T, now time.Time) []T {
	if m.last == nil {
		m.last = map[string]remembered[T]{}
	}

	for key, r := range m.last {
		if r.gone.IsZero() {
			m.last[key] = remembered[T]{r.term, now}
		}
	}

	for key, term := range asked {
		m.last[key] = remembered[T]{term: term}
	}

	maps.DeleteFunc(m.last, func(_ string, r remembered[T]) bool {
		return !r.gone.IsZero() && now.Sub(r.gone) >= Remembered
	})
	var terms []T
	for _, key := range slices.Sorted(maps.Keys(m.last)) {
		terms = append(terms, m.last[key].term)
	}

	return terms
}

// harmless are the characters of names, and of keys and values of labels.
var harmless = regexp.MustCompile(`^[-._/a-zA-Z0-9]*$`)

// Harmless tells whether a text may be put into an expression between quotes.
func Harmless(text string) bool { return harmless.MatchString(text) }

// Within is true for requests in the namespaces; "false" for none, and "true" for too many. In what is not
// the name of a namespace there are no requests.
func Within(namespaces []string) string {
	names := slices.DeleteFunc(slices.Sorted(slices.Values(namespaces)), func(name string) bool {
		return !Harmless(name) || name == ""
	})
	if len(names) == 0 {
		return "false"
	}
	text := "request.namespace in ['" + strings.Join(names, "', '") + "']"
	if len(text) > MaxLength {
		return "true"
	}
	return text
}

// Follower keeps an index of the objects of a kind, and signals when the pods that they select may have
// changed.
type Follower[T client.Object] struct {
	// Set and Delete update the index.
	Set    func(T)
	Delete func(T)
	// Asks tells whether a change of an object may change the pods that it selects.
	Asks func(old, object T) bool
	// Synced tells whether all objects that existed at the start are known.
	Synced func() bool

	synced  atomic.Pointer[func() bool]
	changed chan struct{}

	// mu guards newest and gone, and is held while the index is updated.
	mu sync.Mutex
	// newest has the objects of the index, by name; gone has deleted objects, and when they were deleted.
	newest map[types.NamespacedName]indexed
	gone   map[types.UID]time.Time
}

// indexed is a version of an object.
type indexed struct {
	uid     types.UID
	version string
}

// NewFollower returns a follower without objects.
func NewFollower[T client.Object](set, remove func(T), asks func(old, object T) bool) *Follower[T] {
	f := &Follower[T]{
		Set:     set,
		Delete:  remove,
		Asks:    asks,
		changed: make(chan struct{}, 1),
		newest:  map[types.NamespacedName]indexed{},
		gone:    map[types.UID]time.Time{},
	}
	f.Synced = func() bool {
		synced := f.synced.Load()
		return synced != nil && (*synced)()
	}
	return f
}

// Absent says that the kind is not served yet, so that there are no objects. Follow is called when it is
// served.
func (f *Follower[T]) Absent() {
	known := func() bool { return true }
	f.synced.Store(&known)
	f.Notify()
}

// Follow makes the follower watch all objects of the kind once the manager runs, on every replica. The
// manager may run already.
func (f *Follower[T]) Follow(ctx context.Context, mgr manager.Manager, kind T) error {
	informer, err := mgr.GetCache().GetInformer(ctx, kind, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("watching %T: %w", kind, err)
	}

	registration, err := informer.AddEventHandler(f)
	if err != nil {
		return fmt.Errorf("watching %T: %w", kind, err)
	}

	synced := registration.HasSynced
	f.synced.Store(&synced)
	return mgr.Add(Everywhere(func(ctx context.Context) error { // the scope is known from now on
		if toolscache.WaitForCacheSync(ctx.Done(), f.Synced) {
			f.Notify()
		}
		return nil
	}))
}

// Everywhere is a runnable for all replicas, not only the leader.
type Everywhere func(context.Context) error

// Start implements manager.Runnable.
func (e Everywhere) Start(ctx context.Context) error { return e(ctx) }

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (Everywhere) NeedLeaderElection() bool { return false }

// knownWithin is how long is waited for objects to be known. It is less than webhooks have, and a controller
// comes back after it.
const knownWithin = 7 * time.Second

// Wait returns when all objects that existed at the start are known: a pod that is created before would not
// get what they add. It returns an error if they are not known soon.
func (f *Follower[T]) Wait(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, knownWithin)
	defer cancel()
	if f.Synced() || toolscache.WaitForCacheSync(ctx.Done(), f.Synced) {
		return nil
	}
	return fmt.Errorf(
		"this manager does not know all objects yet: it has just started, or cannot watch them: %w",
		ctx.Err())
}

// Changed has a value when the scope may have changed.
func (f *Follower[T]) Changed() <-chan struct{} { return f.changed }

// Notify says that the scope may have changed.
func (f *Follower[T]) Notify() {
	select {
	case f.changed <- struct{}{}:
	default: // one is waiting already
	}
}

// OnAdd is called by the informer.
func (f *Follower[T]) OnAdd(object any, _ bool) {
	if added, ok := object.(T); ok {
		f.Learn(added)
	}
}

// Learn adds an object that was read from the API server, or came from the informer. It ignores deleted
// objects, and versions that are older than the known one of that name, also if that is another object.
func (f *Follower[T]) Learn(object T) {
	if f.learn(object) {
		f.Notify()
	}
}

func (f *Follower[T]) learn(object T) bool {
	f.mu.Lock()
	defer f.mu.Unlock()

	key, uid := client.ObjectKeyFromObject(object), object.GetUID()
	if _, ended := f.gone[uid]; ended {
		return false
	}

	if known, ok := f.newest[key]; ok {
		if order, err := resourceversion.CompareResourceVersion(known.version,
			object.GetResourceVersion()); err == nil && order > 0 {
			return false
		}
	}
	f.newest[key] = indexed{uid, object.GetResourceVersion()}
	f.Set(object)
	return true
}

// OnUpdate is called by the informer.
func (f *Follower[T]) OnUpdate(old, object any) {
	is, ok := object.(T)
	if !ok {
		return
	}

	was, ok := old.(T)
	news, again := f.learn(is), ok && was.GetUID() != is.GetUID()
	// it was deleted and created again; the new object replaces it at once, so that no pod misses both
	if again {
		f.forget(was)
	}
	if news && (!ok || again || f.Asks(was, is)) {
		f.Notify()
	}
}

// OnDelete is called by the informer.
func (f *Follower[T]) OnDelete(object any) {
	if last, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
		object = last.Obj
	}
	if gone, ok := object.(T); ok {
		f.forget(gone)
		f.Notify()
	}
}

// forget drops an object, but not another one with the same name.
func (f *Follower[T]) forget(object T) {
	f.mu.Lock()
	defer f.mu.Unlock()
	maps.DeleteFunc(f.gone, func(_ types.UID, at time.Time) bool { return time.Since(at) > Remembered })
	f.gone[object.GetUID()] = time.Now()
	if key := client.ObjectKeyFromObject(object); f.newest[key].uid == object.GetUID() {
		delete(f.newest, key)
		f.Delete(object)
	}
}
