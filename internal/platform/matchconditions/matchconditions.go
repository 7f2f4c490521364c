// Package matchconditions is what rules have in common whose pods are known only when objects of users exist: they follow those objects on
// every replica, and say in a match condition which pods the API server must ask about (docs/decisions/0017-pods-of-sidecarsets.md).
package matchconditions

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
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

// Sizes of an expression, far below what the API server computes for a match condition before it gives up, which would refuse the pod.
const (
	MaxLength = 8000
	MaxTerms  = 100
)

// Remembered is how long something that is not asked for any more stays in the condition: other replicas and API servers may be behind.
const Remembered = 30 * time.Second

// Memory makes a scope wide before it is narrow.
type Memory[T any] struct {
	last map[string]remembered[T]
}

type remembered[T any] struct {
	term T
	// gone is since when it is not asked for any more; zero while it is.
	gone time.Time
}

// Recall returns the terms in the order of their keys: those that are asked for now, and those that have not been for less than Remembered.
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
	maps.DeleteFunc(m.last, func(_ string, r remembered[T]) bool { return !r.gone.IsZero() && now.Sub(r.gone) >= Remembered })
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

// Follower tells an index of the objects of a kind, and its owner when what they ask for may have changed.
type Follower[T client.Object] struct {
	// Set and Delete keep the index.
	Set    func(T)
	Delete func(T)
	// Asks tells whether a change of an object may change what it asks for.
	Asks func(old, object T) bool
	// Synced tells whether all objects are known that there were at the start.
	Synced func() bool

	synced  atomic.Pointer[func() bool]
	changed chan struct{}

	// mu guards newest and gone, and is held while the index is told.
	mu sync.Mutex
	// newest is what the index has, by name; gone are objects that have gone, and when.
	newest map[types.NamespacedName]indexed
	gone   map[types.UID]time.Time
}

// indexed is a version of an object.
type indexed struct {
	uid     types.UID
	version string
}

// NewFollower returns a follower that is told of nothing yet.
func NewFollower[T client.Object](set, remove func(T), asks func(old, object T) bool) *Follower[T] {
	f := &Follower[T]{Set: set, Delete: remove, Asks: asks, changed: make(chan struct{}, 1), newest: map[types.NamespacedName]indexed{},
		gone: map[types.UID]time.Time{}}
	f.Synced = func() bool {
		synced := f.synced.Load()
		return synced != nil && (*synced)()
	}
	return f
}

// Absent says that the kind is not served, so that there are no objects to be known. Follow is called when it is.
func (f *Follower[T]) Absent() {
	known := func() bool { return true }
	f.synced.Store(&known)
	f.Notify()
}

// Follow has the follower told of all objects of the kind once the manager runs, leader or not. It may run already.
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

// Everywhere runs on all replicas.
type Everywhere func(context.Context) error

// Start implements manager.Runnable.
func (e Everywhere) Start(ctx context.Context) error { return e(ctx) }

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (Everywhere) NeedLeaderElection() bool { return false }

// Wait returns when all objects are known that there were at the start: a pod that came before would do without them.
func (f *Follower[T]) Wait(ctx context.Context) error {
	if f.Synced() || toolscache.WaitForCacheSync(ctx.Done(), f.Synced) {
		return nil
	}
	return fmt.Errorf("this manager has just started and does not know all objects yet: %w", ctx.Err())
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

// OnAdd is told of objects by the informer.
func (f *Follower[T]) OnAdd(object any, _ bool) {
	if added, ok := object.(T); ok {
		f.Learn(added)
	}
}

// Learn tells of an object that was read from the API server, or came by the informer. What is older than what is known of that name, be it
// of a former object, and what has gone, is no news.
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
		if order, err := resourceversion.CompareResourceVersion(known.version, object.GetResourceVersion()); err == nil && order > 0 {
			return false
		}
	}
	f.newest[key] = indexed{uid, object.GetResourceVersion()}
	f.Set(object)
	return true
}

// OnUpdate is told of objects by the informer.
func (f *Follower[T]) OnUpdate(old, object any) {
	is, ok := object.(T)
	if !ok {
		return
	}
	was, ok := old.(T)
	news, again := f.learn(is), ok && was.GetUID() != is.GetUID()
	if again { // it was deleted and made again; the new one takes its place at once, so that no pod finds neither
		f.forget(was)
	}
	if news && (!ok || again || f.Asks(was, is)) {
		f.Notify()
	}
}

// OnDelete is told of objects by the informer.
func (f *Follower[T]) OnDelete(object any) {
	if last, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
		object = last.Obj
	}
	if gone, ok := object.(T); ok {
		f.forget(gone)
		f.Notify()
	}
}

// forget drops an object, but not another one that has its name.
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
