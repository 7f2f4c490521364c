package uniteddeployment

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/readiness"
	"github.com/afloat-project/afloat/internal/engine/wording"
)

// Reasons of the condition Schedulable of subsets (UD-095, UD-117, UD-118).
const (
	ReasonRecover    = "recover"
	ReasonReschedule = "reschedule"
	ReasonCreated    = "created"
)

// moment is added to the end of a period, so that it is certainly over.
const moment = time.Millisecond

// leastWindow is the shortest time for which a subset is passed over. The end of each window is written, and
// pods of a minimum may stay pending forever.
const leastWindow = 30 * time.Second

// adaptive holds the effective options of the strategy.
type adaptive struct {
	adaptive, reserve  bool
	critical, duration time.Duration
}

func options(united *appsv1beta1.UnitedDeployment) adaptive {
	strategy := &united.Spec.Topology.ScheduleStrategy
	if strategy.Type != appsv1beta1.AdaptiveUnitedDeploymentScheduleStrategyType {
		return adaptive{}
	}

	o := adaptive{adaptive: true, critical: 30 * time.Second, duration: 300 * time.Second}
	given := strategy.Adaptive
	if given == nil {
		return o
	}

	o.reserve = given.ReserveUnschedulablePods
	if given.RescheduleCriticalSeconds != nil {
		o.critical = time.Duration(max(*given.RescheduleCriticalSeconds, 0)) * time.Second
	}
	if seconds := cmp.Or(given.UnschedulableDuration, given.UnschedulableLastSeconds); seconds != nil {
		o.duration = time.Duration(max(*seconds, 0)) * time.Second
	}

	return o
}

// Adaptive reports whether pods that cannot be scheduled move to other subsets.
func Adaptive(united *appsv1beta1.UnitedDeployment) bool { return options(united).adaptive }

// unscheduled reports whether a pod has waited too long for a node. If that may still happen, it also returns
// when to look again.
func unscheduled(pod *corev1.Pod, patience time.Duration, now time.Time) (timedOut bool, again time.Time) {
	if pod.Spec.NodeName != "" || pod.Status.Phase != corev1.PodPending && pod.Status.Phase != "" {
		return false, time.Time{}
	}
	end := pod.CreationTimestamp.Add(patience)
	if !now.After(end) {
		return false, end.Add(moment)
	}
	c := readiness.Condition(pod, corev1.PodScheduled)
	return c != nil && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable,
		time.Time{}
}

// statusOf returns the status of a subset, or nil if there is none.
func statusOf(united *appsv1beta1.UnitedDeployment, name string) *appsv1beta1.UnitedDeploymentSubsetStatus {
	return statusIn(united.Status.SubsetStatuses, name)
}

// schedulable returns a copy of the stored condition Schedulable, or nil if there is none.
func schedulable(
	entry *appsv1beta1.UnitedDeploymentSubsetStatus,
) *appsv1beta1.UnitedDeploymentSubsetCondition {
	if entry == nil {
		return nil
	}
	for i := range entry.Conditions {
		if c := &entry.Conditions[i]; c.Type == appsv1beta1.UnitedDeploymentSubsetSchedulable {
			return c.DeepCopy()
		}
	}
	return nil
}

func isFalse(c *appsv1beta1.UnitedDeploymentSubsetCondition) bool {
	return c != nil && c.Status == corev1.ConditionFalse
}

// set sets the condition of the subset. Its time is that of the last change of its status, rounded up, since
// the API keeps whole seconds and a window would otherwise end too early.
func (v *Verdict) set(now time.Time, status corev1.ConditionStatus, reason, message string) {
	next := &appsv1beta1.UnitedDeploymentSubsetCondition{Type: appsv1beta1.UnitedDeploymentSubsetSchedulable,
		Status: status, Reason: reason, Message: message,
		LastTransitionTime: metav1.NewTime(now.Add(time.Second - time.Nanosecond).Truncate(time.Second))}
	if old := v.condition; old != nil && old.Status == status {
		next.LastTransitionTime = old.LastTransitionTime
		if old.Reason == reason {
			return
		}
	}
	v.condition = next
}

// adapt distributes replicas so that subsets with unschedulable pods get no more pods for a while.
func (p *Plan) adapt(s *Snapshot, o adaptive, replicas int32) []int32 {
	o.duration = max(o.duration, leastWindow)
	own, narrowed := make([]Bounds, len(p.Subsets)), make([]Bounds, len(p.Subsets))
	for i := range p.Subsets {
		v := &p.Subsets[i]
		own[i], narrowed[i] = v.bounds, v.bounds
		v.condition = schedulable(statusOf(s.United, v.Subset.Name))
		if v.Child == nil || v.Action == Adopt {
			continue
		}
		if c := v.condition; isFalse(c) {
			if end := c.LastTransitionTime.Add(o.duration); s.Now.Before(end) &&
				!c.LastTransitionTime.After(s.Now.Add(time.Minute)) {
				v.Passed, v.Until = true, end
			} else {
				v.condition = nil
				v.set(s.Now, corev1.ConditionTrue, ReasonRecover, "")
			}
		}

		stuck := p.stuck(s, v, o)
		if stuck > 0 {
			v.Passed = true
			if !isFalse(v.condition) {
				v.set(s.Now, corev1.ConditionFalse, ReasonReschedule,
					fmt.Sprintf("%s could not be scheduled for %s; the subset gets no more for %s",
						wording.Count(stuck, "pod"), o.critical, o.duration))
			}
			v.Until = v.condition.LastTransitionTime.Add(o.duration)
		}

		if v.Passed {
			p.again(s, v.Until.Add(moment))
			v.wait("it is passed over until %s, because pods could not be scheduled",
				v.Until.UTC().Format(time.TimeOnly))
		}
		narrowed[i] = Narrow(v.bounds, v.Passed, v.settled(stuck))
	}

	return Adapt(own, narrowed, replicas)
}

// settled returns how many replicas a subset keeps whatever happens to the others: all but those that have
// waited too long for a node. Pods that are starting, or being recreated by a rolling update, keep their
// place although they are not ready. Pods that cannot be created have none.
func (v *Verdict) settled(stuck int) int32 {
	there := v.There
	if v.Child.Failure == "" {
		there = max(there, int(v.Child.Replicas))
	}
	return max(min(v.Child.Replicas, int32(there-stuck)), 0)
}

// stuck returns how many pods of the subset have waited too long for a node.
func (p *Plan) stuck(s *Snapshot, v *Verdict, o adaptive) (stuck int) {
	for _, pod := range v.pods {
		timedOut, again := unscheduled(pod, o.critical, s.Now)
		if timedOut && v.Child.Ready < v.Child.Total {
			stuck++
		}
		if !again.IsZero() {
			p.again(s, again)
		}
	}
	return stuck
}

// reserve distributes replicas so that pods that cannot be scheduled stay, and have substitutes.
func (p *Plan) reserve(s *Snapshot, o adaptive, replicas int32) []int32 {
	rooms := make([]Room, len(p.Subsets))
	for i := range p.Subsets {
		v := &p.Subsets[i]
		entry := statusOf(s.United, v.Subset.Name)
		v.condition = schedulable(entry)
		v.marked = isFalse(v.condition)
		rooms[i] = Room{Bounds: v.bounds, Capacity: Unbounded, Keep: -1}
		if v.Child == nil || v.Action == Adopt {
			if v.Child == nil && entry == nil && len(s.United.Status.SubsetStatuses) > 0 {
				v.set(s.Now, corev1.ConditionFalse, ReasonCreated, "its first pods have to prove healthy")
				v.marked = true
			}
			if v.marked {
				rooms[i].Capacity = 0
			}
			continue
		}

		for _, pod := range v.pods {
			p.judge(s, v, o, pod)
		}

		missing := max(v.Child.Replicas-int32(v.There), 0)
		switch {
		case v.Reserved > 0:
			v.set(s.Now, corev1.ConditionFalse, ReasonReschedule,
				"some pods are reserved, and have substitutes elsewhere")
			v.wait("%s reserved: substitutes go when they have been ready for %s",
				wording.Count(v.Reserved, "pod"), o.duration)
			rooms[i].Keep = v.Child.Replicas
		case !v.marked || missing == 0:
			v.set(s.Now, corev1.ConditionTrue, ReasonReschedule, "")
		}

		if v.marked || v.Reserved > 0 {
			rooms[i].Capacity = v.Child.Replicas - int32(v.Reserved)
		}
		if v.marked {
			rooms[i].Capacity -= missing
		}
	}

	return Reserve(rooms, replicas)
}

// judge decides whether a pod is reserved.
func (p *Plan) judge(s *Snapshot, v *Verdict, o adaptive, pod *corev1.Pod) {
	label, ready := pod.Labels[ReservedPod], readiness.Ready(pod)
	asWanted := pod.Labels[RevisionHash] == p.label || p.kept(s, v)
	proof := time.Time{}
	if c := readiness.Condition(pod, corev1.PodReady); ready && asWanted && c != nil {
		proof = c.LastTransitionTime.Add(o.duration)
	}
	reserved := label == "true" || label != "false" && v.marked

	switch {
	case reserved && !proof.IsZero() && s.Now.After(proof):
		reserved = false
	case reserved && !proof.IsZero():
		p.again(s, proof.Add(moment))
	case !reserved:
		timedOut, again := unscheduled(pod, o.critical, s.Now)
		reserved = timedOut || !asWanted && !ready && p.stalled(s, o)
		if !again.IsZero() {
			p.again(s, again)
		}
	}

	if reserved {
		if v.Reserved++; !ready {
			v.unready++
		}
	}
	if want := strconv.FormatBool(reserved); label != want {
		p.Marks = append(p.Marks, Mark{pod, reserved})
	}
}

// kept reports whether the partition keeps all pods of the subset that are of an older revision.
func (p *Plan) kept(s *Snapshot, v *Verdict) bool {
	manual := s.United.Spec.UpdateStrategy.ManualUpdate
	return manual != nil && p.Template.Kind.partitioned() &&
		v.There-v.Updated <= int(manual.Partitions[v.Subset.Name])
}

// stalled reports whether the rollout has been in progress for too long.
func (p *Plan) stalled(s *Snapshot, o adaptive) bool {
	for i := range s.United.Status.Conditions {
		c := &s.United.Status.Conditions[i]
		if c.Type != appsv1beta1.UnitedDeploymentUpdated || c.Status != corev1.ConditionFalse {
			continue
		}
		end := c.LastTransitionTime.Add(o.critical)
		if s.Now.After(end) {
			return true
		}
		p.again(s, end.Add(moment))
	}
	return false
}

// prove keeps substitutes until the new pods of a subset that has just recovered have proved healthy.
func (p *Plan) prove(s *Snapshot) {
	for i := range p.Subsets {
		v := &p.Subsets[i]
		if v.marked && v.Reserved == 0 && v.Child != nil && v.Action != Adopt &&
			v.Wanted.Replicas > v.Child.Replicas {
			v.condition = schedulable(statusOf(s.United, v.Subset.Name))
			v.set(s.Now, corev1.ConditionFalse, ReasonReschedule, "new pods have to prove healthy")
		}
	}
}

// room returns the maxUnavailable of a child that keeps a rolling update from stalling because of reserved
// pods: that of the template, plus the number of reserved pods that are not ready. It returns nil for
// children that have no maxUnavailable.
func (p *Plan) room(v *Verdict) *intstr.IntOrString {
	kind := p.Template.Kind
	spec, _ := p.Template.Document["spec"].(map[string]any)
	strategy, _ := spec[kind.strategy()].(map[string]any)
	if v.Child == nil || kind != CloneSet && kind != Deployment || strategy["type"] == "Recreate" {
		return nil
	}

	own := intstr.FromString("20%")
	if kind == Deployment {
		own = intstr.FromString("25%")
	}
	rolling, _ := strategy["rollingUpdate"].(map[string]any)
	switch given := rolling["maxUnavailable"].(type) {
	case int64:
		own = intstr.FromInt32(int32(min(max(given, 0), int64(Unbounded))))
	case string:
		own = intstr.FromString(given)
	}
	if v.unready == 0 || v.Updated == v.There {
		return &own
	}

	absolute, err := intstr.GetScaledValueFromIntOrPercent(&own, int(v.Wanted.Replicas), kind == CloneSet)
	if err != nil {
		return &own // the admission of the child rejects it
	}

	own = intstr.FromInt32(int32(max(absolute, 0) + v.unready))
	return &own
}

// ordinalOf returns the number at the end of a pod's name.
func ordinalOf(pod string) (int, bool) {
	n, err := strconv.ParseUint(pod[strings.LastIndexByte(pod, '-')+1:], 10, 31)
	return int(n), err == nil
}
