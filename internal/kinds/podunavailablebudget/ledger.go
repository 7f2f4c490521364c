package podunavailablebudget

import (
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	policyv1beta1 "github.com/afloat-project/afloat/api/policy/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/disruption"
	"github.com/afloat-project/afloat/internal/engine/firstseen"
)

// MaxBookings is the most pods that both maps of a budget hold together (PUB-064).
const MaxBookings = 2000

// maxFree is how many of these there are at most when a pod that is out of service is booked. The rest is for pods in
// service, which may not go without a booking.
const maxFree = MaxBookings / 2

// MaxBudgets is the most budgets that a namespace may have (PUB-142).
const MaxBudgets = 1000

// How long bookings of pods that do not leave service count. A booking stays for at least 5 s, even if the
// pod is seen to have left service, since the caches of another manager that counts next may not show that
// yet. settleTime is longer, since the time that is written may be up to a second before that of the booking.
const (
	deletionTime = 20 * time.Second
	updateTime   = 10 * time.Second
	settleTime   = 6 * time.Second
	// overTime is how long a booking stays at least after its update is complete. Two updates may begin
	// within the same second, and their times have no finer resolution. It is 2 s, and one more as settleTime.
	overTime = 3 * time.Second
)

// maxRenewals is how often the life of a booking begins anew. A disruption that was allowed for so long and never happened,
// because somebody else refuses it, must not keep the other pods from theirs for ever.
const maxRenewals = 6

// Ledger is the status of a budget while pods are booked in it.
type Ledger struct {
	rules   *Rules
	status  policyv1beta1.PodUnavailableBudgetStatus
	options Options
	now     time.Time
	// changed reports that there is something to write, and charged that the numbers are part of it.
	changed, charged bool
}

// NewLedger returns the ledger of a budget. It does not change the budget.
func NewLedger(rules *Rules, options Options, now time.Time) *Ledger {
	l := &Ledger{rules: rules, status: rules.Budget.Status, options: options, now: now}
	l.status.DisruptedPods, l.status.UnavailablePods = maps.Clone(l.status.DisruptedPods),
		maps.Clone(l.status.UnavailablePods)
	l.status.BookedPods = maps.Clone(l.status.BookedPods)
	l.heedTime()
	return l
}

// heedTime raises the number of pods that must stay if a window opened, ended or changed since they were
// counted. It does not rely on the controller, which may be down.
func (l *Ledger) heedTime() {
	s := &l.status
	if s.TotalReplicas == 0 { // nothing need stay, or it depends on pods how many must
		return
	}
	desired, _, _, err := l.rules.Number(s.TotalReplicas, l.now)
	if err == nil && desired > s.DesiredAvailable {
		s.DesiredAvailable, s.UnavailableAllowed = desired, max(s.CurrentAvailable-desired, 0)
	}
}

// Changes returns the fields of the status that bookings changed, as a JSON merge patch, or nil if there is
// nothing to write.
func (l *Ledger) Changes() map[string]any {
	if !l.changed {
		return nil
	}
	before := &l.rules.Budget.Status
	changes := map[string]any{
		"disruptedPods":   difference(before.DisruptedPods, l.status.DisruptedPods),
		"unavailablePods": difference(before.UnavailablePods, l.status.UnavailablePods),
		"bookedPods":      difference(before.BookedPods, l.status.BookedPods)}
	if l.charged {
		changes["unavailableAllowed"], changes["currentAvailable"] = l.status.UnavailableAllowed, l.status.CurrentAvailable
	}
	return changes
}

// difference returns the entries to be set, and nil for those to be removed.
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

// Decision is the answer to a request to disrupt a pod.
type Decision struct {
	Allowed bool
	// Booked reports that the pod was newly booked, so that one pod fewer may go. Renewed reports that the
	// life of its booking starts without charge: again, or for a pod that is out of service.
	Booked, Renewed bool
	// Free reports that the pod is out of service, so that it may be disrupted whether it is booked or not, and whatever
	// other managers have counted.
	Free bool
	// Pending reports that the pods of the budget are not counted yet, so that a retry soon may succeed.
	Pending bool
	// Reason explains the decision in words.
	Reason string
}

// Book decides whether a pod may be disrupted, and books it if that is needed. The first rule that applies
// decides (PUB-086 to PUB-089).
func (l *Ledger) Book(pod *corev1.Pod, by disruption.Operation) Decision {
	allowed := func(format string, args ...any) Decision {
		return Decision{Allowed: true, Reason: fmt.Sprintf(format, args...)}
	}
	why, free := Free(pod, l.now)
	if free && !MayServeAgain(pod, by) {
		return allowed("%s", why)
	}

	_, renewals, unpaid := parse(l.status.BookedPods[pod.Name])
	booked := l.booked(pod) && !unpaid
	switch s, budget := &l.status, l.rules.Budget; {
	case l.rules.Ignores(pod):
		return allowed("ignoredPodSelector selects the pod")
	case !l.rules.Protects(by, l.options):
		return allowed("%s is not protected", by)
	case free:
		return l.note(pod, by, why)
	case s.ObservedGeneration < budget.Generation:
		return Decision{Pending: true,
			Reason: fmt.Sprintf("PodUnavailableBudget %s allows no %s before its pods are counted",
				budget.Name, by)}
	case s.DesiredAvailable == 0:
		return allowed("no pod need stay in service")
	// The numbers have changed since the booking, and the pod is not among those in service.
	case booked && s.CurrentAvailable < s.DesiredAvailable:
		return Decision{Reason: l.words(by)}
	case booked && l.used(pod):
		// What was booked has happened, and the booking may be ending. It begins anew in a write, which whoever ends it will notice.
		l.enter(pod, by, 0, false)
		return Decision{Allowed: true, Renewed: true, Reason: "booked already"}
	case booked && !l.stale(pod.Name, by):
		return Decision{Allowed: true, Reason: "booked already"}
	case booked && renewals >= maxRenewals:
		return Decision{Reason: fmt.Sprintf("%s: pod %s was allowed to go %d times and did not", l.words(by), pod.Name, renewals+1)}
	case booked:
		l.enter(pod, by, renewals+1, false)
		return Decision{Allowed: true, Renewed: true, Reason: "booked already"}
	case len(s.DisruptedPods)+len(s.UnavailablePods) >= MaxBookings:
		return Decision{Reason: fmt.Sprintf("%s: too many disruptions (%d) are not confirmed yet",
			l.words(by), MaxBookings)}
	case s.UnavailableAllowed <= 0:
		return Decision{Reason: l.words(by)}
	}
	l.status.UnavailableAllowed--
	l.status.CurrentAvailable--
	l.charged = true
	l.enter(pod, by, 0, false)
	return Decision{Allowed: true, Booked: true, Reason: "booked"}
}

// note books a pod that is out of service, without charge. It is allowed in any case.
func (l *Ledger) note(pod *corev1.Pod, by disruption.Operation, why string) Decision {
	s := &l.status
	needless := s.DesiredAvailable == 0 && s.ObservedGeneration >= l.rules.Budget.Generation
	renewals, unpaid := 0, true
	if l.booked(pod) {
		_, renewals, unpaid = parse(s.BookedPods[pod.Name])
		needless = needless || !l.stale(pod.Name, by)
	} else {
		needless = needless || len(s.DisruptedPods)+len(s.UnavailablePods) >= maxFree
	}
	if needless {
		return Decision{Allowed: true, Free: true, Reason: why}
	}
	l.enter(pod, by, renewals, unpaid)
	return Decision{Allowed: true, Free: true, Renewed: true, Reason: why}
}

// booked reports whether this very pod is booked, not an earlier one of its name. Bookings of other managers
// may lack the UID. A pod created in the second of such a booking is booked again, which allows less for a
// moment, and never more.
func (l *Ledger) booked(pod *corev1.Pod) bool {
	at, found := l.entry(pod.Name)
	if uid := l.status.BookedPods[pod.Name]; uid != "" {
		return found && pod.UID == PodOf(uid)
	}
	return found && pod.CreationTimestamp.Time.Before(at)
}

// uncharged follows the UID of a pod that was out of service when it was booked, until the pods are counted while it is
// back in service. Before, it may be among those that were last counted as in service. If it is back, it must not go
// beside another one that took its place, so that it is charged as if it were not booked.
const uncharged = "uncharged"

// parse reads what a budget says of a booked pod: its UID, how often its booking was renewed, and whether it is uncharged.
// The parts are separated by slashes.
func parse(booking types.UID) (uid types.UID, renewals int, unpaid bool) {
	parts := strings.Split(string(booking), "/")
	for _, part := range parts[1:] {
		if part == uncharged {
			unpaid = true
		} else if n, err := strconv.Atoi(part); err == nil {
			renewals = n
		}
	}
	return types.UID(parts[0]), renewals, unpaid
}

// PodOf returns the UID of the pod of a booking.
func PodOf(booking types.UID) types.UID {
	uid, _, _ := parse(booking)
	return uid
}

// bookingOf returns what a budget says of a booked pod.
func bookingOf(uid types.UID, renewals int, unpaid bool) types.UID {
	if renewals > 0 {
		uid += types.UID("/" + strconv.Itoa(renewals))
	}
	if unpaid {
		uid += "/" + uncharged
	}
	return uid
}

func (l *Ledger) entry(name string) (time.Time, bool) {
	if at, found := l.status.DisruptedPods[name]; found {
		return at.Time, true
	}
	at, found := l.status.UnavailablePods[name]
	return at.Time, found
}

// deletes reports whether the operation removes the pod.
func deletes(by disruption.Operation) bool {
	return by == policyv1beta1.Delete || by == policyv1beta1.Evict
}

// stale reports whether a booking is half over, or too short for a deletion, so that it might end before the
// disruption happens.
func (l *Ledger) stale(name string, by disruption.Operation) bool {
	if at, found := l.status.DisruptedPods[name]; found {
		return firstseen.HalfOver(at.Time, deletionTime, l.now)
	}
	return deletes(by) || firstseen.HalfOver(l.status.UnavailablePods[name].Time, updateTime, l.now)
}

// used reports whether the pod was updated after an update of it was booked.
func (l *Ledger) used(pod *corev1.Pod) bool {
	at, found := l.status.UnavailablePods[pod.Name]
	return found && updated(pod, at.Time)
}

// enter records the pod in the map of the operation, and removes it from the other one. A booking of a deletion remains
// one. The clock here may be behind others, so that the booking is dated after the creation of the pod, since a manager
// that does not know the UID must take it for one of this pod, and after its last update, which is not the one that is
// booked. The date differs from the one before, by which others see that the life of the booking begins anew.
func (l *Ledger) enter(pod *corev1.Pod, by disruption.Operation, renewals int, unpaid bool) {
	into, other := &l.status.UnavailablePods, l.status.DisruptedPods
	if _, disrupted := other[pod.Name]; disrupted && l.booked(pod) || deletes(by) {
		into, other = &l.status.DisruptedPods, l.status.UnavailablePods
	}
	if *into == nil {
		*into = map[string]metav1.Time{}
	}
	at := l.now.Truncate(time.Second)
	if born := pod.CreationTimestamp.Time; !at.After(born) {
		at = born.Truncate(time.Second).Add(time.Second)
	}
	if last := lastUpdate(pod); !deletes(by) && !at.After(last) && last.Sub(at) < updateTime {
		at = last.Truncate(time.Second).Add(time.Second)
	}
	if was, found := l.entry(pod.Name); found && at.Equal(was) {
		at = at.Add(time.Second)
	}
	(*into)[pod.Name] = metav1.NewTime(at)
	delete(other, pod.Name)
	if l.status.BookedPods == nil {
		l.status.BookedPods = map[string]types.UID{}
	}
	l.status.BookedPods[pod.Name] = bookingOf(pod.UID, renewals, unpaid)
	l.changed = true
}

// words explains with numbers that the budget does not allow the operation.
func (l *Ledger) words(by disruption.Operation) string {
	return Refusal(l.rules.Budget.Name, by, &l.status)
}

// Refusal explains that a budget with these numbers does not allow the operation.
func Refusal(name string, by disruption.Operation, s *policyv1beta1.PodUnavailableBudgetStatus) string {
	return fmt.Sprintf(
		"PodUnavailableBudget %s allows %d more %s: %d of %d pods must stay in service, and %d do", name,
		s.UnavailableAllowed, by, s.DesiredAvailable, s.TotalReplicas, s.CurrentAvailable)
}
