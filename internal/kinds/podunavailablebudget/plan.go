package podunavailablebudget

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	policyv1beta1 "github.com/afloat-project/afloat/api/policy/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/firstseen"
	"github.com/afloat-project/afloat/internal/engine/inplace"
	"github.com/afloat-project/afloat/internal/engine/readiness"
	"github.com/afloat-project/afloat/internal/engine/timing"
	"github.com/afloat-project/afloat/internal/engine/wording"
	"github.com/afloat-project/afloat/internal/kinds/sidecarset"
)

var errNoNumber = errors.New("spec has neither maxUnavailable nor minAvailable")

// Workload is the topmost controller of some covered pods.
type Workload struct {
	Reference
	// Replicas is how many pods the workload should have, or nil if that is not known (PUB-042).
	Replicas *int32
	// Pods is how many covered, active pods the workload has.
	Pods int32
	// Doubt is why the workload could not be read, or empty.
	Doubt string
}

// words returns the name of the workload, and why it could not be read.
func (w *Workload) words() string {
	name := w.Kind + " " + w.Name
	if w.Doubt != "" {
		name += " (" + bounded(w.Doubt) + ")"
	}
	return name
}

// Snapshot is what the numbers of a budget are computed from.
type Snapshot struct {
	Rules *Rules
	// Pods are the pods that the budget covers (PUB-035, PUB-037), active or not. They must not be changed.
	Pods []*corev1.Pod
	// Workloads are the workloads that count: the target, or the owners of the pods that the selector
	// selects. Those that are gone or being deleted are left out (PUB-036, PUB-041).
	Workloads []Workload
	// Bare is the number of active pods without a controller, and Gone the number of active pods whose
	// workload is known to be gone.
	Bare, Gone int
	// Now is the time of the snapshot.
	Now time.Time
	// Seen records since when the counting manager knows the bookings; see [Note].
	Seen firstseen.Times
}

// The names of the two lists of bookings.
const deletions, updates = "deletions", "updates"

// Note returns since when the bookings of a budget are known, given what was known before. The life of a
// booking is counted from there, since the clock of the counting manager may be ahead of that of the booking
// one (PUB-061).
func Note(former firstseen.Times, budget *policyv1beta1.PodUnavailableBudget, now time.Time) firstseen.Times {
	seen := firstseen.Times{}
	seen.Note(former, deletions, budget.Status.DisruptedPods, now)
	seen.Note(former, updates, budget.Status.UnavailablePods, now)
	return seen
}

// Plan is the status that a budget should have, and what there is to report.
type Plan struct {
	Status policyv1beta1.PodUnavailableBudgetStatus
	// NotDeleted are the pods whose deletion was admitted but did not happen (PUB-061).
	NotDeleted []*corev1.Pod
	// Unknown are the workloads whose desired number of pods is not known (PUB-042).
	Unknown []string
	// NoPods reports that no pod is covered (PUB-111).
	NoPods bool
	// Window is the reason of the window that is in effect, or empty (PUB-140).
	Window string
	// Error is why the numbers cannot be computed, or empty (PUB-111).
	Error string
	// After is when to count again although nothing happens; 0 means not at all (PUB-063).
	After time.Duration
	// Why explains, by pod, why it is not in service, or how it is booked.
	Why map[string]string
}

// Make computes the status of a budget.
func Make(s Snapshot) *Plan {
	budget := s.Rules.Budget
	p := &Plan{Why: map[string]string{}}
	p.Status.ObservedGeneration = budget.Generation
	p.bookings(&s)

	active, bareOut := 0, 0
	for _, pod := range s.Pods {
		if !readiness.Active(pod) {
			continue
		}
		active++
		if p.Why[pod.Name] == "" { // it is not booked
			if why, _ := Why(pod, s.Now); why != "" {
				p.Why[pod.Name] = why
			}
		}

		switch {
		case p.Why[pod.Name] == "":
			p.Status.CurrentAvailable++
		case metav1.GetControllerOfNoCopy(pod) == nil:
			bareOut++
		}
	}

	p.NoPods = active == 0
	_, overridden := TotalOverride(budget)
	gone := active > 0 && s.Gone == active // whatever protectTotalReplicas says
	if p.total(&s); gone {
		p.Status.TotalReplicas = 0
	}

	desired, reason, until, err := s.Rules.Number(p.Status.TotalReplicas, s.Now)
	p.Window = reason
	timing.MinWaitUntil(&p.After, s.Now, until)

	switch {
	case err != nil: // no disruption is allowed until the numbers can be computed
		p.Error, desired = err.Error(), p.Status.TotalReplicas
	case p.Status.TotalReplicas > 0 || overridden && !gone:
	case s.Bare == 0:
		desired = 0
	case s.Bare < active:
		desired = min(desired, int32(max(s.Bare-bareOut, 0))) //nolint:gosec // there are fewer pods; nothing holds the others
	}

	p.Status.DesiredAvailable, p.Status.UsedBy = desired, p.usedBy()
	p.Status.UnavailableAllowed = max(p.Status.CurrentAvailable-desired, 0)
	return p
}

// bookings keeps the bookings that still count.
func (p *Plan) bookings(s *Snapshot) {
	pods := map[string]*corev1.Pod{}
	for _, pod := range s.Pods {
		if other := pods[pod.Name]; other == nil || !readiness.Active(other) {
			pods[pod.Name] = pod
		}
	}

	keep := func(list string, from map[string]metav1.Time, life time.Duration, words string,
		over func(*corev1.Pod, time.Time) bool,
		ended func(*corev1.Pod)) map[string]metav1.Time {
		var kept map[string]metav1.Time
		for name, at := range from {
			pod := pods[name]
			if pod != nil && another(pod, at, s.Rules.Budget) {
				continue
			}
			since := s.Seen.Since(list, name, at, s.Now)
			if at.Sub(s.Now) > life { // a clock jumped
				at = metav1.NewTime(s.Now.Truncate(time.Second))
				if pod != nil && at.Before(&pod.CreationTimestamp) {
					at = pod.CreationTimestamp
				}
				if since.After(at.Time) {
					since = at.Time
				}
			}

			left := pod == nil || !readiness.Active(pod)
			end := since.Add(life)
			switch {
			case left:
				end = since.Add(settleTime)
			case over != nil && over(pod, at.Time):
				end = since.Add(overTime)
			}

			if wait := end.Sub(s.Now); wait > 0 {
				if kept == nil {
					kept = map[string]metav1.Time{}
				}
				kept[name] = at
				if !left {
					p.Why[name] = words
				}
				timing.MinWait(&p.After, min(wait, life)) // a clock may be ahead
				continue
			}

			if !left && ended != nil {
				ended(pod)
			}
		}
		return kept
	}
	status := &s.Rules.Budget.Status
	p.Status.DisruptedPods = keep(deletions, status.DisruptedPods, deletionTime, "its deletion was admitted",
		nil, func(pod *corev1.Pod) {
			p.NotDeleted = append(p.NotDeleted, pod)
		})
	p.Status.UnavailablePods = keep(updates, status.UnavailablePods, updateTime, "its update was admitted",
		updated, nil)
	for name, uid := range status.BookedPods {
		_, deleted := p.Status.DisruptedPods[name]
		_, updated := p.Status.UnavailablePods[name]
		if deleted || updated {
			if p.Status.BookedPods == nil {
				p.Status.BookedPods = map[string]types.UID{}
			}
			if pod := pods[name]; pod != nil {
				if why, _ := Why(pod, s.Now); why == "" {
					pod, renewals, _ := parse(uid)
					uid = bookingOf(pod, renewals, false) // it is back, and not among those that are counted as in service
				}
			}
			p.Status.BookedPods[name] = uid
		}
	}

	slices.SortFunc(p.NotDeleted, func(a, b *corev1.Pod) int { return cmp.Compare(a.Name, b.Name) })
}

// updated reports whether the pod has the record of an update in place, or of a sidecar, that began after since.
// Why checks whether it is complete.
func updated(pod *corev1.Pod, since time.Time) bool { return !lastUpdate(pod).Before(since) }

// lastUpdate returns when the last update in place of the pod, or of a sidecar, began. It is zero if there was none.
func lastUpdate(pod *corev1.Pod) (last time.Time) {
	if state, err := inplace.StateOf(pod); err == nil && state != nil {
		last = state.UpdateTimestamp.Time
	}
	if states, err := sidecarset.ReadStates(pod.Annotations[pub.SidecarSetInPlaceUpdateState]); err == nil {
		for _, state := range states {
			if state.UpdateTimestamp.After(last) {
				last = state.UpdateTimestamp.Time
			}
		}
	}
	return last
}

// total computes how many pods are expected to exist.
func (p *Plan) total(s *Snapshot) {
	override, overridden := TotalOverride(s.Rules.Budget)
	sum := int64(0)
	for i := range s.Workloads {
		w := &s.Workloads[i]
		switch {
		case w.Replicas != nil:
			sum += int64(max(*w.Replicas, 0))
		default:
			sum += int64(w.Pods)
			if !overridden {
				p.Unknown = append(p.Unknown, w.words())
			}
		}
	}

	if overridden {
		sum = int64(override)
	}
	p.Status.TotalReplicas = int32(min(sum, 1<<31-1)) //nolint:gosec // bounded in this line
	slices.Sort(p.Unknown)
}

// another reports whether a booking is not of this pod, but of a former one of its name.
func another(pod *corev1.Pod, booked metav1.Time, budget *policyv1beta1.PodUnavailableBudget) bool {
	if booking := budget.Status.BookedPods[pod.Name]; booking != "" {
		return PodOf(booking) != pod.UID
	}
	return pod.CreationTimestamp.After(booked.Time)
}

// Overdue returns the covered pods whose bookings expire now, so that they would count as in service
// according to the caches (PUB-061, PUB-062). The caller reads them from the API server first, since caches
// may be stale for longer than a booking lives.
func Overdue(s *Snapshot) []*corev1.Pod {
	status := &s.Rules.Budget.Status
	var overdue []*corev1.Pod
	for _, pod := range s.Pods {
		at, found := status.DisruptedPods[pod.Name]
		life, list := deletionTime, deletions
		if !found {
			at, found = status.UnavailablePods[pod.Name]
			life, list = updateTime, updates
		}
		if !found || s.Now.Before(s.Seen.Since(list, pod.Name, at, s.Now).Add(life)) ||
			another(pod, at, s.Rules.Budget) || !readiness.Active(pod) {
			continue
		}
		if why, _ := Why(pod, s.Now); why == "" {
			overdue = append(overdue, pod)
		}
	}

	return overdue
}

// bounded truncates text whose length users control, such as an annotation that cannot be parsed.
func bounded(words string) string {
	const most = 100
	if len(words) <= most {
		return words
	}
	return strings.ToValidUTF8(words[:most], "") + "…"
}

// usedBy describes which pods use up the budget, and which window is open.
func (p *Plan) usedBy() string {
	const most = 5
	names := slices.Sorted(maps.Keys(p.Why))
	var parts []string
	for _, name := range names[:min(len(names), most)] {
		parts = append(parts, fmt.Sprintf("%s (%s)", name, bounded(p.Why[name])))
	}

	if more := len(names) - most; more > 0 {
		parts = append(parts, wording.Count(more, "more pod"))
	}
	if p.Window != "" {
		parts = append(parts, "window: "+p.Window)
	}

	return strings.Join(parts, ", ")
}
