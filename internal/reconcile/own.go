package reconcile

import (
	"context"
	"fmt"
	"reflect"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/afloat-project/afloat/internal/platform/watches"
)

// DoubtAfter is how long a write may be missing in the cache before it is looked up in the API server.
const DoubtAfter = 2 * time.Second

type operation int

const (
	changed operation = iota // until the cache shows at least this version, or the object's end
	created                  // until the cache shows the object; doubt is settled by a live read
	deleted                  // until the cache shows that it is going, or gone
	gone                     // until the cache does not show it any more
	unsure                   // it may have happened: a live read finds out which of the above it was
)

// id identifies an object. Objects of one Go type are of one kind, except metadata-only objects, which name
// their kind.
type id struct {
	of   reflect.Type
	kind string
	name types.NamespacedName
}

func idOf(object client.Object) id {
	kind := ""
	if metadata, ok := object.(*metav1.PartialObjectMetadata); ok {
		kind = metadata.Kind
	}
	return id{reflect.TypeOf(object), kind, client.ObjectKeyFromObject(object)}
}

// write is one own write. It is immutable once it is remembered.
type write struct {
	operation operation
	// object is the version that the write left, as the caches would keep it. If the object is gone or in
	// doubt, only its type and name count.
	object client.Object
	at     time.Time
	// unseen is true if the deleted object had just been created, so that the cache may not show it at all
	// yet.
	unseen bool
}

// OwnWrites holds the writes of a controller that its caches may not show yet, by owner. Its methods may be
// called concurrently, but those that read for one owner only by one worker at a time.
type OwnWrites struct {
	// Cache and Live read objects from the caches and from the API server.
	Cache, Live client.Reader
	// Leaked is called for each created object that was gone before any cache showed it; it may be nil.
	Leaked func(owner types.UID)

	mu     sync.Mutex
	owners map[types.UID]map[id]*write
	// conflicts are the versions with which guarded writes met a conflict last, by owner and object.
	conflicts map[types.UID]map[types.UID]string
}

// mostConflicts is how many objects of an owner are remembered for their conflicts.
const mostConflicts = 1000

// conflict records that a write guarded by the version of the object met a conflict, and reports whether one with the same version
// did so before.
func (o *OwnWrites) conflict(owner types.UID, object client.Object) (again bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	of := o.conflicts[owner]
	if of[object.GetUID()] == object.GetResourceVersion() {
		return true
	}
	if of == nil || len(of) >= mostConflicts {
		of = map[types.UID]string{}
	}
	if o.conflicts == nil {
		o.conflicts = map[types.UID]map[types.UID]string{}
	}
	of[object.GetUID()] = object.GetResourceVersion()
	o.conflicts[owner] = of
	return false
}

func (o *OwnWrites) remember(owner types.UID, w *write) {
	if o == nil {
		return
	}

	o.mu.Lock()
	defer o.mu.Unlock()

	if o.owners == nil {
		o.owners = map[types.UID]map[id]*write{}
	}
	if o.owners[owner] == nil {
		o.owners[owner] = map[id]*write{}
	}

	before := o.owners[owner][idOf(w.object)]
	if before != nil && (before.operation == created || before.unseen) &&
		before.object.GetUID() == w.object.GetUID() {
		// The cache may not show the object at all yet, so its absence from the cache does not mean that it
		// is gone.
		switch w.operation {
		case changed:
			w.operation = created
		case deleted:
			w.unseen = true
		case created, gone, unsure:
		}
	}

	o.owners[owner][idOf(w.object)] = w
}

// Changed remembers the version that a change left or that a live read showed.
func (o *OwnWrites) Changed(owner types.UID, object client.Object, at time.Time) {
	o.remember(owner, &write{operation: changed, object: object, at: at})
}

// Created remembers an object that was created, or that a live read showed but the cache did not.
func (o *OwnWrites) Created(owner types.UID, object client.Object, at time.Time) {
	o.remember(owner, &write{operation: created, object: object, at: at})
}

// Deleted remembers that the deletion of an object was requested.
func (o *OwnWrites) Deleted(owner types.UID, object client.Object, at time.Time) {
	going := object.DeepCopyObject().(client.Object)
	if going.GetDeletionTimestamp() == nil {
		end := metav1.NewTime(at.Add(graceOf(going)))
		going.SetDeletionTimestamp(&end)
	}
	o.remember(owner, &write{operation: deleted, object: going, at: at})
}

// graceOf returns how long a pod has to terminate. It is always the default, because the caches do not keep
// the value of every pod; the true time comes with the next event.
func graceOf(object client.Object) time.Duration {
	if _, pod := object.(*corev1.Pod); pod {
		return corev1.DefaultTerminationGracePeriodSeconds * time.Second
	}
	return 0
}

// Unsure remembers a write whose outcome is not known, such as one that timed out.
func (o *OwnWrites) Unsure(owner types.UID, object client.Object, at time.Time) {
	o.remember(owner, &write{operation: unsure, object: object, at: at})
}

// Forget drops all that is remembered of an owner that is gone.
func (o *OwnWrites) Forget(owner types.UID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.owners, owner)
	delete(o.conflicts, owner)
}

func (o *OwnWrites) pending(owner types.UID) []*write {
	if o == nil { // there are no remembered writes
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	writes := make([]*write, 0, len(o.owners[owner]))
	for _, w := range o.owners[owner] {
		writes = append(writes, w)
	}
	return writes
}

// lookup returns the write about an object of that type and name, nil if there is none.
func (o *OwnWrites) lookup(owner types.UID, like client.Object) *write {
	if o == nil { // there are no remembered writes
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	writes := o.owners[owner]
	if len(writes) == 0 {
		return nil
	}
	return writes[idOf(like)]
}

func (o *OwnWrites) drop(owner types.UID, w *write) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.owners[owner][idOf(w.object)] == w {
		delete(o.owners[owner], idOf(w.object))
	}
	if len(o.owners[owner]) == 0 {
		delete(o.owners, owner)
	}
}

// Settle forgets the writes that the caches show, and finds out what became of those in doubt. It returns an
// error if a live read fails: no plan may be made then.
func (o *OwnWrites) Settle(ctx context.Context, owner types.UID, now time.Time) error {
	for _, w := range o.pending(owner) {
		if w.operation == unsure {
			var err error
			if w, err = o.ascertained(ctx, w, now); err != nil {
				return err
			}
			o.remember(owner, w)
		}
		settled, err := o.settled(ctx, owner, w, now)
		if err != nil {
			return err
		}
		if settled {
			o.drop(owner, w)
		}
	}

	return nil
}

// Again returns when to requeue although no event arrives, because the caches may never show what is still
// missing in them; 0 means not at all.
func (o *OwnWrites) Again(owner types.UID) time.Duration { return o.again(owner, true) }

// AgainAfter is [OwnWrites.Again] after a pass that ended with err. After a failure the back-off of the queue decides
// when writes in doubt are looked up, since the pass that does so tries again what failed.
func (o *OwnWrites) AgainAfter(owner types.UID, err error) time.Duration {
	return o.again(owner, err == nil)
}

func (o *OwnWrites) again(owner types.UID, doubtful bool) time.Duration {
	for _, w := range o.pending(owner) {
		if w.operation == created || w.operation == gone || w.operation == unsure && doubtful || w.unseen {
			return DoubtAfter
		}
	}
	return 0
}

// ascertained finds out what became of a write whose answer was lost.
func (o *OwnWrites) ascertained(ctx context.Context, w *write, now time.Time) (*write, error) {
	actual, err := o.live(ctx, w.object)
	if err != nil {
		return nil, err
	}
	if actual == nil {
		return &write{operation: gone, object: w.object, at: now}, nil
	}
	return o.found(ctx, actual, now)
}

// found returns a write for what a live read showed, as if this controller had written it. The cache may hold
// an older version of the object, none, or an earlier object of the same name.
func (o *OwnWrites) found(ctx context.Context, actual client.Object, now time.Time) (*write, error) {
	seen, err := o.cached(ctx, actual)
	if err != nil {
		return nil, err
	}
	if seen != nil && seen.GetUID() == actual.GetUID() {
		return &write{operation: changed, object: actual, at: now}, nil
	}
	return &write{operation: created, object: actual, at: now}, nil
}

func (o *OwnWrites) cached(ctx context.Context, like client.Object) (client.Object, error) {
	seen, err := read(ctx, o.Cache, like, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, fmt.Errorf("reading %T %s: %w", like, like.GetName(), err)
	}
	return seen, nil
}

// Newer returns the cached version of an object if it is newer than the given one, and nil otherwise.
func (o *OwnWrites) Newer(ctx context.Context, than client.Object) client.Object {
	if o == nil { // nothing is laid over the caches
		return nil
	}
	seen, err := o.cached(ctx, than)
	if err != nil || seen == nil || seen.GetUID() != than.GetUID() || !Older(than, seen) {
		return nil // a write guarded by the given version is refused if that version is stale
	}

	return seen
}

func (o *OwnWrites) live(ctx context.Context, like client.Object) (client.Object, error) {
	actual, err := read(ctx, o.Live, like)
	if err != nil {
		return nil, fmt.Errorf("reading %T %s from the API server: %w", like, like.GetName(), err)
	}
	return actual, nil
}

func (o *OwnWrites) settled(ctx context.Context, owner types.UID, w *write, now time.Time) (bool, error) {
	seen, err := o.cached(ctx, w.object)
	if err != nil {
		return false, err
	}

	late := now.Sub(w.at) >= DoubtAfter
	switch w.operation {
	case gone:
		if seen == nil || !late {
			return seen == nil, nil
		}
		actual, err := o.live(ctx, w.object)
		switch {
		case err != nil:
			return false, err
		case actual == nil: // the cache will show it
			o.remember(owner, &write{operation: gone, object: w.object, at: now})
		case actual.GetUID() != seen.GetUID(): // another object of this name was created
			o.remember(owner, &write{operation: created, object: actual, at: now})
		default:
			return true, nil
		}
		return false, nil
	case deleted:
		if !w.unseen || arrived(seen, w.object) {
			return seen == nil || seen.GetUID() != w.object.GetUID() ||
				seen.GetDeletionTimestamp() != nil, nil
		}
	case changed:
		return seen == nil || seen.GetUID() != w.object.GetUID() || !Older(seen, w.object), nil
	default: // created
		if seen != nil {
			return !Older(seen, w.object), nil // an earlier object of the same name does not count
		}
	}

	if !late {
		return false, nil
	}

	actual, err := o.live(ctx, w.object)
	if err != nil {
		return false, err
	}
	if actual != nil && actual.GetUID() == w.object.GetUID() { // it exists: the cache will show it
		next := &write{operation: w.operation, object: actual, at: now}
		if w.operation == deleted {
			next.object = w.object
		}
		o.remember(owner, next)
		return false, nil
	}

	if o.Leaked != nil && w.operation == created { // otherwise it went because this controller deleted it
		o.Leaked(owner)
	}

	return true, nil
}

// arrived reports whether the cache shows the object itself or a later one of its name; seen is what the
// cache shows.
func arrived(seen, object client.Object) bool {
	return seen != nil && (seen.GetUID() == object.GetUID() || !Older(seen, object))
}

// read returns the object of the same type and name, nil if there is none.
func read(
	ctx context.Context, reader client.Reader, like client.Object, options ...client.GetOption,
) (client.Object, error) {
	found := reflect.New(reflect.TypeOf(like).Elem()).Interface().(client.Object)
	if metadata, ok := found.(*metav1.PartialObjectMetadata); ok {
		metadata.SetGroupVersionKind(like.GetObjectKind().GroupVersionKind())
	}
	if err := reader.Get(ctx, client.ObjectKeyFromObject(like), found, options...); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	return found, nil
}

// Overlay merges this controller's recent writes into a list that was read from the cache. mine reports
// whether a version of an object belongs to the owner, since a write may add an object to the list or remove
// it. Overlay changes the list but not the objects.
func Overlay[T client.Object](o *OwnWrites, owner types.UID, cached []T, mine func(T) bool) []T {
	written := map[types.NamespacedName]*write{}
	for _, w := range o.pending(owner) {
		if _, ok := w.object.(T); ok {
			written[client.ObjectKeyFromObject(w.object)] = w
		}
	}

	if len(written) == 0 {
		return cached
	}

	kept := cached[:0]
	for _, object := range cached {
		name := client.ObjectKeyFromObject(object)
		w := written[name]
		if w == nil {
			kept = append(kept, object)
			continue
		}
		delete(written, name)
		if newest, there := w.appliedTo(object); there && mine(newest.(T)) {
			kept = append(kept, newest.(T))
		}
	}

	for _, w := range written {
		if newest, there := w.appliedTo(o.nobodys(w)); there && mine(newest.(T)) {
			kept = append(kept, newest.(T))
		}
	}

	return kept
}

// nobodys returns the cached version of a deleted object that is missing in the list of the owner's
// objects. The cache may still show it without an owner if it was adopted before.
func (o *OwnWrites) nobodys(w *write) client.Object {
	if w.operation != deleted {
		return nil
	}
	seen, err := o.cached(context.Background(), w.object)
	if err != nil { // the next pass fails to settle it
		return nil
	}
	return seen
}

// Newest is [Overlay] for one object. Its type and name must be set even if the cache has no such object.
func Newest[T client.Object](o *OwnWrites, owner types.UID, cached T, exists bool) (T, bool) {
	w := o.lookup(owner, cached)
	if w == nil {
		return cached, exists
	}
	var have client.Object
	if exists {
		have = cached
	}
	if newest, there := w.appliedTo(have); there {
		return newest.(T), true
	}
	return cached, false
}

// appliedTo returns the state of an object after the write, and whether it exists. cached is the cached
// version, nil if there is none.
func (w *write) appliedTo(cached client.Object) (client.Object, bool) {
	switch w.operation {
	case gone:
		return nil, false
	case deleted:
		before := w.unseen && !arrived(cached, w.object)
		if !before && (cached == nil || cached.GetUID() != w.object.GetUID() ||
			cached.GetDeletionTimestamp() != nil) {
			return cached, cached != nil
		}
		_, pod := w.object.(*corev1.Pod)
		return w.object, pod || len(w.object.GetFinalizers()) > 0 // without finalizers nothing holds it
	case unsure: // the write does not count until it is settled
		return cached, cached != nil
	}

	if cached != nil && !Older(cached, w.object) {
		return cached, true
	}

	return w.object, true
}

// Older reports whether a has an older version than b; it is false if the versions cannot be compared.
func Older(a, b client.Object) bool {
	return watches.Older(a.GetResourceVersion(), b.GetResourceVersion())
}
