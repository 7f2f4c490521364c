package reconcile

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// ServedEvery is the interval between checks for kinds that were not served at the start (OPS-031).
const ServedEvery = 10 * time.Second

// Unserved returns the first of the kinds that the API server does not serve, or an empty one if it serves
// all. It returns an error if the API server does not respond.
func Unserved(mapper meta.RESTMapper, kinds ...schema.GroupVersionKind) (schema.GroupVersionKind, error) {
	for _, kind := range kinds {
		_, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
		if meta.IsNoMatchError(err) {
			return kind, nil
		}
		if err != nil {
			return schema.GroupVersionKind{}, fmt.Errorf(
				"finding out whether %s is served: %w", kind.Kind, err)
		}
	}
	return schema.GroupVersionKind{}, nil
}

// AwaitServed returns when the API server serves all kinds, which it asks for at the given interval, or with
// an error when the context is done. Meanwhile the API server need not respond.
func AwaitServed(
	ctx context.Context, mapper meta.RESTMapper, every time.Duration, kinds ...schema.GroupVersionKind,
) error {
	return wait.PollUntilContextCancel(ctx, every, true, func(context.Context) (bool, error) {
		missing, err := Unserved(mapper, kinds...)
		return missing.Empty() && err == nil, nil
	})
}

// LateKind is a source of a controller: it watches a kind, which may be served later than the controller
// starts. Nothing waits for it. It takes these steps, and tries each again until it succeeds: wait until the
// kind is served, add the indexes, fill the cache, watch, and enqueue what waits for the kind.
type LateKind struct {
	Cache  cache.Cache
	Mapper meta.RESTMapper
	// Kind is the kind, Name its name in logs, and Object an empty object of it.
	Kind   schema.GroupVersionKind
	Name   string
	Object client.Object
	// Indexes are the indexes that the controller lists objects with.
	Indexes []*Index
	// Handler and Predicates turn events into requests.
	Handler    handler.EventHandler
	Predicates []predicate.Predicate
	// Current waits until the cache shows what was stored when this replica began to lead; nil means that nothing is waited for.
	Current func(context.Context) error
	// Served is called when objects can be listed.
	Served func()
	// Waiting returns requests for what waits for the kind.
	Waiting func(context.Context) ([]ctrl.Request, error)
	// Without and With say for logs what holds while the kind is not followed, and once it is. The log does
	// not say the latter if With is empty.
	Without, With string
}

// AddTo adds the watch to a controller before it starts. If the kind is served already, the controller waits
// for the cache as for any other kind.
func (k *LateKind) AddTo(ctx context.Context, b *builder.Builder) error {
	missing, err := Unserved(k.Mapper, k.Kind)
	if err != nil {
		return err
	}
	if !missing.Empty() {
		log.FromContext(ctx).Info("A kind is not served: "+k.Without+" until it is", "kind", k.Name)
		b.WatchesRawSource(k)
		return nil
	}

	if err := k.index(ctx); err != nil {
		return err
	}
	b.Watches(k.Object, k.Handler, builder.WithPredicates(k.Predicates...))
	k.Served()

	return nil
}

// Start implements source.Source. It returns at once.
func (k *LateKind) Start(
	ctx context.Context, queue workqueue.TypedRateLimitingInterface[ctrl.Request],
) error {
	go k.run(ctx, queue)
	return nil
}

func (k *LateKind) run(ctx context.Context, queue workqueue.TypedRateLimitingInterface[ctrl.Request]) {
	if AwaitServed(ctx, k.Mapper, ServedEvery, k.Kind) != nil {
		return // the manager is stopping
	}

	logger := log.FromContext(ctx).WithValues("kind", k.Name)
	for _, step := range []struct {
		failure string
		do      func(context.Context) error
	}{
		{"indexing fails", k.index},
		{"the cache does not come", k.fill},
		{"the watch does not start", func(ctx context.Context) error { return k.watch(ctx, queue) }},
		{"what waits cannot be listed", func(ctx context.Context) error { return k.enqueue(ctx, queue) }},
	} {
		if wait.PollUntilContextCancel(ctx, ServedEvery, true, func(ctx context.Context) (bool, error) {
			err := step.do(ctx)
			if err != nil && ctx.Err() == nil {
				logger.Error(err, k.Without+": "+step.failure)
			}
			return err == nil, nil
		}) != nil {
			return
		}
	}

	if k.With != "" {
		logger.Info("A kind is served now: " + k.With)
	}
}

func (k *LateKind) index(ctx context.Context) error {
	for _, index := range k.Indexes {
		if err := index.Add(ctx, k.Cache); err != nil {
			return fmt.Errorf("indexing %s by %s: %w", k.Name, index.Field, err)
		}
	}
	return nil
}

// fill waits until the cache holds all objects, which may take as long as a right to list them is missing, and is current.
func (k *LateKind) fill(ctx context.Context) error {
	informer, err := k.Cache.GetInformer(ctx, k.Object)
	switch {
	case err != nil:
		return err
	case !informer.HasSynced():
		return errors.New("it is not filled")
	case k.Current != nil:
		return k.Current(ctx)
	}
	return nil
}

// watch starts the events. Before that, the controller knows that the kind is served, because the first
// events are about the objects that exist already, and nothing else may enqueue their owners.
func (k *LateKind) watch(
	ctx context.Context, queue workqueue.TypedRateLimitingInterface[ctrl.Request],
) error {
	k.Served()
	return source.Kind(k.Cache, k.Object, k.Handler, k.Predicates...).Start(ctx, queue)
}

func (k *LateKind) enqueue(
	ctx context.Context, queue workqueue.TypedRateLimitingInterface[ctrl.Request],
) error {
	requests, err := k.Waiting(ctx)
	for _, request := range requests {
		queue.Add(request)
	}
	return err
}

// Index is an index of objects in the caches. Caches reject an index that they have, so it is added once, for
// all controllers that share it and for all attempts.
type Index struct {
	Object client.Object
	Field  string
	Of     client.IndexerFunc

	mu    sync.Mutex
	added bool
}

// Add adds the index unless it was added before.
func (i *Index) Add(ctx context.Context, indexer client.FieldIndexer) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.added {
		return nil
	}
	err := indexer.IndexField(ctx, i.Object, i.Field, i.Of)
	i.added = err == nil
	return err
}

// ServedKinds are those of a controller's kinds that are served and can be listed. The zero value is ready to
// use.
type ServedKinds[K comparable] struct {
	mu    sync.Mutex
	kinds []K
}

// Add adds a kind.
func (s *ServedKinds[K]) Add(kind K) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kinds = append(s.kinds, kind)
}

// Of returns those of the kinds that are served, and those that are not.
func (s *ServedKinds[K]) Of(kinds []K) (served, missing []K) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, kind := range kinds {
		if slices.Contains(s.kinds, kind) {
			served = append(served, kind)
		} else {
			missing = append(missing, kind)
		}
	}
	return served, missing
}
