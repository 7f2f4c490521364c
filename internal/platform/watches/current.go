package watches

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
)

const (
	// currentTold is after how long kinds whose caches are behind are named in the log, and again.
	currentTold = 10 * time.Second
	// few objects of a kind are compared one by one. Each may be of 1.5 MiB, and currentLists kinds are listed at once.
	few, currentLists = 10, 4
	// currentEvery is the pause between two looks at a cache.
	currentEvery = 50 * time.Millisecond
	// currentAgain is the pause after a request that failed.
	currentAgain = time.Second
	// lookTime is how long a watch lasts that asks what a cache lacks. An API server sends a bookmark two seconds
	// before the end of a watch.
	lookTime = 3 * time.Second
)

// Current waits until each cache shows what the API server had stored when it was called. A replica that begins
// to lead calls it, because the leader before may have written what a cache does not show whose watch was broken.
// It does not wait for kinds that are rejected, and for no kind longer than the given time, since nothing would work
// without a leader; it logs which kinds are behind. client-go takes up to a minute before it watches again what it could
// not watch several times.
func (w *Watches) Current(ctx context.Context, log logr.Logger, within time.Duration) {
	limited, cancel := context.WithTimeout(ctx, within)
	defer cancel()

	began := w.clock.Now()
	waited := func() string { return w.clock.Since(began).Round(time.Millisecond).String() }
	var waits sync.WaitGroup
	lists := make(chan struct{}, currentLists)
	for _, one := range w.list() {
		waits.Go(func() {
			one.waitCurrent(limited, w.clock, lists, func() {
				log.Info("Controllers wait for a cache that does not show yet what was stored when this replica began to lead",
					"kind", one.kind, "waited", waited())
			})
		})
	}
	waits.Wait()

	switch {
	case ctx.Err() != nil:
	case limited.Err() != nil:
		log.Info("Controllers begin although a cache does not show yet what was stored when this replica began to lead",
			"waited", waited())
	default:
		log.Info("The caches show what was stored when this replica began to lead", "waited", waited())
	}
}

// waitCurrent waits until the informer shows what is stored now. It calls tell at times while it waits.
func (o *watch) waitCurrent(ctx context.Context, now clock.PassiveClock, lists chan struct{}, tell func()) {
	ticks, told := time.NewTicker(currentEvery), now.Now()
	defer ticks.Stop()

	gap := gap{watch: o, clock: now, lists: lists}
	for {
		if _, _, err := o.refused(now.Now()); err != nil || o.stopped() || o.synced() && gap.closed(ctx) {
			return
		}
		if now.Since(told) >= currentTold {
			told = now.Now()
			tell()
		}
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		}
	}
}

// gap is what an informer may lack of what is stored.
type gap struct {
	*watch
	clock clock.PassiveClock
	// lists limits how many lists are read at once.
	lists chan struct{}
	// stored is the version of the API server that the informer must show, or empty if it was not read yet. objects are
	// the versions of the objects at that time by their keys, if they are few.
	stored  string
	objects map[string]string
	// from is the version up to which the API server has said what changed after the version of the informer.
	// newest is the last change until then, or empty if nothing changed. known reports that from is as new as
	// stored.
	from, newest string
	known        bool
}

// closed reports whether the informer shows what was stored when it was called first. The version of an informer
// alone does not show that: it is the one of the last change of its kind, or of a bookmark, which comes once a
// minute, while the version of what is stored is one of all kinds. So it compares objects if they are few, and asks
// otherwise by a watch of its own whether anything has changed in between.
func (g *gap) closed(ctx context.Context) bool {
	if g.stored == "" {
		if err := g.read(ctx); err != nil {
			g.retry(ctx, err)
			return false
		}
	}
	has := g.version()
	if !Older(has, g.stored) {
		return true
	}
	if g.objects != nil {
		return g.same()
	}
	if !g.known {
		if g.from == "" {
			g.from = has
		}
		g.look(ctx)
	}
	return g.known && (g.newest == "" || !Older(g.version(), g.newest))
}

// read reads what is stored.
func (g *gap) read(ctx context.Context) error {
	select {
	case g.lists <- struct{}{}:
		defer func() { <-g.lists }()
	case <-ctx.Done():
		return ctx.Err()
	}

	read, err := g.source.ListWithContext(ctx, metav1.ListOptions{Limit: few})
	if err != nil {
		return err //nolint:wrapcheck // its kind counts
	}
	list, err := meta.ListAccessor(read)
	if err != nil {
		return fmt.Errorf("listing %s: %w", g.kind, err)
	}
	g.stored = list.GetResourceVersion()
	if list.GetContinue() != "" || meta.LenList(read) > few { // API servers may ignore the limit
		return nil
	}
	objects := map[string]string{}
	err = meta.EachListItem(read, func(object runtime.Object) error {
		key, err := toolscache.MetaNamespaceKeyFunc(object)
		objects[key] = versionOf(object)
		return err //nolint:wrapcheck // wrapped below
	})
	if err != nil {
		return fmt.Errorf("listing %s: %w", g.kind, err)
	}
	g.objects = objects
	return nil
}

// same reports whether the informer has each object as it was stored, or newer, and none that was gone.
func (g *gap) same() bool {
	for key, version := range g.objects {
		if object, found, err := g.store.GetByKey(key); err != nil || !found || Older(versionOf(object), version) {
			return false
		}
	}
	for _, object := range g.store.List() {
		key, err := toolscache.MetaNamespaceKeyFunc(object)
		if _, there := g.objects[key]; err != nil || !there && Older(versionOf(object), g.stored) {
			return false
		}
	}
	return true
}

// look asks the API server what changed after from, for some seconds at most. A watch that ends when its time is over
// has shown all, too: where etcd does not tell API servers of its progress, no bookmark is ever as new as what is
// stored if the kind does not change.
func (g *gap) look(ctx context.Context) {
	watching, cancel := context.WithTimeout(ctx, 2*lookTime)
	defer cancel()
	began := time.Now()
	changes, err := g.source.WatchWithContext(watching, metav1.ListOptions{
		ResourceVersion: g.from, AllowWatchBookmarks: true, TimeoutSeconds: new(int64(lookTime / time.Second)),
	})
	if err != nil {
		g.retry(ctx, err)
		return
	}
	defer changes.Stop()

	for !g.known {
		select {
		case <-watching.Done():
			return
		case event, more := <-changes.ResultChan():
			switch {
			case !more:
				if g.known = time.Since(began) > lookTime/2; !g.known {
					g.retry(ctx, io.EOF)
				}
				return
			case event.Type == apiwatch.Error:
				g.retry(ctx, apierrors.FromObject(event.Object))
				return
			}
			g.from = versionOf(event.Object)
			if event.Type != apiwatch.Bookmark {
				g.newest = g.from
			}
			g.known = !Older(g.from, g.stored)
		}
	}
}

// retry pauses after a request that failed, and records if the API server rejects the kind. The look begins anew if
// it does not know any more what changed since. The informer has to list again then, too.
func (g *gap) retry(ctx context.Context, err error) {
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		g.from = ""
	}
	g.failed(err, g.clock.Now())
	select {
	case <-ctx.Done():
	case <-time.After(currentAgain):
	}
}

func versionOf(object any) string {
	if one, err := meta.Accessor(object); err == nil {
		return one.GetResourceVersion()
	}
	return ""
}

// Older reports whether a version of an object is older than another one. Versions that have no order are not, since no
// other API server than that of Kubernetes may have them.
func Older(version, than string) bool {
	order, err := resourceversion.CompareResourceVersion(version, than)
	return err == nil && order < 0
}
