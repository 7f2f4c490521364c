package controller

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"github.com/afloat-project/afloat/internal/kinds/advancedcronjob"
)

// meters are the metrics of the kind.
type meters struct {
	delay   *prometheus.HistogramVec
	dropped *prometheus.CounterVec
}

func newMeters() *meters {
	return &meters{
		delay: prometheus.NewHistogramVec(
			prometheus.HistogramOpts{Name: "afloat_advancedcronjob_start_delay_seconds",
				Help:    "From the time of a schedule until what it creates was created.",
				Buckets: []float64{0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200}}, []string{"kind"}),
		dropped: prometheus.NewCounterVec(
			prometheus.CounterOpts{Name: "afloat_advancedcronjob_dropped_runs_total",
				Help: "Times of schedules that were left out, because they were too late or because a later one had come."},
			[]string{"namespace", "name"}),
	}
}

func (m *meters) all() []prometheus.Collector { return []prometheus.Collector{m.delay, m.dropped} }

func (m *meters) started(kind advancedcronjob.Kind, late time.Duration) {
	if m != nil {
		m.delay.WithLabelValues(string(kind)).Observe(max(late, 0).Seconds())
	}
}

func (m *meters) left(namespace, name string, n int) {
	if m != nil && n > 0 {
		m.dropped.WithLabelValues(namespace, name).Add(float64(n))
	}
}

func (m *meters) forget(name types.NamespacedName) {
	if m != nil {
		m.dropped.DeleteLabelValues(name.Namespace, name.Name)
	}
}
