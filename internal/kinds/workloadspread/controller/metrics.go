package controller

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/kinds/workloadspread"
)

// meters are the metrics of the controller, beside those of the queue. OpenKruise has none.
type meters struct {
	pods      *prometheus.GaugeVec
	unmatched *prometheus.GaugeVec
	passed    *prometheus.GaugeVec
	given     *prometheus.CounterVec
	lost      *prometheus.CounterVec

	mu    sync.Mutex
	known map[types.NamespacedName]map[string]bool // labels of subsets with series
}

func newMeters() *meters {
	spread, subset := []string{"namespace", "name"}, []string{"namespace", "name", "subset"}
	gauge := func(name, help string, labels []string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "afloat_workloadspread_" + name, Help: help},
			labels)
	}
	counter := func(name, help string, labels []string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(
			prometheus.CounterOpts{Name: "afloat_workloadspread_" + name, Help: help}, labels)
	}

	return &meters{
		pods:      gauge("subset_pods", "Active pods in a subset, of all versions.", subset),
		unmatched: gauge("pods_unmatched", "Active pods of the workload that are in no subset.", spread),
		passed: gauge("subset_unschedulable",
			"1 while pods that could not be scheduled make new ones pass over the subset.", subset),
		given: counter("pods_given_up_total",
			"Pods deleted because they could not be scheduled.", subset),
		lost: counter("bookings_expired_total", "Bookings that expired, by operation: create or delete.",
			[]string{"namespace", "name", "operation"}),
		known: map[types.NamespacedName]map[string]bool{},
	}
}

func (m *meters) all() []prometheus.Collector {
	return []prometheus.Collector{m.pods, m.unmatched, m.passed, m.given, m.lost}
}

func (m *meters) observe(name types.NamespacedName, outcome Outcome) {
	plan := outcome.Plan
	if plan.Problem != nil {
		return
	}

	subsets := map[string]bool{}
	for i := range plan.Status.Status.SubsetStatuses {
		s := &plan.Status.Status.SubsetStatuses[i]
		label := workloadspread.SubsetLabel(s.Name)
		subsets[label] = true
		m.pods.WithLabelValues(name.Namespace, name.Name, label).Set(float64(s.Replicas))
		passed := 0.0
		if c := workloadspread.Schedulable(s); c != nil && c.Status != "True" {
			passed = 1
		}
		m.passed.WithLabelValues(name.Namespace, name.Name, label).Set(passed)
	}

	m.unmatched.WithLabelValues(name.Namespace, name.Name).Set(float64(plan.Unmatched()))
	for _, pod := range outcome.Deleted {
		placed, _ := pub.ParsePlacement(pod.Annotations)
		m.given.WithLabelValues(name.Namespace, name.Name, workloadspread.SubsetLabel(placed.Subset)).Inc()
	}

	for _, lost := range outcome.Lost {
		operation := "create"
		if lost.Deletion {
			operation = "delete"
		}
		m.lost.WithLabelValues(name.Namespace, name.Name, operation).Inc()
	}

	m.mu.Lock()
	defer m.mu.Unlock()
	for subset := range m.known[name] {
		if !subsets[subset] {
			m.pods.DeleteLabelValues(name.Namespace, name.Name, subset)
			m.passed.DeleteLabelValues(name.Namespace, name.Name, subset)
			m.given.DeleteLabelValues(name.Namespace, name.Name, subset)
		}
	}

	m.known[name] = subsets
}

func (m *meters) forget(name types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := prometheus.Labels{"namespace": name.Namespace, "name": name.Name}
	for _, vector := range []interface{ DeletePartialMatch(prometheus.Labels) int }{
		m.pods, m.unmatched, m.passed, m.given, m.lost} {
		vector.DeletePartialMatch(all)
	}
	delete(m.known, name)
}
