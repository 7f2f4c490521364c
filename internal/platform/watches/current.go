package watches

import (
	"cmp"
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
	// page is how many objects are read at once if all of a kind must be compared.
	page = 50
	// listTime is how long a list may take. An API server gives up after half a minute what needs a webhook that does not
	// answer, and says so. After slotTime a list that hangs lets others begin.
	listTime, slotTime = 40 * time.Second, 2 * time.Second
	// currentEvery is the pause between two looks at a cache.
	currentEvery = 50 * time.Millisecond
	// currentAgain is the pause after a request that failed.
	currentAgain = time.Second
	// lookTime is how long a watch lasts that asks what a cache lacks. An API server sends a bookmark two seconds
	// before the end of a watch.
	lookTime = 3 * time.Second
	// patience is how long watches must have said nothing if the API server does not tell how new what it watches is.
	patience = 30 * time.Second
	// nobody selects no object: none can have that name.
	nobody = "metadata.name=/"
)

// Current waits until each cache shows what the API server had stored when it was called. A replica that begins
// to lead calls it, because the leader before may have written what a cache does not show whose watch was broken.
// It waits for kinds that are rejected for some seconds at most, and for no kind longer than the given time, since nothing
// would work without a leader; it logs which kinds are behind, and why. client-go takes up to a minute before it watches again
// what it could not watch several times.
//
// Each controller calls Current before its first pass, when all caches that it reads have been made: many are made when the
// replica begins to lead. Each cache is waited for once. The time counts from the first call, and caches that are made when it
// is over are waited for some seconds.
func (w *Watches) Current(ctx context.Context, log logr.Logger, within time.Duration) {
	select {
	case w.waits <- struct{}{}:
		defer func() { <-w.waits }()
	case <-ctx.Done():
		return
	}
	wanted := slices.DeleteFunc(w.list(), func(one *watch) bool { return one.awaited })
	if len(wanted) == 0 {
		return
	}

	began := w.clock.Now()
	if w.until.IsZero() {
		w.until = began.Add(within)
	}
	limited, cancel := context.WithTimeout(ctx, max(w.until.Sub(began), grace))
	defer cancel()
	gaps := make([]*gap, len(wanted))
	lists := make(chan struct{}, currentLists)
	var all sync.WaitGroup
	for i, one := range wanted {
		gaps[i] = &gap{watch: one, clock: w.clock, lists: lists}
		all.Go(func() { gaps[i].wait(limited) })
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		all.Wait()
	}()
	waited := func() string { return w.clock.Since(began).Round(time.Millisecond).String() }
	tell := func(which outcome, what string) (told bool) {
		kinds, why := map[string]bool{}, map[string]string{}
		for _, gap := range gaps {
			if state, err := gap.state(); state == which {
				kind := gap.kind.GroupKind().String()
				kinds[kind] = true
				if err != nil {
					why[kind] = err.Error()
				}
			}
		}
		if len(kinds) > 0 {
			log.Info(what, "kinds", slices.Sorted(maps.Keys(kinds)), "why", why, "waited", waited())
		}
		return len(kinds) > 0
	}

	ticks := time.NewTicker(currentTold)
	defer ticks.Stop()
	for {
		select {
		case <-ticks.C:
			tell(behind, "Controllers wait for caches that do not show yet what was stored when this replica began to lead")
			continue
		case <-done:
		}
		if ctx.Err() != nil {
			return
		}
		for _, one := range wanted {
			one.awaited = true
		}
		late := tell(behind, "Controllers begin although caches do not show yet what was stored when this replica began to lead")
		if without := tell(rejected, "Controllers begin although the API server rejects kinds"); !late && !without {
			log.Info("The caches show what was stored when this replica began to lead", "waited", waited())
		}
		return
	}
}

// outcome is what is known of a cache.
type outcome int

const (
	behind outcome = iota
	current
	rejected
)

// gap is what an informer may lack of what is stored.
type gap struct {
	*watch
	clock clock.PassiveClock
	// lists limits how many lists are read at once.
	lists chan struct{}
	// stored is the version of the API server that the informer must show, or empty if it was not read yet. objects are
	// the versions of the objects at that time by their keys, if they are few or all are wanted.
	stored  string
	objects map[string]string
	all     bool
	// from is the version up to which the API server has said what changed after the version of the informer.
	// newest is the last change until then, or empty if nothing changed. known reports that from is as new as
	// stored. silent is how many watches in a row have lasted their time and did not say so, and quiet when the first of them
	// began. fresh reports that the API server watches what is as new as stored.
	from, newest string
	known, fresh bool
	silent       int
	quiet        time.Time
	// since is from when on each request was rejected, or zero.
	since time.Time

	mu sync.Mutex
	// done is what is known, and last the last error of a request. Both are under mu.
	done outcome
	last error
}

// state returns what is known of the cache, and the last error of a request for it.
func (g *gap) state() (outcome, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.last != nil {
		return g.done, g.last
	}
	_, _, err := g.refused(g.clock.Now())
	return g.done, err
}

// wait waits until the informer shows what is stored now, or is not to be waited for, or ctx ends.
func (g *gap) wait(ctx context.Context) {
	ticks := time.NewTicker(currentEvery)
	defer ticks.Stop()

	for {
		result := behind
		switch {
		case g.rejected():
			result = rejected
		case g.stopped() || g.closed(ctx):
			result = current
		}
		if result != behind {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.done = result
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		}
	}
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
		if began, err := g.read(ctx); err != nil {
			g.retry(ctx, err, began)
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
		g.from = cmp.Or(g.from, has)
		g.catchUp(ctx)
		g.look(ctx)
	}
	return g.known && (g.newest == "" || !Older(g.version(), g.newest))
}

// read reads what is stored: all that are wanted, or a few objects. It returns when the API server was asked.
func (g *gap) read(ctx context.Context) (began time.Time, err error) {
	options := metav1.ListOptions{Limit: few}
	if g.all {
		options.Limit = page
	}
	stored, objects := "", map[string]string{}
	for {
		list, began, err := g.list(ctx, options, objects)
		if err != nil {
			return began, err
		}
		stored = cmp.Or(stored, list.GetResourceVersion())
		options.Continue = list.GetContinue()
		if options.Continue == "" || !g.all {
			break
		}
	}
	g.stored = stored
	if g.all || options.Continue == "" && len(objects) <= few { // API servers may ignore the limit
		g.objects = objects
	}
	return time.Time{}, nil
}

// list reads a list, and adds the versions of its objects. A list that hangs does not keep others from theirs.
func (g *gap) list(ctx context.Context, options metav1.ListOptions, objects map[string]string) (list metav1.ListInterface, began time.Time, err error) {
	select {
	case g.lists <- struct{}{}:
	case <-ctx.Done():
		return nil, g.clock.Now(), ctx.Err()
	}
	release := sync.OnceFunc(func() { <-g.lists })
	defer release()
	defer time.AfterFunc(slotTime, release).Stop()
	began = g.clock.Now()
	ctx, cancel := context.WithTimeout(ctx, listTime)
	defer cancel()

	read, err := g.source.ListWithContext(ctx, options)
	if err != nil {
		return nil, began, err //nolint:wrapcheck // its kind counts
	}
	err = meta.EachListItem(read, func(object runtime.Object) error {
		key, err := toolscache.MetaNamespaceKeyFunc(object)
		objects[key] = versionOf(object)
		return err //nolint:wrapcheck // wrapped below
	})
	if err == nil {
		list, err = meta.ListAccessor(read)
	}
	if err != nil {
		return nil, began, fmt.Errorf("listing %s: %w", g.kind, err)
	}
	return list, began, nil
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

// catchUp asks the API server for nothing that is older than what is stored. One that watches waits until it has seen that,
// which it asks etcd for, so that the bookmark of a look tells it.
func (g *gap) catchUp(ctx context.Context) {
	if g.fresh {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 2*lookTime)
	defer cancel()
	_, err := g.source.ListWithContext(ctx, metav1.ListOptions{FieldSelector: nobody,
		ResourceVersion: g.stored, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan})
	g.fresh = err == nil
}

// look asks the API server what changed after from, for some seconds at most. Two watches in a row that end when their time
// is over have shown all, too, since one alone may be of an API server that lags behind the one that was asked. An API server
// that cannot tell whether it has seen what is stored, because etcd does not tell it, must have said nothing for some time.
func (g *gap) look(ctx context.Context) {
	watching, cancel := context.WithTimeout(ctx, 2*lookTime)
	defer cancel()
	asked := g.clock.Now()
	changes, err := g.source.WatchWithContext(watching, metav1.ListOptions{
		ResourceVersion: g.from, AllowWatchBookmarks: true, TimeoutSeconds: new(int64(lookTime / time.Second)),
	})
	if err != nil {
		g.retry(ctx, err, asked)
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
					g.retry(ctx, io.EOF, asked)
					return
				}
				if g.silent++; g.silent == 1 {
					g.quiet = asked
				}
				g.since = time.Time{}
				g.known = g.silent > 1 && (g.fresh || g.clock.Since(g.quiet) >= patience)
				return
			case event.Type == apiwatch.Error:
				g.retry(ctx, apierrors.FromObject(event.Object), asked)
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

// retry pauses after a request that failed, and records if the API server rejects a kind that was read before. If the API
// server does not know any more what changed, all objects are compared. The informer may still have an open watch then, so
// that it does not list again.
func (g *gap) retry(ctx context.Context, err error, began time.Time) {
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		g.all, g.stored, g.from, g.newest, g.silent = true, "", "", "", 0
	}
	switch failed := g.synced() && g.failed(err, g.clock.Now()); {
	case !failed:
		g.since = time.Time{}
	case g.since.IsZero():
		g.since = began
	}
	g.mu.Lock()
	g.last = err
	g.mu.Unlock()
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
