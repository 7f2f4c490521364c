package controller

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/afloat-project/afloat/internal/kinds/sidecarset"
)

// meters are the metrics of the controller, beside the queue's (SS-264, SS-W09).
type meters struct {
	pods        *prometheus.GaugeVec
	revisions   *prometheus.GaugeVec
	waiting     *prometheus.GaugeVec
	actions     *prometheus.CounterVec
	notInjected *prometheus.GaugeVec

	mu    sync.Mutex
	known map[string]map[string]bool // revisions and reasons that a SidecarSet has series of
}

func newMeters() *meters {
	return &meters{
		pods: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "afloat_sidecarset_pods",
			Help: "Pods of a SidecarSet by state: matched, updated, ready, updated_ready, not_upgradable."},
			[]string{"name", "state"}),
		revisions: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "afloat_sidecarset_pods_by_revision",
			Help: "Matched pods by the revision of the SidecarSet that they have; unknown where that is not recorded."},
			[]string{"name", "revision"}),
		waiting: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "afloat_sidecarset_pods_waiting",
			Help: "Pods that wait, by what they wait for."}, []string{"name", "reason"}),
		actions: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "afloat_sidecarset_pod_actions_total",
			Help: "Pods that were upgraded, or reset at the end of a hot upgrade."}, []string{"action"}),
		notInjected: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "afloat_sidecarset_pods_not_injected",
			Help: "Active pods that a SidecarSet selects and that were never injected by it, by whether they were made before or after it."},
			[]string{"name", "made"}),
		known: map[string]map[string]bool{},
	}
}

func (m *meters) all() []prometheus.Collector {
	return []prometheus.Collector{m.pods, m.revisions, m.waiting, m.actions, m.notInjected}
}

// observe shows a plan, and what was done of it.
func (m *meters) observe(plan *sidecarset.Plan, done map[sidecarset.Action]int) {
	name := plan.SidecarSet.Name
	for state, n := range map[string]int{"matched": int(plan.Status.MatchedPods),
		"updated": int(plan.Status.UpdatedPods), "ready": int(plan.Status.ReadyPods),
		"updated_ready": int(plan.Status.UpdatedReadyPods), "not_upgradable": plan.NotUpgradable} {
		m.pods.WithLabelValues(name, state).Set(float64(n))
	}

	revisions, waiting := plan.PodsByRevision(), map[string]int{}
	for _, v := range plan.Verdicts {
		if v.Action == sidecarset.Wait {
			waiting[string(v.Reason)]++
		}
	}

	for action, n := range done {
		m.actions.WithLabelValues(string(action)).Add(float64(n))
	}

	m.mu.Lock()
	defer m.mu.Unlock()
	show := func(gauge *prometheus.GaugeVec, prefix string, counts map[string]int) {
		for key := range m.known[name] {
			if value := key[1:]; key[:1] == prefix && counts[value] == 0 {
				gauge.DeleteLabelValues(name, value)
				delete(m.known[name], key)
			}
		}
		for value, n := range counts {
			if m.known[name] == nil {
				m.known[name] = map[string]bool{}
			}
			m.known[name][prefix+value] = true
			gauge.WithLabelValues(name, value).Set(float64(n))
		}
	}
	show(m.revisions, "r", revisions)
	show(m.waiting, "w", waiting)
}

func (m *meters) forget(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, gauge := range []*prometheus.GaugeVec{m.pods, m.revisions, m.waiting, m.notInjected} {
		gauge.DeletePartialMatch(prometheus.Labels{"name": name})
	}
	delete(m.known, name)
}
