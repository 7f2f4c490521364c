package controller

import (
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	"github.com/afloat-project/afloat/internal/kinds/ephemeraljob"
)

// meters are the metrics of the controller. A nil one measures nothing.
type meters struct {
	jobs *prometheus.GaugeVec
	pods *prometheus.CounterVec

	mu     sync.Mutex
	phases map[types.NamespacedName]appsv1alpha1.EphemeralJobPhase
}

func newMeters() *meters {
	return &meters{
		jobs: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "afloat_ephemeral_jobs",
			Help: "EphemeralJobs, by phase."}, []string{"phase"}),
		pods: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "afloat_ephemeral_job_pods_total",
			Help: "Pods of EphemeralJobs that ended, by result."}, []string{"result"}),
		phases: map[types.NamespacedName]appsv1alpha1.EphemeralJobPhase{},
	}
}

func (m *meters) all() []prometheus.Collector { return []prometheus.Collector{m.jobs, m.pods} }

// phase counts a job by its phase, which is that of the plan if there is one.
func (m *meters) phase(name types.NamespacedName, job *appsv1alpha1.EphemeralJob, plan *ephemeraljob.Plan) {
	phase := job.Status.Phase
	if plan.Status != nil {
		phase = plan.Status.Phase
	}
	if !slices.Contains(phases, phase) { // what others wrote must not make a metric
		phase = appsv1alpha1.EphemeralJobUnknown
	}
	m.set(name, phase)
}

// phases are all that there are.
var phases = []appsv1alpha1.EphemeralJobPhase{appsv1alpha1.EphemeralJobWaiting,
	appsv1alpha1.EphemeralJobRunning, appsv1alpha1.EphemeralJobSucceeded, appsv1alpha1.EphemeralJobFailed,
	appsv1alpha1.EphemeralJobPaused, appsv1alpha1.EphemeralJobError}

func (m *meters) forget(name types.NamespacedName) { m.set(name, "") }

func (m *meters) set(name types.NamespacedName, phase appsv1alpha1.EphemeralJobPhase) {
	if m == nil {
		return
	}

	m.mu.Lock()
	defer m.mu.Unlock()
	before, counted := m.phases[name]
	if counted && before == phase {
		return
	}
	if counted {
		m.jobs.WithLabelValues(string(before)).Dec()
		delete(m.phases, name)
	}
	if phase != "" {
		m.jobs.WithLabelValues(string(phase)).Inc()
		m.phases[name] = phase
	}
}

// ended counts the pods of a job that ended.
func (m *meters) ended(status *appsv1alpha1.EphemeralJobStatus) {
	if m == nil {
		return
	}
	m.pods.WithLabelValues("succeeded").Add(float64(status.Succeeded))
	m.pods.WithLabelValues("failed").Add(float64(status.Failed))
}
