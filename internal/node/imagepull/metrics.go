package imagepull

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// meters are the metrics of pulls (ND-048, IMG-205).
type meters struct {
	pulls            *prometheus.HistogramVec
	bytes            prometheus.Counter
	waiting, running prometheus.Gauge
}

func newMeters() *meters {
	return &meters{
		pulls: prometheus.NewHistogramVec(
			prometheus.HistogramOpts{
				Name:    "afloat_daemon_image_pull_duration_seconds",
				Help:    "Image pulls, all attempts of each together, by result.",
				Buckets: prometheus.ExponentialBuckets(0.25, 2, 14),
			},
			[]string{"result"}),
		bytes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "afloat_daemon_image_pull_bytes_total",
			Help: "Size of the images that were pulled, as the runtime stores them.",
		}),
		waiting: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "afloat_daemon_image_pulls_waiting",
			Help: "Image pulls that wait for their turn.",
		}),
		running: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "afloat_daemon_image_pulls_running",
			Help: "Image pulls under way.",
		}),
	}
}

func (m *meters) all() []prometheus.Collector {
	return []prometheus.Collector{m.pulls, m.bytes, m.waiting, m.running}
}

func (m *meters) ended(err error, took time.Duration, size uint64) {
	result := "succeeded"
	if err != nil {
		result = "failed"
	}
	m.pulls.WithLabelValues(result).Observe(took.Seconds())
	m.bytes.Add(float64(size))
}
