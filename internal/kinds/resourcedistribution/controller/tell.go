package controller

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/resourcedistribution"
)

// Reasons of events.
const (
	distributeFailed = "DistributeFailed"
	conflict         = "Conflict"
	distributed      = "Distributed"
)

// tellEvery is how often events are sent at most, since users of namespaces may cause conflicts and end them
// in turns.
const tellEvery = 10 * time.Second

// tell sends events about changes once all namespaces were looked at: about failures, and that there are none
// any more. It returns when to send what may have come since the last event; 0 means not at all.
func tell(s *session, d *distribution, status *appsv1beta1.ResourceDistributionStatus) time.Duration {
	rd := s.Object
	// A status that was stored before was announced by whoever stored it.
	d.incomplete = d.incomplete || rd.Status.Failed > 0 || rd.Status.Succeeded != status.Succeeded ||
		rd.Status.ObservedGeneration != rd.Generation
	if wait := d.told.Add(tellEvery).Sub(s.Now()); wait > 0 {
		return wait
	}

	told := map[string]string{}
	for i := range status.Conditions {
		c := &status.Conditions[i]
		if c.Status != corev1.ConditionTrue {
			continue
		}
		reason := distributeFailed
		if c.Type == appsv1beta1.ResourceDistributionConflictOccurred {
			reason = conflict
		}
		if told[reason] != "" {
			told[reason] += "; "
		}
		told[reason] += fmt.Sprintf("%s in %d namespaces, the first is %s: %s", c.Type,
			d.counts.Failures(c.Type), c.FailedNamespaces[0], c.Reason)
	}

	for _, reason := range []string{distributeFailed, conflict} {
		if s.News(reason, told[reason]) {
			s.Event(corev1.EventTypeWarning, reason, told[reason])
			d.told = s.Now()
		}
	}

	about := ""
	if status.Desired > 0 && status.Failed == 0 && len(told) == 0 {
		about = fmt.Sprintf("%d of generation %d", status.Desired, rd.Generation)
	}
	if s.News(distributed, about) && d.incomplete {
		d.incomplete = false
		s.Event(corev1.EventTypeNormal, distributed,
			fmt.Sprintf("all %d namespaces have a copy", status.Desired))
		d.told = s.Now()
	}

	return 0
}

// meters are the metrics of the controller.
type meters struct {
	writes  *prometheus.CounterVec
	without *prometheus.GaugeVec
	watches prometheus.GaugeFunc
}

func newMeters(w *watches) *meters {
	return &meters{
		writes: prometheus.NewCounterVec(
			prometheus.CounterOpts{Name: "afloat_resourcedistribution_writes_total",
				Help: "Writes of copies, by action (create, update, recreate, delete) and result (done, failed)."},
			[]string{"action", "result"}),
		without: prometheus.NewGaugeVec(
			prometheus.GaugeOpts{Name: "afloat_resourcedistribution_failed_namespaces",
				Help: "Target namespaces without a correct copy, by ResourceDistribution."},
			[]string{"name"}),
		watches: prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "afloat_resourcedistribution_watches",
			Help: "Watches of Secrets and ConfigMaps, one for each kind and name that is distributed."},
			func() float64 { return float64(w.count()) }),
	}
}

func (m *meters) all() []prometheus.Collector {
	return []prometheus.Collector{m.writes, m.without, m.watches}
}

func (m *meters) wrote(action resourcedistribution.Action, err error) {
	if m == nil {
		return
	}
	result := "done"
	if err != nil {
		result = "failed"
	}
	m.writes.WithLabelValues(string(action), result).Inc()
}

func (m *meters) failed(name string, n int) {
	if m != nil {
		m.without.WithLabelValues(name).Set(float64(n))
	}
}

func (m *meters) forget(name string) {
	if m != nil {
		m.without.DeleteLabelValues(name)
	}
}
