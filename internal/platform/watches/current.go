package watches

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
)

const (
	// currentTold is after how long kinds whose caches are behind are named in the log, and again.
	currentTold = 10 * time.Second
	// few objects of a kind are read first, with the version of what is stored, and a page at once if more are wanted. Each
	// may be of 1.5 MiB, and currentLists kinds are read at once.
	few, page, currentLists = 10, 50, 4
	// listTime is how long a list may take. An API server gives up after half a minute what needs a webhook that does not
	// answer, and says so. After slotTime a list that hangs lets others begin.
	listTime, slotTime = 40 * time.Second, 2 * time.Second
	// currentEvery is the pause between two looks at a cache.
	currentEvery = 50 * time.Millisecond
	// currentAgain is the pause after a request that failed.
	currentAgain = time.Second
)

// Current waits until each cache shows what the API server had stored when it was asked about that cache. A replica that
// begins to lead calls it, because the leader before may have written what a cache does not show whose watch was broken:
// client-go takes up to a minute before it watches again what it could not watch several times. Current
// waits for kinds that are rejected for some seconds at most, and for no kind longer than the given time, since nothing
// would work without a leader; it logs which kinds are behind, and why.
//
// Each controller calls Current before its first pass, when all caches that it watches have been read: many are made when the
// replica begins to lead. A cache that was not read yet is waited for by those that call Current later, such as its own
// controller; all others are waited for once. The time counts from the first call, and caches that are made when it is over
// are waited for some seconds.
func (w *Watches) Current(ctx context.Context, log logr.Logger, within time.Duration) {
	began := w.clock.Now()
	enough, cancel := context.WithTimeout(ctx, w.left(within)+grace)
	defer cancel()
	for again := true; again && enough.Err() == nil; {
		own, all := w.close(ctx)
		told := make(chan struct{})
		go func() {
			defer close(told)
			tell(ctx, enough, log, own, func() time.Duration { return w.clock.Since(began).Round(time.Millisecond) })
		}()
		again = false
		for _, gap := range all {
			select {
			case <-gap.done:
				// It may have listed at the moment at which it was given up, or the context of the caller who waited may have ended.
				again = again || gap.dropped && gap.synced()
			case <-enough.Done():
			}
		}
		<-told
	}
}

// left returns how much of the time is left, which begins with the first call.
func (w *Watches) left(within time.Duration) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.clock.Now()
	if w.until.IsZero() {
		w.until = now.Add(within)
	}
	return max(w.until.Sub(now), 0)
}

// close begins to wait for each cache that nobody waits for or has waited for. It returns these, and all.
func (w *Watches) close(ctx context.Context) (own, all []*gap) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.clock.Now()
	for _, one := range w.all {
		if one.gap == nil {
			gap := &gap{watch: one, clock: w.clock, lists: w.lists, began: now, until: w.until, done: make(chan struct{})}
			one.gap = gap
			own = append(own, gap)
			go func() {
				defer close(gap.done)
				gap.say(gap.close(ctx))
				if !gap.filled || ctx.Err() != nil {
					w.mu.Lock()
					defer w.mu.Unlock()
					one.gap, gap.dropped = nil, true
				}
			}()
		}
		all = append(all, one.gap)
	}
	return own, all
}

// tell logs what is waited for, until all gaps are done, or enough was waited.
func tell(ctx, enough context.Context, log logr.Logger, gaps []*gap, waited func() time.Duration) {
	if len(gaps) == 0 {
		return
	}
	say := func(which outcome, what string) (told bool) {
		why := map[string]string{}
		for _, gap := range gaps {
			if state, reason := gap.state(); state == which {
				kind := gap.kind.GroupKind().String()
				if before, two := why[kind]; two && before != reason { // a kind may be watched in several namespaces, or versions
					reason = before + "; " + reason
				}
				why[kind] = reason
			}
		}
		if len(why) > 0 {
			log.Info(what, "kinds", slices.Sorted(maps.Keys(why)), "why", why, "waited", waited().String())
		}
		return len(why) > 0
	}

	ticks := time.NewTicker(currentTold)
	defer ticks.Stop()
	for _, gap := range gaps {
		for open := true; open; {
			select {
			case <-enough.Done():
				open = false
			case <-gap.done:
				open = false
			case <-ticks.C:
				say(behind, "Controllers wait for caches that do not show yet what was stored when this replica began to lead")
			}
		}
	}
	if ctx.Err() != nil {
		return
	}
	told := say(behind, "Controllers begin although caches do not show yet what was stored when this replica began to lead")
	told = say(rejected, "Controllers begin although the API server rejects kinds") || told
	if told = say(unread, "Controllers begin although kinds were not read yet; those of these kinds wait for them") || told; !told {
		log.Info("The caches show what was stored when this replica began to lead", "waited", waited().String())
	}
}

// outcome is what is known of a cache.
type outcome int

const (
	behind outcome = iota
	current
	rejected
	// unread is a cache that was not filled within the time that is waited for that.
	unread
)

// gap is what an informer may lack of what is stored.
type gap struct {
	*watch
	clock clock.PassiveClock
	// lists limits how many lists are read at once.
	lists chan struct{}
	// began is when the informer was first waited for, and until when it is waited for no longer, or some seconds after it was
	// filled.
	began, until time.Time
	// filled reports that the informer had listed when it was compared. done is closed when nobody waits for it any more, and
	// dropped reports then that those that come later are to wait for it anew.
	filled, dropped bool
	done            chan struct{}

	// since is when the first of the last requests began, all of which were rejected, or zero. heard is when the informer was
	// first rejected while it showed version at, or zero.
	since, heard time.Time
	at           string
	// listed is the version of the list that the informer is compared with. changed are the versions of the objects that changed
	// after the version that the informer had, by their keys, empty for those that are gone; nil if they are not known.
	listed  string
	changed atomic.Pointer[map[string]string]

	mu sync.Mutex
	// result is what is known, and err why the last request failed. stored is a version that the API server had, or empty
	// if it was not asked yet: an informer that shows it is current. before is the version that the informer had if that was
	// newer: etcd was restored, and versions say nothing before the informer has read all again. They are written under mu.
	result         outcome
	err            error
	stored, before string
}

func (g *gap) say(result outcome) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.result = result
}

// ask records what is stored, while the informer showed a version that it had before.
func (g *gap) ask(stored, had string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stored != "" {
		return
	}
	if g.stored = stored; Older(stored, had) {
		g.before = had
	}
}

// wrong records why there is no answer, or nil.
func (g *gap) wrong(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.err = err
}

// state returns what is known of the cache, and the reason.
func (g *gap) state() (outcome, string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	told := g.told(g.began)
	switch {
	case g.err != nil:
		return g.result, g.err.Error()
	case told != nil:
		return g.result, told.Error()
	case !g.synced():
		return g.result, "it has not been read"
	case g.stored == "":
		return g.result, "the API server has not answered yet"
	}
	return g.result, fmt.Sprintf("it shows version %s, and %s was stored", g.version(), g.stored)
}

// close waits until the informer shows what is stored, or is not to be waited for, or ctx ends.
func (g *gap) close(ctx context.Context) outcome {
	if g.filled = g.synced(); !g.filled {
		if result := g.fill(ctx); result != current {
			return result
		}
		g.filled = true
	}
	ctx, cancel := context.WithTimeout(ctx, max(g.until.Sub(g.clock.Now()), grace))
	defer cancel()
	differing, result := g.compare(ctx)
	if result != behind {
		return result
	}
	return g.poll(ctx, func() bool {
		maps.DeleteFunc(differing, g.has)
		return len(differing) == 0 || g.shows()
	})
}

// fill waits until the informer has listed for the first time, for some seconds at most. What is stored is read
// before, since an informer that lists afterwards shows that at once.
func (g *gap) fill(ctx context.Context) outcome {
	ctx, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	if list, _, err := g.list(ctx, metav1.ListOptions{Limit: few}, map[string]string{}); err == nil {
		g.ask(list.GetResourceVersion(), "")
	} else if ctx.Err() == nil {
		g.wrong(err)
	}
	var refused error
	result := g.poll(ctx, func() bool {
		_, _, refused = g.refused(g.clock.Now())
		return refused != nil || g.synced()
	})
	switch {
	case g.synced():
		return current
	case refused != nil:
		g.wrong(refused)
		return rejected
	case result == behind:
		return unread
	}
	return result
}

// compare compares the informer with what is stored. The version of an informer is not enough for that: it is the one of the
// last change of its kind, or of a bookmark, which comes once a minute, while the version of what is stored is one of all kinds.
// It returns the versions of the objects by their keys, empty for those that are gone, of all or of those that changed, whichever
// is known first. Where more is known, it returns that.
func (g *gap) compare(ctx context.Context) (objects map[string]string, result outcome) {
	var watching sync.WaitGroup
	defer watching.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	had, at, expired := g.version(), "", 0
	begin := sync.OnceFunc(func() { watching.Go(func() { g.watchChanges(ctx, had) }) })
	options, objects := metav1.ListOptions{Limit: few}, map[string]string{}
	for more := true; more; {
		if g.shows() {
			return nil, current
		}
		if changed := g.changed.Load(); changed != nil {
			if !g.contradicts(objects, had) {
				g.listed = g.stored
				return *changed, behind
			}
			g.changed.Store(nil) // the list says what is stored
		}
		list, asked, err := g.listing(ctx, options, objects)
		if err != nil {
			if g.changed.Load() != nil {
				continue
			}
			if old := options.Continue != "" && (apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || apierrors.IsBadRequest(err)); old {
				// The pages are too old. If that happens twice, they are always: all objects are read at once then, as client-go does.
				if expired++; expired > 1 {
					options = metav1.ListOptions{}
				} else {
					options = metav1.ListOptions{Limit: few}
				}
				clear(objects)
			} else if g.failing(ctx, err, asked) {
				return nil, rejected
			}
			pause, cancel := context.WithTimeout(ctx, currentAgain)
			result := g.poll(pause, g.shows)
			cancel()
			if result != behind || ctx.Err() != nil {
				return nil, result
			}
			continue
		}
		g.failing(ctx, nil, asked)
		if options.Continue == "" {
			at = list.GetResourceVersion()
		}
		g.ask(at, had)
		options.Continue, options.Limit = list.GetContinue(), page
		if more = options.Continue != ""; more && g.before == "" {
			begin()
		}
	}
	g.listed = at
	for _, object := range g.store.List() {
		key, err := toolscache.MetaNamespaceKeyFunc(object)
		if _, there := objects[key]; err == nil && !there && (g.before != "" || !atLeast(versionOf(object), at)) {
			objects[key] = ""
		}
	}
	return objects, behind
}

// listing reads a list, until the informer shows what was stored, or it is known what changed.
func (g *gap) listing(ctx context.Context, options metav1.ListOptions, objects map[string]string) (metav1.ListInterface, time.Time, error) {
	ctx, cancel := context.WithCancel(ctx)
	var looking sync.WaitGroup
	defer looking.Wait()
	defer cancel()
	looking.Go(func() {
		ticks := time.NewTicker(currentEvery)
		defer ticks.Stop()
		for !g.shows() && !g.stopped() && g.changed.Load() == nil {
			select {
			case <-ctx.Done():
				return
			case <-ticks.C:
			}
		}
		cancel()
	})
	return g.list(ctx, options, objects)
}

// list reads a list, and adds the versions of its objects. It returns when the API server was asked. A list that hangs does not keep
// others from theirs.
func (g *gap) list(ctx context.Context, options metav1.ListOptions, objects map[string]string) (list metav1.ListInterface, asked time.Time, err error) {
	select {
	case g.lists <- struct{}{}:
	case <-ctx.Done():
		return nil, g.clock.Now(), ctx.Err()
	}
	asked = g.clock.Now()
	release := sync.OnceFunc(func() { <-g.lists })
	defer release()
	defer time.AfterFunc(slotTime, release).Stop()
	ctx, cancel := context.WithTimeout(ctx, listTime)
	defer cancel()

	read, err := g.source.ListWithContext(ctx, options)
	if err != nil {
		return nil, asked, err //nolint:wrapcheck // its kind counts
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
		return nil, asked, fmt.Errorf("listing %s: %w", g.kind, err)
	}
	return list, asked, nil
}

// failing records what a request was answered, and reports whether all answers have been rejections for long. One that came
// soon does not say that, since an API server that starts rejects what it answers a moment later, and one that is overloaded says
// nothing.
func (g *gap) failing(ctx context.Context, err error, asked time.Time) bool {
	if ctx.Err() == nil {
		g.wrong(err)
	}
	switch {
	case apierrors.IsTooManyRequests(err):
		return false
	case err == nil, !rejection(err):
		g.since = time.Time{}
		return false
	case g.since.IsZero():
		g.since = asked
	}
	return g.clock.Since(g.since) >= grace
}

// poll waits until the informer is current, by what reports that, or is not to be waited for, or ctx ends.
func (g *gap) poll(ctx context.Context, isCurrent func() bool) outcome {
	ticks := time.NewTicker(currentEvery)
	defer ticks.Stop()
	for {
		if g.stopped() || isCurrent() {
			return current
		}
		// The informer is rejected if it was for some seconds, more than once, and read nothing meanwhile.
		switch _, last, err := g.refused(g.clock.Now()); {
		case err == nil || last.Before(g.began):
		case g.heard.IsZero() || g.at != g.version():
			g.heard, g.at = last, g.version()
		case last.After(g.heard) && g.clock.Since(g.heard) >= grace:
			return rejected
		}
		select {
		case <-ctx.Done():
			return behind
		case <-ticks.C:
		}
	}
}

// shows reports whether the informer shows the version that was stored.
func (g *gap) shows() bool {
	has := g.version()
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.stored != "" && atLeast(has, g.stored) && (g.before == "" || Older(has, g.before))
}

// has reports whether the informer has an object at the given version or one after the list, or not if that is empty.
func (g *gap) has(key, version string) bool {
	object, found, err := g.store.GetByKey(key)
	if err != nil || !found || version == "" {
		return err == nil && !found && version == ""
	}
	has := versionOf(object)
	return has == version || g.before == "" && atLeast(has, g.listed)
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

// atLeast reports whether a version is known to be as new as another one.
func atLeast(version, other string) bool {
	order, err := resourceversion.CompareResourceVersion(version, other)
	return err == nil && order >= 0
}
