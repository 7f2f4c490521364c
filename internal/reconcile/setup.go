package reconcile

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/afloat-project/afloat/internal/platform/observe"
	"github.com/afloat-project/afloat/internal/platform/pacing"
	"github.com/afloat-project/afloat/internal/platform/podindex"
	"github.com/afloat-project/afloat/internal/platform/slim"
)

// Options are what the controllers of all kinds are set up with.
type Options struct {
	// Workers is how many objects are worked on at the same time.
	Workers int
	// RateLimiter returns a new back-off of failing objects for each controller; nil means that of
	// controller-runtime.
	RateLimiter func() workqueue.TypedRateLimiter[ctrl.Request]
	// Pods finds pods in the manager's caches.
	Pods *podindex.Index
	// Limit bounds how many tasks all controllers together run at once.
	Limit *WriteLimiter
	// Guard is asked before pods are taken out of service; nil if there are no budgets.
	Guard Guard
	// Everywhere is true if the controller runs on every replica, not on the leader alone.
	Everywhere bool
	// Current waits until the caches show what was stored when this replica began to lead. Before, no object is worked
	// on, except Everywhere. It is nil if nothing is waited for.
	Current func(context.Context) error
	// Pulse records which controllers work; nil if nobody asks for that.
	Pulse *Pulse
}

// API returns what a controller of the manager reads and writes through.
func (o Options) API(mgr ctrl.Manager) *API {
	api := NewAPI(mgr.GetClient(), mgr.GetAPIReader(), slim.Any, time.Now)
	api.Limit, api.Guard = o.Limit, o.Guard
	return api
}

// Limiter returns a new back-off; nil means that of controller-runtime.
func (o Options) Limiter() workqueue.TypedRateLimiter[ctrl.Request] {
	if o.RateLimiter == nil {
		return nil
	}
	return o.RateLimiter()
}

// Complete builds a controller of the given name, which the API server also sees as the user agent (OPS-022).
// A reconciler that has its own back-off keeps it.
func (o Options) Complete(name string, r reconcile.Reconciler, b *builder.Builder) error {
	settings := controller.Options{MaxConcurrentReconciles: o.Workers, NewQueue: pacing.FairQueue(o.Workers)}
	if own, ok := r.(interface {
		BackOff() workqueue.TypedRateLimiter[ctrl.Request]
	}); ok {
		settings.RateLimiter = own.BackOff()
		if err := countRepeats(name, settings.RateLimiter); err != nil {
			return err
		}
	} else {
		settings.RateLimiter = o.Limiter()
	}

	if loop, ok := r.(*Loop); ok && o.Guard != nil {
		b = b.WatchesRawSource(loop.held.wake(o.Guard))
	}
	if o.Everywhere {
		settings.NeedLeaderElection = new(false)
	}

	named := observe.Traced(name, observe.WithUserAgent(name, r))
	if o.Current != nil && !o.Everywhere {
		named = after(o.Current, named)
	}
	if o.Pulse != nil {
		if o.Everywhere {
			o.Pulse.Everywhere(name)
		}
		b, named = b.WatchesRawSource(o.Pulse.source(name)), o.Pulse.of(name, named)
	}

	if err := b.Named(name).WithOptions(settings).Complete(named); err != nil {
		return fmt.Errorf("building controller %s: %w", name, err)
	}

	return nil
}

// after returns a reconciler that waits for current before its first pass, when all caches of the controller have been made,
// and passes all requests to r then.
func after(current func(context.Context) error, r reconcile.Reconciler) reconcile.Reconciler {
	var begun atomic.Bool
	return reconcile.Func(func(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
		if !begun.Load() {
			if err := current(ctx); err != nil {
				return ctrl.Result{}, err
			}
			begun.Store(true)
		}
		return r.Reconcile(ctx, request)
	})
}

// countRepeats counts the passes of a controller that are repeated although they do nothing.
func countRepeats(name string, limiter workqueue.TypedRateLimiter[ctrl.Request]) error {
	backOff, ok := limiter.(*pacing.BackOff)
	if !ok {
		return nil
	}

	counter := prometheus.NewCounter(prometheus.CounterOpts{
		Name:        "afloat_repeated_passes_total",
		ConstLabels: prometheus.Labels{"controller": name},
		Help:        "Passes that asked to be repeated at once, several times in a row, and did nothing; each one is a mistake of the manager, by controller.",
	})

	err := metrics.Registry.Register(counter)
	if known := (prometheus.AlreadyRegisteredError{}); errors.As(err, &known) {
		// Another manager runs in this process.
		counter, _ = known.ExistingCollector.(prometheus.Counter)
	} else if err != nil {
		return fmt.Errorf("registering metrics: %w", err)
	}

	backOff.OnRepeat(counter.Inc)
	return nil
}

// Register registers the metrics of a controller.
func Register(meters ...prometheus.Collector) error {
	for _, meter := range meters {
		if err := metrics.Registry.Register(meter); err != nil {
			return fmt.Errorf("registering metrics: %w", err)
		}
	}
	return nil
}
