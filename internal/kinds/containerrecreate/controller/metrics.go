package controller

import (
	"github.com/prometheus/client_golang/prometheus"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/containerrecreate"
)

// meters are the metrics of the controller.
type meters struct {
	completed *prometheus.CounterVec
	duration  prometheus.Histogram
}

func newMeters() *meters {
	return &meters{
		completed: prometheus.NewCounterVec(
			prometheus.CounterOpts{
				Name: "afloat_container_recreate_requests_completed_total",
				Help: "Completed ContainerRecreateRequests, by result.",
			}, []string{"result"},
		), duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "afloat_container_recreate_request_duration_seconds",
			Help:    "Time from the creation of a ContainerRecreateRequest to its completion.",
			Buckets: prometheus.ExponentialBuckets(1, 2, 12),
		})}
}

func (m *meters) all() []prometheus.Collector { return []prometheus.Collector{m.completed, m.duration} }

func (m *meters) observe(request *appsv1beta1.ContainerRecreateRequest, result containerrecreate.Result) {
	m.completed.WithLabelValues(string(result)).Inc()
	if end := request.Status.CompletionTime; end != nil {
		m.duration.Observe(end.Sub(request.CreationTimestamp.Time).Seconds())
	}
}
