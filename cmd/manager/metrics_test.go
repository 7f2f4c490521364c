package main

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// OPS-092: the gauge shows who leads, and the registry that the manager serves has the libraries' metrics of
// controllers, queues, calls to the API server, webhooks and the lease. TestLeakedCreationsAreCounted covers
// the counter of CloneSet, TestSlowPathsAreServed that of the lease, TestProtectionFollowsItsGate those of
// protection, and TestAReplicaThatStandsByAnswersWebhooksAndDoesNotReconcile what is served.
func TestMetricsThatOthersCountOn(t *testing.T) {
	elected := make(chan struct{})
	gauge := leadership(elected)
	if n := testutil.ToFloat64(gauge); n != 0 {
		t.Errorf("%v before the election", n)
	}
	close(elected)
	if n := testutil.ToFloat64(gauge); n != 1 {
		t.Errorf("%v on the leader", n)
	}
	if n := testutil.CollectAndCount(gauge, "kruise_manager_is_leader"); n != 1 {
		t.Error("the gauge has another name")
	}
	// A metric shows nothing before it has counted something, but its name is registered.
	for _, name := range []string{"controller_runtime_reconcile_total", "controller_runtime_reconcile_time_seconds",
		"controller_runtime_active_workers", "workqueue_depth", "workqueue_adds_total",
		"workqueue_queue_duration_seconds", "rest_client_requests_total", "controller_runtime_webhook_requests_total",
		"controller_runtime_webhook_latency_seconds", "go_goroutines",
		"process_cpu_seconds_total"} {
		if !taken(name, "test_only") {
			t.Errorf("%s is not served", name)
		}
	}
	if taken("afloat_nobody_has_this_name", "test_only") {
		t.Error("every name counts as taken")
	}
}

// taken tells whether the registry has a metric of that name.
func taken(name, label string) bool {
	probe := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: "of a test"}, []string{label})
	if err := metrics.Registry.Register(probe); err != nil {
		return true
	}
	metrics.Registry.Unregister(probe)
	return false
}
