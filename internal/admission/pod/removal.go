package pod

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
)

// Removal is a pod that is about to be deleted, or evicted.
type Removal struct {
	Pod *corev1.Pod
	// Eviction: the pod is evicted through the subresource.
	Eviction bool
	// DryRun: the request must have no effect apart from its answer.
	DryRun bool
}

// Check is one concern about the removal of pods.
type Check struct {
	// Name is the check's name in metrics.
	Name string
	// Apply returns why the pod may not be removed now.
	Apply func(ctx context.Context, removal *Removal) error
}

// Removals holds all checks in their order. The first refusal ends them, so a check that counts removals comes last (WS-104).
type Removals struct {
	checks  []Check
	latency *prometheus.HistogramVec
}

// NewRemovals returns a chain of checks.
func NewRemovals(checks ...Check) *Removals {
	return &Removals{checks: checks, latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "afloat_pod_removal_check_seconds",
		Help: "Time that a check of the removal of pods took.", Buckets: latencyBuckets}, []string{"check"})}
}

// Metric returns the histogram afloat_pod_removal_check_seconds, for the registry.
func (r *Removals) Metric() prometheus.Collector { return r.latency }

// Admit returns why the pod may not be removed now, or nil.
func (r *Removals) Admit(ctx context.Context, removal *Removal) error {
	for _, check := range r.checks {
		begin := time.Now()
		err := check.Apply(ctx, removal)
		r.latency.WithLabelValues(check.Name).Observe(time.Since(begin).Seconds())
		if err != nil {
			return err
		}
	}
	return nil
}
