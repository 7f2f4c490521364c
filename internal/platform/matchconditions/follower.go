package matchconditions

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/afloat-project/afloat/internal/platform/watches"
)

// Kind is a kind whose objects a Follower follows.
type Kind[T client.Object] struct {
	// Object is an empty object, and List an empty list.
	Object T
	List   client.ObjectList
	// Cluster means that the objects have no namespace.
	Cluster bool
	// NamesOnly means that the set of selected pods depends only on which objects there are.
	NamesOnly bool
	// ReadWithin is how long Learn may read from the API server, by default 5 seconds.
	ReadWithin time.Duration
	// Set and Delete update the index.
	Set    func(T)
	Delete func(T)
}

// Follower keeps an index of the objects of a kind on every replica, and signals when the set of selected
// pods may have changed.
type Follower[T client.Object] struct {
	kind Kind[T]
	// live reads from the API server, and reads combines what is read of the same namespace.
	live  client.Reader
	reads Together[string, struct{}]

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

// Plural returns the name of the objects, such as SidecarSets.
func (*Follower[T]) Plural() string { return reflect.TypeFor[T]().Elem().Name() + "s" }

// readWithin is the default of Kind.ReadWithin.
const readWithin = 5 * time.Second

// NewFollower returns a Follower without objects, which starts to follow them when Follow is called. live
// reads from the API server.
func NewFollower[T client.Object](live client.Reader, kind Kind[T]) *Follower[T] {
	return &Follower[T]{
		kind:    kind,
		live:    live,
		reads:   Together[string, struct{}]{Limit: cmp.Or(kind.ReadWithin, readWithin)},
		changed: make(chan struct{}, 1),
		newest:  map[types.NamespacedName]indexed{},
		gone:    map[types.UID]time.Time{},
	}
}

// Synced reports whether all objects are known that existed at the start.
func (f *Follower[T]) Synced() bool {
	synced := f.synced.Load()
	return synced != nil && (*synced)()
}

// Absent records that the kind is not served yet, so that there are no objects, and pods need not wait for
// them. Follow is called when it is served.
func (f *Follower[T]) Absent() {
	known := func() bool { return true }
	f.synced.Store(&known)
	f.notify()
}

// Follow starts a watch on all objects of the kind, on every replica. The manager may be running already.
func (f *Follower[T]) Follow(ctx context.Context, mgr manager.Manager) error {
	informer, err := mgr.GetCache().GetInformer(ctx, f.kind.Object, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("watching %T: %w", f.kind.Object, err)
	}

	registration, err := informer.AddEventHandler(f)
	if err != nil {
		return fmt.Errorf("watching %T: %w", f.kind.Object, err)
	}

	synced := registration.HasSynced
	f.synced.Store(&synced)

	// The scope is known from now on.
	return mgr.Add(Everywhere(func(ctx context.Context) error {
		if toolscache.WaitForCacheSync(ctx.Done(), f.Synced) {
			f.notify()
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
		"%s: this manager does not know all objects yet: it has just started, or cannot watch them: %w",
		f.Plural(), ctx.Err())
}

// Changed returns a channel that has a value when the scope may have changed.
func (f *Follower[T]) Changed() <-chan struct{} { return f.changed }

func (f *Follower[T]) notify() {
	select {
	case f.changed <- struct{}{}:
	default: // a signal is pending already
	}
}

// Learn reads the objects of a namespace from the API server, because one that was admitted a moment ago may
// not be in the cache of this replica yet. Pods that come at the same time share one read.
func (f *Follower[T]) Learn(ctx context.Context, namespace string) error {
	if f.kind.Cluster {
		namespace = ""
	}
	_, err := f.reads.Do(ctx, namespace, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, f.read(ctx, namespace)
	})
	return err
}

func (f *Follower[T]) read(ctx context.Context, namespace string) error {
	list, _ := f.kind.List.DeepCopyObject().(client.ObjectList)
	err := f.live.List(ctx, list, client.InNamespace(namespace))
	if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
		return nil // the kind is not served
	}
	if err == nil {
		err = meta.EachListItem(list, func(item runtime.Object) error {
			f.OnAdd(item, false)
			return nil
		})
	}
	if err != nil {
		return fmt.Errorf("reading %s: %w", f.Plural(), err)
	}
	return nil
}

// OnAdd is called by the informer.
func (f *Follower[T]) OnAdd(object any, _ bool) {
	if added, ok := object.(T); ok && f.add(added) {
		f.notify()
	}
}

// add adds an object that was read from the API server or delivered by the informer. It ignores deleted
// objects and versions older than the known one of the same name, even if that belongs to another object.
func (f *Follower[T]) add(object T) bool {
	f.mu.Lock()
	defer f.mu.Unlock()

	key, uid := client.ObjectKeyFromObject(object), object.GetUID()
	if _, ended := f.gone[uid]; ended {
		return false
	}

	if known, ok := f.newest[key]; ok && watches.Older(object.GetResourceVersion(), known.version) {
		return false
	}

	f.newest[key] = indexed{uid, object.GetResourceVersion()}
	f.kind.Set(object)
	return true
}

// OnUpdate is called by the informer.
func (f *Follower[T]) OnUpdate(old, object any) {
	is, ok := object.(T)
	if !ok {
		return
	}

	was, ok := old.(T)
	news, again := f.add(is), ok && was.GetUID() != is.GetUID()

	// The object was deleted and recreated. The new one replaces it at once, so that no pod misses both.
	if again {
		f.forget(was)
	}
	if news && (!ok || again || !f.kind.NamesOnly && was.GetGeneration() != is.GetGeneration()) {
		f.notify()
	}
}

// OnDelete is called by the informer.
func (f *Follower[T]) OnDelete(object any) {
	if last, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
		object = last.Obj
	}
	if gone, ok := object.(T); ok {
		f.forget(gone)
		f.notify()
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
		f.kind.Delete(object)
	}
}
