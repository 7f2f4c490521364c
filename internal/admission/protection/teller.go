package protection

import (
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/afloat-project/afloat/internal/admission/pod"
	"github.com/afloat-project/afloat/internal/engine/wording"
	"github.com/afloat-project/afloat/internal/platform/protectionlog"
	"github.com/afloat-project/afloat/internal/reconcile"
)

// Limits of what users can cause by deleting many protected objects: events of a namespace per second and at once,
// how many namespaces may have that many, namespaces of which events are limited apart, and label values of a counter.
const (
	eventsASecond  = 1
	eventsAtOnce   = 20
	busyNamespaces = 20
	mostNamespaces = 1000
	mostSeries     = 1000
)

// Reporter reports what was rejected: by counters (DP-040, PUB-112), the protection log (DP-041, PUB-093),
// and an event on namespaced objects.
type Reporter struct {
	recorder                          reconcile.Recorder
	lines                             *protectionlog.Log
	log                               logr.Logger
	now                               func() time.Time
	limiters                          *limiters
	namespaces, definitions, workload *counters
	budgets, passed                   *counters
}

// NewTeller returns a teller.
func NewTeller(
	recorder reconcile.Recorder, lines *protectionlog.Log, log logr.Logger, now func() time.Time,
) *Reporter {
	return &Reporter{
		recorder:   recorder,
		lines:      lines,
		log:        log,
		now:        now,
		limiters:   newLimiters(),
		namespaces: newCounters("namespace_deletion_protection", "Refused deletions of namespaces.", "name"),
		definitions: newCounters("crd_deletion_protection", "Refused deletions of CustomResourceDefinitions.",
			"name"),
		workload: newCounters("workload_deletion_protection",
			"Refused deletions of objects in namespaces.", "kind_namespace_name"),
		budgets: newCounters("pod_unavailable_budget",
			"Disruptions of pods that PodUnavailableBudgets refused.", "kind_namespace_name"),
		passed: newCounters("afloat_podunavailablebudget_passed_total",
			"Deletions of pods by the cluster itself that PodUnavailableBudgets would have refused.",
			"kind_namespace_name"),
	}
}

// Metrics returns the counters.
func (t *Reporter) Metrics() []prometheus.Collector {
	return []prometheus.Collector{t.namespaces, t.definitions, t.workload, t.budgets, t.passed}
}

func (t *Reporter) tell(kind Kind, request *admission.Request, o *object, why string) {
	user, meta := request.UserInfo.Username, &o.Metadata
	switch {
	case kind.Name == "Namespace":
		t.namespaces.add(meta.Name, user)
	case meta.Namespace == "":
		t.definitions.add(meta.Name, user)
	default:
		t.workload.add(kind.Name+"_"+meta.Namespace+"_"+meta.Name, user)
		if t.limiters.allow(meta.Namespace, t.now()) {
			t.recorder.Event(reference(request, o), corev1.EventTypeWarning, "DeletionRefused",
				"User "+user+" was refused: "+why)
		}
	}

	resource := request.Resource.Resource
	if request.Resource.Group != "" {
		resource += "." + request.Resource.Group
	}

	t.write(protectionlog.Line{
		Event:     "DeletionProtection",
		Operation: string(request.Operation),
		Kind:      kind.Name,
		Namespace: meta.Namespace,
		Name:      meta.Name,
		UserAgent: user,
		Object:    resource + " " + name(o),
	})
}

// Disruption reports a disruption of a pod that a budget rejected.
func (t *Reporter) Disruption(d *pod.Disruption, why string) {
	t.disruption(d, t.budgets, "PubPreventPodDeletion", "PodUnavailableBudget",
		fmt.Sprintf("PodUnavailableBudget prevents pod deletion (%s by %s): %s", d.By, d.User, why))
}

// Passed reports a deletion by the cluster itself that a budget would have rejected (PUB-094).
func (t *Reporter) Passed(d *pod.Disruption, why string) {
	t.disruption(d, t.passed, "PubPassedPodDeletion", "PodUnavailableBudgetPassed",
		fmt.Sprintf("PodUnavailableBudget does not hold a deletion by %s: %s", d.User, why))
}

func (t *Reporter) disruption(d *pod.Disruption, counted *counters, reason, event, message string) {
	owner, about := metav1.GetControllerOfNoCopy(d.Pod), "unknown_"+d.Pod.Namespace+"_"+d.Pod.Name
	if owner != nil {
		about = owner.Kind + "_" + d.Pod.Namespace + "_" + owner.Name
	}

	counted.add(about, d.User)
	if t.limiters.allow(d.Pod.Namespace, t.now()) {
		t.recorder.Event(d.Pod, corev1.EventTypeWarning, reason, message)
	}

	t.write(protectionlog.Line{
		Event:     event,
		Operation: string(d.By),
		Kind:      "Pod",
		Namespace: d.Pod.Namespace,
		Name:      d.Pod.Name,
		UserAgent: d.User,
		Object:    "pods " + d.Pod.Namespace + "/" + d.Pod.Name,
	})
}

func (t *Reporter) write(line protectionlog.Line) {
	line.Time = t.now()
	if err := t.lines.Write(line); err != nil {
		t.log.Error(err, "The protection log cannot be written")
	}
}

// sort returns what metrics show of a user: user names are private, often mail addresses, and everyone in the
// cluster may read metrics.
func sort(user string) string {
	for prefix, sort := range map[string]string{
		"system:serviceaccount:": "serviceaccount",
		"system:node:":           "node",
	} {
		if strings.HasPrefix(user, prefix) {
			return sort
		}
	}
	if strings.HasPrefix(user, "system:") {
		return "system"
	}
	return "user"
}

// limiters limit the events of each namespace, so that refusals in one leave events to the others, and of all.
type limiters struct {
	all *rate.Limiter
	mu  sync.Mutex
	of  map[string]*rate.Limiter
}

func newLimiters() *limiters {
	return &limiters{
		all: rate.NewLimiter(busyNamespaces*eventsASecond, busyNamespaces*eventsAtOnce),
		of:  map[string]*rate.Limiter{},
	}
}

// allow reports whether another event of the namespace may be recorded.
func (l *limiters) allow(namespace string, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	limiter := l.of[namespace]
	if limiter == nil {
		if len(l.of) >= mostNamespaces { // those that have no event to make up for need not be remembered
			maps.DeleteFunc(l.of, func(_ string, other *rate.Limiter) bool { return other.TokensAt(now) >= eventsAtOnce })
		}
		if len(l.of) >= mostNamespaces {
			return false
		}
		limiter = rate.NewLimiter(eventsASecond, eventsAtOnce)
		l.of[namespace] = limiter
	}
	return limiter.AllowN(now, 1) && l.all.AllowN(now, 1)
}

// counters has a counter for each object and sort of user. It drops the oldest when there are too many, and cuts
// what is too long, because users choose the names.
type counters struct {
	*prometheus.CounterVec
	mu    sync.Mutex
	known map[[2]string]bool
	order [][2]string
}

func newCounters(name, help, label string) *counters {
	return &counters{
		CounterVec: prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help},
			[]string{label, "username"}),
		known: map[[2]string]bool{},
	}
}

func (c *counters) add(name, user string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	labels := [2]string{wording.Bound(name), sort(user)}
	if !c.known[labels] {
		if len(c.order) == mostSeries {
			c.DeleteLabelValues(c.order[0][:]...)
			delete(c.known, c.order[0])
			c.order = c.order[1:]
		}
		c.known[labels], c.order = true, append(c.order, labels)
	}

	c.WithLabelValues(labels[:]...).Inc()
}
