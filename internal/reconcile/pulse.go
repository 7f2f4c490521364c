package reconcile

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// pulse is the request by which a controller shows that it works. No object can have such a name.
var pulse = ctrl.Request{NamespacedName: types.NamespacedName{Name: "\x00pulse"}}

// pulseEvery is the pause between two such requests.
const pulseEvery = 30 * time.Second

// Pulse records which controllers of a replica work. Each controller that was started answers a request
// through its own queue and workers at regular intervals. A controller whose caches are not filled, or whose
// workers all hang, does not answer. A Pulse may be used concurrently.
type Pulse struct {
	clock clock.PassiveClock
	// within is how long a controller may take to answer, including the pause between requests.
	within time.Duration

	mu    sync.Mutex
	beats map[string]time.Time
	// everywhere are the controllers that work on every replica.
	everywhere map[string]bool
}

// NewPulse returns a Pulse without controllers. within is how long a controller may take to answer.
func NewPulse(c clock.PassiveClock, within time.Duration) *Pulse {
	return &Pulse{
		clock: c, within: within + pulseEvery, beats: map[string]time.Time{}, everywhere: map[string]bool{},
	}
}

// Everywhere records that a controller runs on every replica, so that its answers say nothing about the
// controllers of the leader.
func (p *Pulse) Everywhere(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.everywhere[name] = true
}

// source returns a source that sends the first request when the controller is started.
func (p *Pulse) source(name string) source.Source {
	return source.Func(func(_ context.Context,
		queue workqueue.TypedRateLimitingInterface[ctrl.Request]) error {
		p.Answered(name)
		queue.Add(pulse) // soon it has its turn, as a namespace of its own
		return nil
	})
}

// of returns a reconciler that answers pulse requests, and passes all other requests to r.
func (p *Pulse) of(name string, r reconcile.Reconciler) reconcile.Reconciler {
	return reconcile.Func(func(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
		if request != pulse {
			return r.Reconcile(ctx, request)
		}
		p.Answered(name)
		return ctrl.Result{RequeueAfter: pulseEvery}, nil
	})
}

// Answered records that a controller was started or has answered.
func (p *Pulse) Answered(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.beats[name] = p.clock.Now()
}

// Silent returns the names of the controllers that were started here and do not work.
func (p *Pulse) Silent() (silent []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(p.beats)) {
		if p.clock.Since(p.beats[name]) > p.within {
			silent = append(silent, name)
		}
	}
	return silent
}

// Idle returns how many controllers of the leader were started here if none of them works, and 0 if any does.
func (p *Pulse) Idle() (idle int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name, last := range p.beats {
		switch {
		case p.everywhere[name]:
		case p.clock.Since(last) <= p.within:
			return 0
		default:
			idle++
		}
	}
	return idle
}

var working = prometheus.NewDesc("afloat_controller_working",
	"1 for a controller of this replica that works, 0 for one that was started and does not: its caches are not filled, or its workers hang.",
	[]string{"controller"}, nil)

// Describe implements prometheus.Collector.
func (p *Pulse) Describe(all chan<- *prometheus.Desc) { all <- working }

// Collect implements prometheus.Collector.
func (p *Pulse) Collect(all chan<- prometheus.Metric) {
	silent := p.Silent()
	p.mu.Lock()
	defer p.mu.Unlock()
	for name := range p.beats {
		works := 1.0
		if slices.Contains(silent, name) {
			works = 0
		}
		all <- prometheus.MustNewConstMetric(working, prometheus.GaugeValue, works, name)
	}
}
