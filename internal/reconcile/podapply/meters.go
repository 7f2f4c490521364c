package podapply

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/afloat-project/afloat/internal/engine/podplan"
	"github.com/afloat-project/afloat/internal/reconcile"
)

// Meters are the metrics of a workload's controller (CS-238, IPU-193).
type Meters struct {
	actions  *prometheus.CounterVec
	waiting  *prometheus.GaugeVec
	duration prometheus.Histogram

	mu        sync.Mutex
	workloads map[types.NamespacedName]*metered
}

// metered is what is kept about one workload.
type metered struct {
	// started is when the updates in place that are under way began, by pod.
	started map[types.UID]time.Time
	reasons sets.Set[podplan.Reason]
}

// NewMeters returns the metrics of the named controller; their names contain that name.
func NewMeters(controller string) *Meters {
	return &Meters{
		actions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "afloat_" + controller + "_pod_actions_total",
			Help: "Actions on pods that were carried out, by action and reason.",
		}, []string{"action", "reason"}),
		waiting: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "afloat_" + controller + "_pods_waiting",
			Help: "Pods that wait, by what they wait for.",
		}, []string{"namespace", "name", "reason"}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:        "afloat_inplace_update_duration_seconds",
			Help:        "Time from the start of an update in place until the pod is admitted again, by controller.",
			ConstLabels: prometheus.Labels{"controller": controller},
			Buckets:     prometheus.ExponentialBuckets(0.5, 2, 12),
		}),
		workloads: map[types.NamespacedName]*metered{},
	}
}

// All returns the metrics for registration.
func (m *Meters) All() []prometheus.Collector {
	return []prometheus.Collector{m.actions, m.waiting, m.duration}
}

// Observe records a pass: the actions that were carried out, not those planned, and the pods that the plan
// lets wait.
func (m *Meters) Observe(name types.NamespacedName, plan *podplan.Plan, outcome Outcome) {
	m.mu.Lock()
	defer m.mu.Unlock()
	kept := m.workloads[name]
	if kept == nil {
		kept = &metered{started: map[types.UID]time.Time{}, reasons: sets.New[podplan.Reason]()}
		m.workloads[name] = kept
	}

	waiting, there := map[podplan.Reason]int{}, map[types.UID]time.Time{}
	for _, v := range plan.Verdicts {
		if v.Action == podplan.Wait {
			waiting[v.Reason]++
		}
		if at, ok := kept.started[v.Pod.UID]; ok {
			there[v.Pod.UID] = at
		}
	}

	kept.started = there
	for _, v := range outcome.Done {
		kept.observe(v, m.duration)
		m.actions.WithLabelValues(string(v.Action), string(v.Reason)).Inc()
	}
	if outcome.Created > 0 {
		m.actions.WithLabelValues("create", "Missing").Add(float64(outcome.Created))
	}

	for reason := range kept.reasons {
		if waiting[reason] == 0 {
			m.waiting.DeleteLabelValues(name.Namespace, name.Name, string(reason))
			kept.reasons.Delete(reason)
		}
	}
	for reason, n := range waiting {
		kept.reasons.Insert(reason)
		m.waiting.WithLabelValues(name.Namespace, name.Name, string(reason)).Set(float64(n))
	}
}

func (k *metered) observe(v *podplan.Verdict, duration prometheus.Histogram) {
	switch v.Action {
	case podplan.UpdateInPlace:
		k.started[v.Pod.UID] = time.Now()
	case podplan.Patch:
		if start, ok := k.started[v.Pod.UID]; ok && v.Reason == podplan.ReasonUpdated {
			duration.Observe(time.Since(start).Seconds())
			delete(k.started, v.Pod.UID)
		}
	case podplan.Delete, podplan.Release:
		delete(k.started, v.Pod.UID)
	case podplan.Keep, podplan.Wait, podplan.Recreate, podplan.Continue, podplan.Adopt:
	}
}

// Forget drops what is kept about a workload that is gone.
func (m *Meters) Forget(name types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if kept := m.workloads[name]; kept != nil {
		for reason := range kept.reasons {
			m.waiting.DeleteLabelValues(name.Namespace, name.Name, string(reason))
		}
	}
	delete(m.workloads, name)
}

// Run makes one pass over a workload; the returned plan is nil if there was nothing to plan.
type Run func(ctx context.Context, name types.NamespacedName, owner types.UID) (*podplan.Plan, Outcome, error)

// pauseAtMost is the longest pause between two plans of a workload.
const pauseAtMost = time.Second

// NewLoop returns the loop of a workload's controller, which runs its passes and meters them. owner returns
// the UID of a workload in the caches.
func NewLoop(
	controller string,
	owner func(context.Context, types.NamespacedName) (types.UID, error),
	run Run,
	forget func(types.UID),
	limiter workqueue.TypedRateLimiter[ctrl.Request],
) (*reconcile.Loop, error) {
	meters := NewMeters(controller)
	pass := func(ctx context.Context, name types.NamespacedName, owner types.UID) (reconcile.Done, error) {
		if owner == "" {
			return reconcile.Done{}, nil
		}
		plan, outcome, err := run(ctx, name, owner)
		if plan == nil {
			return reconcile.Done{}, err
		}
		meters.Observe(name, plan, outcome)
		return outcome.Loop(plan), err
	}
	return reconcile.NewLoop(reconcile.Loop{
		Now:   time.Now,
		Owner: owner,
		Pass:  pass,
		Forget: func(name types.NamespacedName, uid types.UID) {
			forget(uid)
			meters.Forget(name)
		},
	}, pauseAtMost, limiter), reconcile.Register(meters.All()...)
}
