// Package matchconditions has the common parts of kinds whose objects select the pods that the API server
// sends to the webhook. Every replica watches these objects, and a match condition limits the requests to the
// selected pods (docs/decisions/0017-pods-of-sidecarsets.md).
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

// Limits of an expression. They are far below the API server's cost limit for a match condition. The API
// server would reject the pod if an expression exceeded that limit.
const (
	MaxLength = 8000
	MaxTerms  = 100
)

// Remembered is how long a term stays in the condition after it is no longer needed, because the caches of
// other replicas and API servers may be stale.
const Remembered = 30 * time.Second

// Memory adds terms to a scope immediately and removes them only after a delay.
type Memory[T any] struct {
	last map[string]remembered[T]
}

type remembered[T any] struct {
	term T
	// gone is the time since which the term is no longer needed. It is zero while the term is needed.
	gone time.Time
}

// Recall returns, in the order of their keys, the terms that are needed now or were needed less than
// Remembered ago.
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

// harmless matches the characters of names, label keys and label values.
var harmless = regexp.MustCompile(`^[-._/a-zA-Z0-9]*$`)

// Harmless reports whether the text may be put between quotes in an expression.
func Harmless(text string) bool { return harmless.MatchString(text) }

// Within returns an expression that is true for requests in the given namespaces. It is "false" if there are
// none and "true" if there are too many. Strings that cannot be the name of a namespace are ignored, since
// there are no requests in them.
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

// Follower keeps an index of the objects of a kind and signals when the set of selected pods may have
// changed.
type Follower[T client.Object] struct {
	// Set and Delete update the index.
	Set    func(T)
	Delete func(T)
	// Asks reports whether the change of an object may change the pods that it selects.
	Asks func(old, object T) bool
	// Synced reports whether all objects that existed at the start are known.
	Synced func() bool

	synced  atomic.Pointer[func() bool]
	changed chan struct{}

	// mu guards newest and gone. It is held while the index is updated.
	mu sync.Mutex
	// newest holds the indexed version of each object, and gone the deletion time of deleted objects.
	newest map[types.NamespacedName]indexed
	gone   map[types.UID]time.Time
}

// indexed is a version of an object.
type indexed struct {
	uid     types.UID
	version string
}

// NewFollower returns a Follower without objects.
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

// Absent records that the kind is not served yet, so that there are no objects. Follow is called when it is
// served.
func (f *Follower[T]) Absent() {
	known := func() bool { return true }
	f.synced.Store(&known)
	f.Notify()
}

// Follow starts a watch on all objects of the kind, on every replica. The manager may be running already.
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

	// The scope is known from now on.
	return mgr.Add(Everywhere(func(ctx context.Context) error {
		if toolscache.WaitForCacheSync(ctx.Done(), f.Synced) {
			f.Notify()
		}
		return nil
	}))
}

// Everywhere is a runnable that runs on all replicas, not only on the leader.
type Everywhere func(context.Context) error

// Start implements manager.Runnable.
func (e Everywhere) Start(ctx context.Context) error { return e(ctx) }

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (Everywhere) NeedLeaderElection() bool { return false }

// knownWithin limits how long Wait waits. It is shorter than the timeout of webhooks, and a controller
// retries after it.
const knownWithin = 7 * time.Second

// Wait waits until all objects that existed at the start are known, because a pod created before that would
// miss what they add. It returns an error if that takes longer than knownWithin.
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

// Changed returns a channel that has a value when the scope may have changed.
func (f *Follower[T]) Changed() <-chan struct{} { return f.changed }

// Notify signals that the scope may have changed.
func (f *Follower[T]) Notify() {
	select {
	case f.changed <- struct{}{}:
	default: // a signal is pending already
	}
}

// OnAdd is called by the informer.
func (f *Follower[T]) OnAdd(object any, _ bool) {
	if added, ok := object.(T); ok {
		f.Learn(added)
	}
}

// Learn adds an object that was read from the API server or delivered by the informer. It ignores deleted
// objects and versions older than the known one of the same name, even if that belongs to another object.
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

	// The object was deleted and recreated. The new one replaces it at once, so that no pod misses both.
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

// forget removes an object, but not another object with the same name.
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
