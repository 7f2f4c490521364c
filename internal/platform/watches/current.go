package watches

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
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
// It waits for kinds that are rejected for some seconds at most, and for no kind longer than the given time, since nothing
// would work without a leader; it logs which kinds are behind. client-go takes up to a minute before it watches again what it could
// not watch several times.
func (w *Watches) Current(ctx context.Context, log logr.Logger, within time.Duration) {
	limited, cancel := context.WithTimeout(ctx, within)
	defer cancel()

	began := w.clock.Now()
	var waits sync.WaitGroup
	var behind sync.Map // the watches that are waited for
	tell := func(what string) {
		kinds := map[string]bool{}
		behind.Range(func(one, _ any) bool {
			kinds[one.(*watch).kind.GroupKind().String()] = true
			return true
		})
		log.Info(what, "kinds", slices.Sorted(maps.Keys(kinds)), "waited", w.clock.Since(began).Round(time.Millisecond).String())
	}
	lists := make(chan struct{}, currentLists)
	for _, one := range w.list() {
		behind.Store(one, nil)
		waits.Go(func() {
			if one.waitCurrent(limited, w.clock, lists) {
				behind.Delete(one)
			}
		})
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		waits.Wait()
	}()

	ticks := time.NewTicker(currentTold)
	defer ticks.Stop()
	for {
		select {
		case <-ticks.C:
			tell("Controllers wait for caches that do not show yet what was stored when this replica began to lead")
			continue
		case <-done:
		}
		switch {
		case ctx.Err() != nil:
		case limited.Err() != nil:
			tell("Controllers begin although caches do not show yet what was stored when this replica began to lead")
		default:
			log.Info("The caches show what was stored when this replica began to lead",
				"waited", w.clock.Since(began).Round(time.Millisecond).String())
		}
		return
	}
}

// waitCurrent waits until the informer shows what is stored now, or is not to be waited for. It returns false if ctx ends
// before.
func (o *watch) waitCurrent(ctx context.Context, now clock.PassiveClock, lists chan struct{}) bool {
	ticks := time.NewTicker(currentEvery)
	defer ticks.Stop()

	gap := gap{watch: o, clock: now, lists: lists}
	for {
		if o.stopped() || gap.rejected() || gap.closed(ctx) {
			return true
		}
		select {
		case <-ctx.Done():
			return false
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
	// stored. silent is how many watches in a row have lasted their time and did not say so.
	from, newest string
	known        bool
	silent       int
	// since is from when on each request was rejected, or zero.
	since time.Time
}

// rejected reports whether there is nothing to wait for: the kind is rejected and was never read, or is rejected for long.
// One answer does not say that, since an API server that starts rejects what it answers a moment later.
func (g *gap) rejected() bool {
	if !g.synced() {
		_, _, err := g.refused(g.clock.Now())
		return err != nil
	}
	return !g.since.IsZero() && g.clock.Since(g.since) >= grace
}

// closed reports whether the informer shows what was stored when it was called first. The version of an informer
// alone does not show that: it is the one of the last change of its kind, or of a bookmark, which comes once a
// minute, while the version of what is stored is one of all kinds. So it compares objects if they are few, and asks
// otherwise by a watch of its own whether anything has changed in between. It reads what is stored before the informer has
// listed, since an informer that lists afterwards shows that at once.
func (g *gap) closed(ctx context.Context) bool {
	if g.stored == "" {
		if err := g.read(ctx); err != nil {
			g.retry(ctx, err)
			return false
		}
		g.since = time.Time{}
	}
	if !g.synced() {
		return false
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

// read reads what is stored. A list that hangs does not keep others from theirs.
func (g *gap) read(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, currentTold)
	defer cancel()
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

// look asks the API server what changed after from, for some seconds at most. Two watches in a row that end when their time
// is over have shown all, too: where etcd does not tell API servers of its progress, no bookmark is ever as new as what is
// stored if the kind does not change. One alone may be of an API server that lags behind the one that was read.
func (g *gap) look(ctx context.Context) {
	watching, cancel := context.WithTimeout(ctx, 2*lookTime)
	defer cancel()
	changes, err := g.source.WatchWithContext(watching, metav1.ListOptions{
		ResourceVersion: g.from, AllowWatchBookmarks: true, TimeoutSeconds: new(int64(lookTime / time.Second)),
	})
	if err != nil {
		g.retry(ctx, err)
		return
	}
	defer changes.Stop()
	began := time.Now()

	for !g.known {
		select {
		case <-watching.Done():
			return
		case event, more := <-changes.ResultChan():
			switch {
			case !more && watching.Err() != nil:
				return
			case !more:
				if time.Since(began) < lookTime-lookTime/10 {
					g.silent = 0
					g.retry(ctx, io.EOF)
					return
				}
				g.since, g.silent = time.Time{}, g.silent+1
				g.known = g.silent > 1
				return
			case event.Type == apiwatch.Error:
				g.retry(ctx, apierrors.FromObject(event.Object))
				return
			}
			g.since = time.Time{}
			g.from = versionOf(event.Object)
			if event.Type != apiwatch.Bookmark {
				g.newest, g.silent = g.from, 0
			}
			g.known = !Older(g.from, g.stored)
		}
	}
}

// retry pauses after a request that failed, and records if the API server rejects a kind that was read before. The look begins anew if
// it does not know any more what changed since. The informer has to list again then, too.
func (g *gap) retry(ctx context.Context, err error) {
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		g.from = ""
	}
	now := g.clock.Now()
	switch rejected := g.synced() && g.failed(err, now); {
	case !rejected:
		g.since = time.Time{}
	case g.since.IsZero():
		g.since = now
	}
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
