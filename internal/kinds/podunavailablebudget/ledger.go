package podunavailablebudget

import (
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	policyv1beta1 "github.com/afloat-project/afloat/api/policy/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/disruption"
	"github.com/afloat-project/afloat/internal/engine/firstseen"
)

// MaxBookings is how many pods both maps of a budget hold at most (PUB-064).
const MaxBookings = 2000

// MaxBudgets is how many budgets a namespace may have (PUB-142).
const MaxBudgets = 1000

// How long bookings count of pods that do not leave service (PUB-061, PUB-062). A booking stays for 5 s at
// least, also when the pod is seen to have left: the caches of another manager, which counts next, may not
// show that yet. settleTime is longer, since the time that is written is up to a second before that of the
// booking.
const (
	deletionTime = 20 * time.Second
	updateTime   = 10 * time.Second
	settleTime   = 6 * time.Second
	// overTime is how long one stays at least whose update is over. Two updates may begin in one second,
	// which is all that is known of their times.
	overTime = 2 * time.Second
)

// Ledger is the status of a budget while pods are booked in it.
type Ledger struct {
	rules   *Rules
	status  policyv1beta1.PodUnavailableBudgetStatus
	options Options
	now     time.Time
	changed bool
}

// NewLedger returns the ledger of a budget as it is. Nothing of the budget is changed by it.
func NewLedger(rules *Rules, options Options, now time.Time) *Ledger {
	l := &Ledger{rules: rules, status: rules.Budget.Status, options: options, now: now}
	l.status.DisruptedPods, l.status.UnavailablePods = maps.Clone(l.status.DisruptedPods),
		maps.Clone(l.status.UnavailablePods)
	l.status.BookedPods = maps.Clone(l.status.BookedPods)
	l.heedTime()
	return l
}

// heedTime has more pods stay if a window opened, ended or changed since they were counted: who counts may be
// away.
func (l *Ledger) heedTime() {
	s := &l.status
	if s.TotalReplicas == 0 { // nothing need stay, or what does depends on pods
		return
	}
	desired, _, _, err := l.rules.Number(s.TotalReplicas, l.now)
	if err == nil && desired > s.DesiredAvailable {
		s.DesiredAvailable, s.UnavailableAllowed = desired, max(s.CurrentAvailable-desired, 0)
	}
}

// Changes are the members of the status that bookings changed, as a JSON merge patch; none if there is
// nothing to be written.
func (l *Ledger) Changes() map[string]any {
	if !l.changed {
		return nil
	}
	before := &l.rules.Budget.Status
	return map[string]any{"unavailableAllowed": l.status.UnavailableAllowed,
		"currentAvailable": l.status.CurrentAvailable,
		"disruptedPods":    difference(before.DisruptedPods, l.status.DisruptedPods),
		"unavailablePods":  difference(before.UnavailablePods, l.status.UnavailablePods),
		"bookedPods":       difference(before.BookedPods, l.status.BookedPods)}
}

// difference has what is to be set, and nil for what is to be removed.
func difference[V comparable](before, after map[string]V) map[string]any {
	changes := map[string]any{}
	for name, value := range after {
		if was, found := before[name]; !found || was != value {
			changes[name] = value
		}
	}
	for name := range before {
		if _, stays := after[name]; !stays {
			changes[name] = nil
		}
	}
	return changes
}

// Decision is the answer to who wants to disrupt a pod.
type Decision struct {
	Allowed bool
	// Booked: the pod was booked anew, so that one pod fewer may go. Renewed: its booking begins its life
	// again.
	Booked, Renewed bool
	// Recent: the pod was booked so short a time ago that nobody has dropped the booking.
	Recent bool
	// Pending: the pods of the budget are not counted yet, so that asking again soon is worth while.
	Pending bool
	// Reason is why, in words.
	Reason string
}

// Book decides about a pod, and books it if it may be disrupted and that counts. The first rule that applies
// decides (PUB-086 to PUB-089).
func (l *Ledger) Book(pod *corev1.Pod, by disruption.Operation) Decision {
	allowed := func(format string, args ...any) Decision {
		return Decision{Allowed: true, Reason: fmt.Sprintf(format, args...)}
	}
	if why, free := Free(pod, l.now); free {
		return allowed("%s", why)
	}

	switch s, budget := &l.status, l.rules.Budget; {
	case l.rules.Ignores(pod):
		return allowed("ignoredPodSelector selects the pod")
	case !l.rules.Protects(by, l.options):
		return allowed("%s is not protected", by)
	case s.ObservedGeneration < budget.Generation:
		return Decision{Pending: true,
			Reason: fmt.Sprintf("PodUnavailableBudget %s allows no %s before its pods are counted",
				budget.Name, by)}
	case s.DesiredAvailable == 0:
		return allowed("no pod need stay in service")
	// the numbers have changed since; it is not counted in them
	case l.booked(pod) && s.CurrentAvailable < s.DesiredAvailable:
		return Decision{Reason: l.words(by)}
	case l.booked(pod) && !l.stale(pod.Name, by):
		at, _ := l.entry(pod.Name)
		age := l.now.Sub(at)
		return Decision{Allowed: true, Recent: age >= 0 && age < overTime, Reason: "booked already"}
	case l.booked(pod):
		l.renew(pod, by)
		return Decision{Allowed: true, Renewed: true, Reason: "booked already"}
	case len(s.DisruptedPods)+len(s.UnavailablePods) >= MaxBookings:
		return Decision{Reason: fmt.Sprintf("%s: too many disruptions (%d) are not confirmed yet",
			l.words(by), MaxBookings)}
	case s.UnavailableAllowed <= 0:
		return Decision{Reason: l.words(by)}
	}
	l.status.UnavailableAllowed--
	l.status.CurrentAvailable--
	l.enter(pod, by)
	return Decision{Allowed: true, Booked: true, Reason: "booked"}
}

// booked tells whether this very pod is booked, not a former one of its name. Bookings that others made may
// have no UID: a pod that came in the second of such a booking is booked again, which allows less for a
// moment and never more.
func (l *Ledger) booked(pod *corev1.Pod) bool {
	at, found := l.entry(pod.Name)
	if uid := l.status.BookedPods[pod.Name]; uid != "" {
		return found && pod.UID == uid
	}
	return found && pod.CreationTimestamp.Time.Before(at)
}

func (l *Ledger) entry(name string) (time.Time, bool) {
	if at, found := l.status.DisruptedPods[name]; found {
		return at.Time, true
	}
	at, found := l.status.UnavailablePods[name]
	return at.Time, found
}

// deletes tells whether the operation removes the pod.
func deletes(by disruption.Operation) bool {
	return by == policyv1beta1.Delete || by == policyv1beta1.Evict
}

// stale tells whether a booking is half over, or too short for a deletion: what is allowed now may be done
// later than it ends.
func (l *Ledger) stale(name string, by disruption.Operation) bool {
	if at, found := l.status.DisruptedPods[name]; found {
		return firstseen.HalfOver(at.Time, deletionTime, l.now)
	}
	return deletes(by) || firstseen.HalfOver(l.status.UnavailablePods[name].Time, updateTime, l.now)
}

// renew begins the life of a booking again, which stays one of a deletion if it is one.
func (l *Ledger) renew(pod *corev1.Pod, by disruption.Operation) {
	if _, disrupted := l.status.DisruptedPods[pod.Name]; disrupted {
		by = policyv1beta1.Delete
	}
	l.enter(pod, by)
}

// enter notes the pod in the map of the operation alone. Its booking is dated after its creation, so that a
// manager that knows no UIDs takes it for one of this pod: the clock here may be behind that of the API
// server.
func (l *Ledger) enter(pod *corev1.Pod, by disruption.Operation) {
	into, other := &l.status.UnavailablePods, l.status.DisruptedPods
	if deletes(by) {
		into, other = &l.status.DisruptedPods, l.status.UnavailablePods
	}
	if *into == nil {
		*into = map[string]metav1.Time{}
	}
	at := l.now.Truncate(time.Second)
	if born := pod.CreationTimestamp.Time; !at.After(born) {
		at = born.Truncate(time.Second).Add(time.Second)
	}
	(*into)[pod.Name] = metav1.NewTime(at)
	delete(other, pod.Name)
	if l.status.BookedPods == nil {
		l.status.BookedPods = map[string]types.UID{}
	}
	l.status.BookedPods[pod.Name] = pod.UID
	l.changed = true
}

// words say that the budget allows no more, with its numbers.
func (l *Ledger) words(by disruption.Operation) string {
	return Refusal(l.rules.Budget.Name, by, &l.status)
}

// Refusal says that a budget with these numbers allows no such operation.
func Refusal(name string, by disruption.Operation, s *policyv1beta1.PodUnavailableBudgetStatus) string {
	return fmt.Sprintf(
		"PodUnavailableBudget %s allows %d more %s: %d of %d pods must stay in service, and %d do", name,
		s.UnavailableAllowed, by, s.DesiredAvailable, s.TotalReplicas, s.CurrentAvailable)
}
