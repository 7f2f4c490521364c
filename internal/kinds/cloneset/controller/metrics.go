package controller

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"github.com/afloat-project/afloat/internal/engine/podplan"
)

// meters are the metrics of the controller (CS-238, IPU-193).
type meters struct {
	leaked   *prometheus.CounterVec
	actions  *prometheus.CounterVec
	waiting  *prometheus.GaugeVec
	duration prometheus.Histogram

	mu      sync.Mutex
	started map[types.UID]time.Time // pods whose update in place is under way
	reasons map[types.NamespacedName]map[podplan.Reason]bool
}

func newMeters() *meters {
	return &meters{
		leaked: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "cloneset_scale_expectation_leakage",
			Help: "Creations that the cache never showed and a live read had to settle."}, []string{"namespace", "name"}),
		actions: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "afloat_cloneset_pod_actions_total",
			Help: "Actions on pods that were carried out, by action and reason."}, []string{"action", "reason"}),
		waiting: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "afloat_cloneset_pods_waiting",
			Help: "Pods that wait, by what they wait for."}, []string{"namespace", "name", "reason"}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "afloat_inplace_update_duration_seconds",
			Help:    "Time from the start of an update in place until the pod is admitted again.",
			Buckets: prometheus.ExponentialBuckets(0.5, 2, 12)}),
		started: map[types.UID]time.Time{},
		reasons: map[types.NamespacedName]map[podplan.Reason]bool{},
	}
}

func (m *meters) all() []prometheus.Collector {
	return []prometheus.Collector{m.leaked, m.actions, m.waiting, m.duration}
}

// observe takes note of a pass: of what was done, not of what was planned, and of what the plan lets wait.
func (m *meters) observe(outcome Outcome) {
	m.mu.Lock()
	defer m.mu.Unlock()
	set := outcome.Plan.Set
	name := types.NamespacedName{Namespace: set.Namespace, Name: set.Name}
	waiting := map[podplan.Reason]int{}
	for _, v := range outcome.Plan.Verdicts {
		if v.Action == podplan.Wait {
			waiting[v.Reason]++
		}
	}
	for _, v := range outcome.Done {
		switch v.Action {
		case podplan.UpdateInPlace:
			m.started[v.Pod.UID] = time.Now()
		case podplan.Patch:
			if start, ok := m.started[v.Pod.UID]; ok && v.Reason == podplan.ReasonUpdated {
				m.duration.Observe(time.Since(start).Seconds())
				delete(m.started, v.Pod.UID)
			}
		case podplan.Delete, podplan.Release:
			delete(m.started, v.Pod.UID)
		}
		m.actions.WithLabelValues(string(v.Action), string(v.Reason)).Inc()
	}
	if outcome.Created > 0 {
		m.actions.WithLabelValues("create", "Missing").Add(float64(outcome.Created))
	}
	for reason := range m.reasons[name] {
		if waiting[reason] == 0 {
			m.waiting.DeleteLabelValues(name.Namespace, name.Name, string(reason))
			delete(m.reasons[name], reason)
		}
	}
	for reason, n := range waiting {
		if m.reasons[name] == nil {
			m.reasons[name] = map[podplan.Reason]bool{}
		}
		m.reasons[name][reason] = true
		m.waiting.WithLabelValues(name.Namespace, name.Name, string(reason)).Set(float64(n))
	}
}

func (m *meters) forget(name types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for reason := range m.reasons[name] {
		m.waiting.DeleteLabelValues(name.Namespace, name.Name, string(reason))
	}
	delete(m.reasons, name)
}
