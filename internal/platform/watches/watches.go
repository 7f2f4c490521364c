// Package watches lets a manager run even if a kind cannot be watched. controller-runtime starts no
// controller before all caches are synced, so one kind whose list the API server rejects, because of missing
// rights, a broken definition or a failing conversion, would block the controllers of all other kinds. This
// package excludes a rejected kind from the wait, reports it, and includes it as soon as it can be read.
package watches

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
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
	// grace is how long a kind may be rejected before the controllers of other kinds start without it,
	// because a conversion webhook, or rights that are applied together with the manager, may be some seconds
	// late.
	grace = 15 * time.Second
	// recent is how long a failure counts. Lists are retried at least once a minute.
	recent = 2 * time.Minute
	// every is the polling interval while caches are waited for.
	every = 200 * time.Millisecond
)

// NewInformer makes informers. It is the type of an option of controller-runtime's caches.
type NewInformer = func(toolscache.ListerWatcher, runtime.Object, time.Duration,
	toolscache.Indexers) toolscache.SharedIndexInformer

// Watches holds the informers of one process. It is safe for concurrent use.
type Watches struct {
	scheme *runtime.Scheme
	clock  clock.PassiveClock
	read   atomic.Bool
	// lists limits how many kinds Current reads at once.
	lists chan struct{}

	mu  sync.Mutex
	all []*watch
	// until is when Current waits no longer; it is set by the first call.
	until time.Time
}

// watch is one informer.
type watch struct {
	kind            schema.GroupVersionKind
	synced, stopped func() bool
	// store is that of the informer, version the version of the API server that it shows, and source where it reads.
	store   toolscache.Store
	version func() string
	source  toolscache.ListerWatcherWithContext
	// gap is what Current waits for, or has waited for; nil if it has not, or the informer had not listed yet. It is under
	// the mutex of Watches.
	gap *gap

	mu sync.Mutex
	// err is the last rejection. first and last are the times of the first and the last rejection of the
	// current series.
	err         error
	first, last time.Time
	// answer is the last error of any sort, which the informer was told at answered.
	answer   error
	answered time.Time
}

// New returns Watches without informers.
func New(scheme *runtime.Scheme, c clock.PassiveClock) *Watches {
	return &Watches{scheme: scheme, clock: c, lists: make(chan struct{}, currentLists)}
}

// Following returns a function that makes informers by next and follows them. nil means the default of
// controller-runtime.
func (w *Watches) Following(next NewInformer) NewInformer {
	if next == nil {
		next = toolscache.NewSharedIndexInformer
	}

	return func(source toolscache.ListerWatcher, example runtime.Object, resync time.Duration,
		indexers toolscache.Indexers) toolscache.SharedIndexInformer {
		informer := next(source, example, resync, indexers)
		kind, err := apiutil.GVKForObject(example, w.scheme)
		if err != nil {
			return informer // the cache reports why when the informer is used
		}
		one := &watch{
			kind:    kind,
			synced:  informer.HasSynced,
			stopped: informer.IsStopped,
			store:   informer.GetStore(),
			version: func() string {
				// A feature gate of client-go may be off, by which the store knows its version.
				return cmp.Or(informer.GetStore().LastStoreSyncResourceVersion(), informer.LastSyncResourceVersion())
			},
			source: toolscache.ToListerWatcherWithContext(source),
		}
		if informer.SetWatchErrorHandlerWithContext(
			func(ctx context.Context, r *toolscache.Reflector, err error) {
				if !one.failed(err, w.clock.Now()) {
					toolscache.DefaultWatchErrorHandler(ctx, r, err)
				}
			},
		) == nil {
			w.mu.Lock()
			w.all = append(w.all, one)
			w.mu.Unlock()
		}
		return informer
	}
}

// rejection reports whether an error of the API server means that the kind cannot be read. An API server that does not respond
// or is overloaded says nothing about the kind, and neither does a load balancer before it, nor etcd without a leader.
func rejection(err error) bool {
	var status apierrors.APIStatus
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), !errors.As(err, &status),
		apierrors.IsResourceExpired(err), apierrors.IsGone(err), apierrors.IsTooManyRequests(err),
		apierrors.IsTimeout(err), apierrors.IsServerTimeout(err), apierrors.IsServiceUnavailable(err):
		return false
	}
	return status.Status().Code != http.StatusBadGateway && !strings.Contains(err.Error(), "etcdserver: ")
}

// failed records an error of the informer, and reports whether it means that the kind cannot be read.
func (o *watch) failed(err error, now time.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.answer, o.answered = err, now
	if !rejection(err) {
		return false
	}
	if o.err == nil || now.Sub(o.last) > recent {
		o.first = now
	}
	o.err, o.last = err, now
	return true
}

// refused returns the times of the first and the last rejection, and the last error. The error is nil if the
// kind is not rejected.
func (o *watch) refused(now time.Time) (first, last time.Time, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err == nil || now.Sub(o.last) > recent {
		return time.Time{}, time.Time{}, nil
	}
	return o.first, o.last, o.err
}

// told returns the last error that the informer was told since then, or nil.
func (o *watch) told(since time.Time) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.answered.Before(since) {
		return nil
	}
	return o.answer
}

// Failure is a kind that cannot be watched.
type Failure struct {
	Kind schema.GroupVersionKind
	// Err is the last response of the API server.
	Err error
	// Since and Last are the times of the first and the last failure. The kind may have been read after Last.
	// Before means that the kind was read before, and its cache is stale.
	Since, Last time.Time
	Before      bool
}

// Failures returns the kinds that cannot be watched now, sorted by name and each only once.
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

// settled reports whether each informer is synced or has been rejected for at least the given time.
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

// Read reports whether every watched kind has been read once or rejected by the API server. A kind that
// cannot be read soon must not keep a replica from serving the others. Once true, the result stays true.
func (w *Watches) Read() bool {
	if !w.read.Load() && w.settled(0) {
		w.read.Store(true)
	}
	return w.read.Load()
}

// Cache makes the manager's cache, as an option of controller-runtime. Waiting for its sync does not wait for
// kinds that are rejected.
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
	// settled reports whether all kinds are read that can be read, and at least one cannot.
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
