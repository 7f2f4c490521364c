// Package leadermetrics provides the metrics of leader election (OPS-092). controller-runtime defines the
// same metrics but does not register the slow path counter, which counts renewals that conflicted with
// another writer.
//
// client-go uses only the first provider of these metrics. This package does not import controller-runtime,
// and its import path sorts first, which is the order in which Go initialises independent packages.
package leadermetrics

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/tools/leaderelection"
)

var (
	status = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "leader_election_master_status",
		// The text is the one of controller-runtime, whose gauge this one replaces.
		Help: "Gauge of if the reporting system is master of the relevant lease, 0 indicates backup, 1 indicates master. 'name' is the " +
			"string used to identify the lease. Please make sure to group by name.",
	}, []string{"name"})
	slowPaths = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "leader_election_slowpath_total",
		Help: "Renewals of the lease that had to read it first. 'name' is the name of the lease.",
	}, []string{"name"})
)

func init() { leaderelection.SetProvider(provider{}) }

// Register registers these metrics and replaces those of the same name that controller-runtime registered.
func Register(registry prometheus.Registerer) error {
	registry.Unregister(status)
	for _, collector := range []prometheus.Collector{status, slowPaths} {
		if err := registry.Register(collector); err != nil {
			return fmt.Errorf("registering metrics: %w", err)
		}
	}
	return nil
}

type provider struct{}

func (provider) NewLeaderMetric() leaderelection.LeaderMetric { return meter{} }

type meter struct{}

func (meter) On(name string)                { status.WithLabelValues(name).Set(1) }
func (meter) Off(name string)               { status.WithLabelValues(name).Set(0) }
func (meter) SlowpathExercised(name string) { slowPaths.WithLabelValues(name).Inc() }
