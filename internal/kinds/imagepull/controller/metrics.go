package controller

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/imagepull"
)

// meters are the metrics of the controllers.
type meters struct {
	running, copies prometheus.Gauge
	results         *prometheus.CounterVec

	mu   sync.Mutex
	jobs map[types.NamespacedName]bool
}

func newMeters() *meters {
	return &meters{
		running: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "afloat_image_pull_jobs_running",
			Help: "ImagePullJobs that have not ended.",
		}),
		copies: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "afloat_image_pull_secret_copies",
			Help: "Copies of pull secrets that node daemons may read.",
		}),
		results: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "afloat_image_pull_job_nodes_total",
			Help: "Nodes of ImagePullJobs that ended, by the kind that asked for the job, and by result.",
		}, []string{"kind", "result"}),
		jobs: map[types.NamespacedName]bool{},
	}
}

func (m *meters) all() []prometheus.Collector {
	return []prometheus.Collector{m.running, m.copies, m.results}
}

// askedBy returns the kind of the object that created the job, or ImagePullJob if no object did. Users choose
// the kinds of owners, so those that create no jobs are not told apart.
func askedBy(job *appsv1beta1.ImagePullJob) string {
	owner := metav1.GetControllerOfNoCopy(job)
	if owner == nil {
		return "ImagePullJob"
	}
	switch owner.Kind {
	case "ImageListPullJob", "CloneSet", "StatefulSet", "DaemonSet", "SidecarSet":
		return owner.Kind
	}
	return "other"
}

func (m *meters) observe(object *appsv1beta1.ImagePullJob, plan *imagepull.JobPlan, running bool) {
	if m == nil {
		return
	}

	job := types.NamespacedName{Namespace: object.Namespace, Name: object.Name}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !running {
		delete(m.jobs, job)
	} else if m.jobs[job] = true; plan.Status != nil && plan.Status.CompletionTime != nil {
		delete(m.jobs, job)
		m.results.WithLabelValues(askedBy(object), "succeeded").Add(float64(plan.Status.Succeeded))
		m.results.WithLabelValues(askedBy(object), "failed").Add(float64(plan.Status.Failed))
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
