package controller

import (
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"github.com/afloat-project/afloat/internal/kinds/podunavailablebudget"
)

// meters are the gauges of budgets.
type meters struct {
	allowed, current, desired, total *prometheus.GaugeVec
}

func newMeters() *meters {
	gauge := func(name, help string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "afloat_podunavailablebudget_" +
			name, Help: help},
			[]string{"namespace", "name"})
	}
	return &meters{
		allowed: gauge("allowed_pods", "How many more pods of a PodUnavailableBudget may leave service."),
		current: gauge("available_pods", "How many pods of a PodUnavailableBudget are in service."),
		desired: gauge("desired_pods", "How many pods of a PodUnavailableBudget must stay in service."),
		total:   gauge("expected_pods", "How many pods a PodUnavailableBudget expects."),
	}
}

func (m *meters) all() []prometheus.Collector {
	return []prometheus.Collector{m.allowed, m.current, m.desired, m.total}
}

func (m *meters) observe(name types.NamespacedName, plan *podunavailablebudget.Plan) {
	set := func(gauge *prometheus.GaugeVec, value int32) {
		gauge.WithLabelValues(name.Namespace, name.Name).Set(float64(value))
	}
	set(m.allowed, plan.Status.UnavailableAllowed)
	set(m.current, plan.Status.CurrentAvailable)
	set(m.desired, plan.Status.DesiredAvailable)
	set(m.total, plan.Status.TotalReplicas)
}

func (m *meters) forget(name types.NamespacedName) {
	for _, gauge := range []*prometheus.GaugeVec{m.allowed, m.current, m.desired, m.total} {
		gauge.DeleteLabelValues(name.Namespace, name.Name)
	}
}
