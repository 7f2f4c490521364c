package controller

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/afloat-project/afloat/internal/kinds/resourcedistribution"
)

// watches holds one watch for each kind and name that is distributed, for as long as a ResourceDistribution
// needs it. A watch of one name is authorized by that name, so that a role may be limited to the names that
// are distributed, and no other Secret of the cluster reaches this process
// (docs/decisions/0031-copies-are-watched-by-name.md).
type watches struct {
	// follow keeps copies up to date until the context ends. It does not block.
	follow  func(context.Context, *copies)
	changed func(of *copies, namespace string)

	mu  sync.Mutex
	ctx context.Context //nolint:containedctx // of the controller; watches begin in passes, and outlive them
	of  map[resourcedistribution.Of]*copies
}

// start sets the context that ends all watches.
func (w *watches) start(ctx context.Context) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ctx = ctx
}

// use returns the copies of a kind and name, which are watched as long as somebody uses them.
func (w *watches) use(of resourcedistribution.Of, owner types.UID, d *distribution) *copies {
	c, begin := w.enter(of, owner, d)
	if begin != nil {
		begin()
	}
	return c
}

// enter adds a user. begin, if not nil, must be called to start the watch, which calls back.
func (w *watches) enter(
	of resourcedistribution.Of, owner types.UID, d *distribution,
) (c *copies, begin func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if c = w.of[of]; c == nil {
		if w.of == nil {
			w.of = map[resourcedistribution.Of]*copies{}
		}
		c = newCopies(of, w.changed)
		ctx, stop := context.WithCancel(w.ctx)
		c.stop = stop
		w.of[of] = c
		begin = func() { w.follow(ctx, c) }
	}
	c.users[owner] = d
	return c, begin
}

// leave removes a user of copies. The last one ends the watch.
func (w *watches) leave(c *copies, owner types.UID) {
	if c == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(c.users, owner)
	if len(c.users) == 0 {
		c.stop()
		delete(w.of, c.of)
	}
}

// users returns the distributions that use copies.
func (w *watches) users(c *copies) []*distribution {
	w.mu.Lock()
	defer w.mu.Unlock()
	users := make([]*distribution, 0, len(c.users))
	for _, d := range c.users {
		users = append(users, d)
	}
	return users
}

// all returns the copies that are watched.
func (w *watches) all() []*copies {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Collect(maps.Values(w.of))
}

// count returns the number of watches.
func (w *watches) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.of)
}

// page is how many objects are listed at once. Each may have a megabyte, and is reduced to a digest before
// the next page is read.
const page = 50

// follower returns a function that watches copies in a cluster.
func follower(kube typedcorev1.CoreV1Interface) func(context.Context, *copies) {
	return func(ctx context.Context, c *copies) {
		named := fields.OneTermEqualSelector(metav1.ObjectNameField, c.of.Name).String()
		lister := &cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context,
				options metav1.ListOptions) (runtime.Object, error) {
				options.FieldSelector = named
				all, err := list(ctx, kube, c.of.Kind, options)
				if err != nil && ctx.Err() == nil {
					c.failed(err)
				}
				return all, err
			},
			WatchFuncWithContext: func(ctx context.Context,
				options metav1.ListOptions) (watch.Interface, error) {
				options.FieldSelector = named
				events, err := watchKind(ctx, kube, c.of.Kind, options)
				if err != nil {
					if ctx.Err() == nil {
						c.failed(err)
					}
					return nil, err
				}
				return watch.Filter(events, digested), nil
			},
		}
		reflector := cache.NewReflectorWithOptions(lister, nil, c,
			cache.ReflectorOptions{Name: "resourcedistribution " + c.of.Kind + " " + c.of.Name,
				TypeDescription: c.of.Kind, MinWatchTimeout: 5 * time.Minute})
		go reflector.RunWithContext(ctx)
	}
}

// digested reduces an event of a watch to what is kept of it.
func digested(event watch.Event) (watch.Event, bool) {
	object, ok := event.Object.(client.Object)
	switch {
	case !ok || event.Type == watch.Error:
	case event.Type == watch.Bookmark:
		event.Object = &seen{ObjectMeta: metav1.ObjectMeta{ResourceVersion: object.GetResourceVersion(),
			Annotations: object.GetAnnotations()}}
	default:
		event.Object = seenOf(object)
	}
	return event, true
}

// list reads all objects page by page, and keeps digests of them.
func list(
	ctx context.Context, kube typedcorev1.CoreV1Interface, kind string, options metav1.ListOptions,
) (runtime.Object, error) {
	all := &metav1.List{}
	keep := func(object client.Object) {
		all.Items = append(all.Items, runtime.RawExtension{Object: seenOf(object)})
	}

	// Start at the beginning, at the newest version: a list from the API server's cache has no pages.
	options = metav1.ListOptions{FieldSelector: options.FieldSelector, Limit: page}
	for {
		var next metav1.ListMeta
		if kind == resourcedistribution.Secret {
			found, err := kube.Secrets(corev1.NamespaceAll).List(ctx, options)
			if err != nil {
				return nil, fmt.Errorf("listing Secrets: %w", err)
			}
			for i := range found.Items {
				keep(&found.Items[i])
			}
			next = found.ListMeta
		} else {
			found, err := kube.ConfigMaps(corev1.NamespaceAll).List(ctx, options)
			if err != nil {
				return nil, fmt.Errorf("listing ConfigMaps: %w", err)
			}
			for i := range found.Items {
				keep(&found.Items[i])
			}
			next = found.ListMeta
		}
		all.ResourceVersion = next.ResourceVersion
		if options.Continue = next.Continue; options.Continue == "" {
			return all, nil
		}
	}
}

func watchKind(
	ctx context.Context, kube typedcorev1.CoreV1Interface, kind string, options metav1.ListOptions,
) (watch.Interface, error) {
	if kind == resourcedistribution.Secret {
		return kube.Secrets(corev1.NamespaceAll).Watch(ctx, options) //nolint:wrapcheck // the reflector looks at the status
	}
	return kube.ConfigMaps(corev1.NamespaceAll).Watch(ctx, options) //nolint:wrapcheck // as above
}
