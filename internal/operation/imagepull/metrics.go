package imagepull

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
)

// meters are the metrics of the manager's part (IMG-205).
type meters struct {
	running prometheus.Gauge
	results *prometheus.CounterVec

	mu   sync.Mutex
	jobs map[types.NamespacedName]bool
}

func newMeters() *meters {
	return &meters{
		running: prometheus.NewGauge(prometheus.GaugeOpts{Name: "afloat_image_pull_jobs_running", Help: "ImagePullJobs that have not ended."}),
		results: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "afloat_image_pull_job_nodes_total",
			Help: "Nodes of ImagePullJobs that ended, by result."}, []string{"result"}),
		jobs: map[types.NamespacedName]bool{},
	}
}

func (m *meters) all() []prometheus.Collector { return []prometheus.Collector{m.running, m.results} }

func (m *meters) observe(job types.NamespacedName, plan *JobPlan, running bool) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !running {
		delete(m.jobs, job)
	} else if m.jobs[job] = true; plan.Status != nil && plan.Status.CompletionTime != nil {
		delete(m.jobs, job)
		m.results.WithLabelValues("succeeded").Add(float64(plan.Status.Succeeded))
		m.results.WithLabelValues("failed").Add(float64(plan.Status.Failed))
	}
	m.running.Set(float64(len(m.jobs)))
}

func (m *meters) forget(job types.NamespacedName) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.jobs, job)
	m.running.Set(float64(len(m.jobs)))
}
