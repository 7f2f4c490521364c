// Package watches lets a manager run although one kind cannot be watched. The library starts no controller
// before all caches are filled, so that one kind whose list the API server refuses, for lack of rights, a
// broken definition or a conversion that fails, would stop the controllers of all others. Here a kind that is
// refused is left out of that wait, told of, and joins as soon as it can be read.
package watches

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

const (
	// grace is how long a kind may be refused until the controllers of others start without it: a conversion
	// webhook, or rights that are applied beside the manager, may be some seconds late.
	grace = 15 * time.Second
	// recent is how long a failure counts. Lists are tried again at least once a minute.
	recent = 2 * time.Minute
	// every is the pause between looks while caches are waited for.
	every = 200 * time.Millisecond
)

// NewInformer makes informers, as an option of the library's caches.
type NewInformer = func(toolscache.ListerWatcher, runtime.Object, time.Duration,
	toolscache.Indexers) toolscache.SharedIndexInformer

// Watches are the informers of one process. It may be used by many at once.
type Watches struct {
	scheme *runtime.Scheme
	clock  clock.PassiveClock
	read   atomic.Bool

	mu  sync.Mutex
	all []*watch
}

// watch is one informer.
type watch struct {
	kind   schema.GroupVersionKind
	synced func() bool

	mu sync.Mutex
	// err is the last refusal, first and last are when the present series of refusals began, and its last
	// one.
	err         error
	first, last time.Time
}

// New returns Watches without informers.
func New(scheme *runtime.Scheme, c clock.PassiveClock) *Watches {
	return &Watches{scheme: scheme, clock: c}
}

// Following returns what makes informers by next and follows them; nil is the library's way to make them.
func (w *Watches) Following(next NewInformer) NewInformer {
	if next == nil {
		next = toolscache.NewSharedIndexInformer
	}

	return func(source toolscache.ListerWatcher, example runtime.Object, resync time.Duration,
		indexers toolscache.Indexers) toolscache.SharedIndexInformer {
		informer := next(source, example, resync, indexers)
		kind, err := apiutil.GVKForObject(example, w.scheme)
		if err != nil {
			return informer // the library says why when it is used
		}
		one := &watch{kind: kind, synced: informer.HasSynced}
		if informer.SetWatchErrorHandlerWithContext(func(ctx context.Context,
			r *toolscache.Reflector, err error) {
			if !one.failed(err, w.clock.Now()) {
				toolscache.DefaultWatchErrorHandler(ctx, r, err)
			}
		}) == nil {
			w.mu.Lock()
			w.all = append(w.all, one)
			w.mu.Unlock()
		}
		return informer
	}
}

// failed notes an answer of the API server by which the kind cannot be read, and reports whether it is one.
// An API server that does not answer, or is busy, says nothing about the kind.
func (o *watch) failed(err error, now time.Time) bool {
	var status apierrors.APIStatus
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), !errors.As(err, &status),
		apierrors.IsResourceExpired(err),
		apierrors.IsGone(err), apierrors.IsTooManyRequests(err), apierrors.IsTimeout(err),
		apierrors.IsServerTimeout(err),
		apierrors.IsServiceUnavailable(err):
		return false
	}

	o.mu.Lock()
	defer o.mu.Unlock()

	if o.err == nil || now.Sub(o.last) > recent {
		o.first = now
	}
	o.err, o.last = err, now
	return true
}

// refused returns since when the kind is refused, when it was last, and how; nil if it is not.
func (o *watch) refused(now time.Time) (first, last time.Time, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err == nil || now.Sub(o.last) > recent {
		return time.Time{}, time.Time{}, nil
	}
	return o.first, o.last, o.err
}

// Failure is a kind that cannot be watched.
type Failure struct {
	Kind schema.GroupVersionKind
	// Err is the last answer of the API server.
	Err error
	// Since is when the answers began, Last when the last one came: it may have been read since then. Before
	// says that the kind was read before, and what is known of it gets old.
	Since, Last time.Time
	Before      bool
}

// Failures are the kinds that cannot be watched now, by name, each once.
func (w *Watches) Failures() []Failure {
	now := w.clock.Now()
	byKind := map[schema.GroupVersionKind]Failure{}
	for _, one := range w.list() {
		if since, last, err := one.refused(now); err != nil {
			byKind[one.kind] = Failure{
				Kind:   one.kind,
				Err:    err,
				Since:  since,
				Last:   last,
				Before: one.synced(),
			}
		}
	}

	failures := make([]Failure, 0, len(byKind))
	for _, failure := range byKind {
		failures = append(failures, failure)
	}

	slices.SortFunc(failures, func(a, b Failure) int {
		return strings.Compare(a.Kind.String(), b.Kind.String())
	})
	return failures
}

func (w *Watches) list() []*watch {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.all)
}

// settled reports whether each informer is filled, or has been refused for that long.
func (w *Watches) settled(after time.Duration) bool {
	now := w.clock.Now()
	for _, one := range w.list() {
		if one.synced() {
			continue
		}
		if since, _, err := one.refused(now); err == nil || now.Sub(since) < after {
			return false
		}
	}
	return true
}

// Read reports whether every kind that is watched has been read once, or the API server has refused it: what
// will not be known soon does not keep a replica from serving what is known. Once true it stays true.
func (w *Watches) Read() bool {
	if !w.read.Load() && w.settled(0) {
		w.read.Store(true)
	}
	return w.read.Load()
}

// Cache makes the manager's cache, as an option of the library. Who waits for it does not wait for kinds that
// are refused.
func (w *Watches) Cache(config *rest.Config, options cache.Options) (cache.Cache, error) {
	options.NewInformer = w.Following(options.NewInformer)
	inner, err := cache.New(config, options)
	if err != nil {
		return nil, err
	}
	return &tolerant{
		Cache: inner,
		settled: func() bool {
			return len(w.Failures()) > 0 && w.settled(grace)
		},
	}, nil
}

type tolerant struct {
	cache.Cache
	// settled reports whether all is read that can be, and there is something that cannot.
	settled func() bool
}

// WaitForCacheSync implements cache.Cache.
func (t *tolerant) WaitForCacheSync(ctx context.Context) bool {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	synced := make(chan bool, 1)
	go func() { synced <- t.Cache.WaitForCacheSync(ctx) }()
	ticks := time.NewTicker(every)
	defer ticks.Stop()

	for {
		select {
		case all := <-synced:
			return all
		case <-ticks.C:
			if t.settled() {
				return true
			}
		}
	}
}

var failing = prometheus.NewDesc("afloat_watch_failing",
	"1 for a kind that the API server does not let the manager watch: its controllers wait, or what they know gets old.",
	[]string{"group", "kind"}, nil)

// Describe implements prometheus.Collector.
func (w *Watches) Describe(all chan<- *prometheus.Desc) { all <- failing }

// Collect implements prometheus.Collector.
func (w *Watches) Collect(all chan<- prometheus.Metric) {
	told := map[schema.GroupKind]bool{}
	for _, failure := range w.Failures() {
		if kind := failure.Kind.GroupKind(); !told[kind] { // a kind may be watched in two versions
			told[kind] = true
			all <- prometheus.MustNewConstMetric(failing, prometheus.GaugeValue, 1, kind.Group, kind.Kind)
		}
	}
}
