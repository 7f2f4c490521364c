package controller

import (
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"github.com/afloat-project/afloat/internal/kinds/uniteddeployment"
)

// meters are the metrics of the kind.
type meters struct{ passed, reserved *prometheus.GaugeVec }

func newMeters() *meters {
	gauge := func(name, help string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help},
			[]string{"namespace", "name"})
	}
	return &meters{
		passed: gauge("afloat_uniteddeployment_unschedulable_subsets",
			"Subsets of adaptive UnitedDeployments that are passed over, or have reserved pods, because pods could not be scheduled."),
		reserved: gauge("afloat_uniteddeployment_reserved_pods",
			"Pods of UnitedDeployments that have substitutes in other subsets."),
	}
}

func (m *meters) all() []prometheus.Collector { return []prometheus.Collector{m.passed, m.reserved} }

// tell counts what is unusual; what is not has no series.
func (m *meters) tell(namespace, name string, plan *uniteddeployment.Plan) {
	if m == nil {
		return
	}
	passed := 0
	for i := range plan.Subsets {
		if plan.Subsets[i].Passed || plan.Subsets[i].Reserved > 0 {
			passed++
		}
	}
	set(m.passed, namespace, name, passed)
	set(m.reserved, namespace, name, int(plan.Status.ReservedPods))
}

func set(gauge *prometheus.GaugeVec, namespace, name string, n int) {
	if n == 0 {
		gauge.DeleteLabelValues(namespace, name)
		return
	}
	gauge.WithLabelValues(namespace, name).Set(float64(n))
}

func (m *meters) forget(name types.NamespacedName) {
	if m != nil {
		m.passed.DeleteLabelValues(name.Namespace, name.Name)
		m.reserved.DeleteLabelValues(name.Namespace, name.Name)
	}
}
