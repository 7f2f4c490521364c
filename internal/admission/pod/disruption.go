package pod

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	policyv1beta1 "github.com/afloat-project/afloat/api/policy/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/disruption"
)

// Disruption is what somebody is about to do to a pod.
type Disruption struct {
	// Pod is the pod as it is before.
	Pod *corev1.Pod
	// By is the operation.
	By disruption.Operation
	// User is the name of who does it.
	User string
	// DryRun: the request must have no effect apart from its answer.
	DryRun bool
}

// Removes tells whether the pod is deleted or evicted.
func (d *Disruption) Removes() bool {
	return d.By == policyv1beta1.Delete || d.By == policyv1beta1.Evict
}

// Refused is why a pod may not be disrupted now, although it may be later.
type Refused struct {
	Message string
	// Pending: it may be allowed within seconds.
	Pending bool
}

func (r *Refused) Error() string { return r.Message }

// Check is one concern about what is done to pods.
type Check struct {
	// Name is the check's name in metrics.
	Name string
	// Apply returns why that may not be done: Refused, if it may be done later, or another error.
	Apply func(ctx context.Context, disruption *Disruption) error
}

// Disruptions holds all checks in their order. The first refusal ends them, so a check that counts comes last
// (WS-104).
type Disruptions struct {
	checks  []Check
	latency *prometheus.HistogramVec
}

// NewDisruptions returns a chain of checks.
func NewDisruptions(checks ...Check) *Disruptions {
	return &Disruptions{
		checks: checks,
		latency: prometheus.NewHistogramVec(
			prometheus.HistogramOpts{
				Name:    "afloat_pod_removal_check_seconds",
				Help:    "Time that a check of what is done to pods took.",
				Buckets: latencyBuckets,
			}, []string{"check"},
		),
	}
}

// Metric returns the histogram afloat_pod_removal_check_seconds, for the registry.
func (r *Disruptions) Metric() prometheus.Collector { return r.latency }

// Admit returns why that may not be done to the pod, or nil.
func (r *Disruptions) Admit(ctx context.Context, disruption *Disruption) error {
	for _, check := range r.checks {
		begin := time.Now()
		err := check.Apply(ctx, disruption)
		r.latency.WithLabelValues(check.Name).Observe(time.Since(begin).Seconds())
		if err != nil {
			return err
		}
	}
	return nil
}
