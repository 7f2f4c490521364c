package workloadspread

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/readiness"
	"github.com/afloat-project/afloat/internal/engine/wording"
)

// Reasons of condition Schedulable (WS-179).
const (
	ReasonSufficient    = "Sufficient"
	ReasonUnschedulable = "PodUnschedulable"
)

// Critical returns how long a pod may stay unschedulable before it is rescheduled, and false if the
// WorkloadSpread does not reschedule pods (WS-170).
func Critical(spread *appsv1beta1.WorkloadSpread) (time.Duration, bool) {
	s := spread.Spec.ScheduleStrategy
	if s.Type != appsv1beta1.AdaptiveWorkloadSpreadScheduleStrategyType || s.Adaptive == nil ||
		s.Adaptive.RescheduleCriticalSeconds == nil ||
		*s.Adaptive.RescheduleCriticalSeconds <= 0 {
		return 0, false
	}
	return time.Duration(*s.Adaptive.RescheduleCriticalSeconds) * time.Second, true
}

// unscheduled reports whether a pod has waited too long for a node. If that may still happen, it also returns
// when to look again.
func unscheduled(pod *corev1.Pod, patience time.Duration, now time.Time) (timedOut bool, again time.Time) {
	if !readiness.Active(pod) || pod.Spec.NodeName != "" ||
		pod.Status.Phase != corev1.PodPending && pod.Status.Phase != "" {
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

// nextCondition returns the condition Schedulable that a subset should have when stuck pods have waited too
// long for a node. recovered reports that the subset was passed over and no longer is. until is the end of
// the window in which it is passed over.
func nextCondition(
	old *metav1.Condition, last bool, stuck int, patience, window time.Duration, now time.Time,
) (c metav1.Condition, recovered bool, until time.Time) {
	c = metav1.Condition{Type: string(appsv1beta1.SubsetSchedulable), Status: metav1.ConditionTrue,
		Reason: ReasonSufficient, LastTransitionTime: metav1.NewTime(now.Truncate(time.Second))}
	was := old != nil && old.Status == metav1.ConditionFalse
	passed := was && now.Before(old.LastTransitionTime.Add(window)) &&
		!old.LastTransitionTime.After(now.Add(clockSkew))
	if last {
		stuck = 0
	}

	switch {
	case was && !last && (stuck > 0 || passed):
		c = *old
		c.Reason = ReasonUnschedulable
		if until = old.LastTransitionTime.Add(window); !passed {
			until = time.Time{} // the pods' own deadlines are waited for
		}
		return c, false, until
	case stuck > 0:
		// The API keeps whole seconds. Rounded down, the window would end too early.
		at := now.Add(time.Second - time.Nanosecond).Truncate(time.Second)
		c.Status, c.Reason, c.LastTransitionTime = metav1.ConditionFalse, ReasonUnschedulable,
			metav1.NewTime(at)
		c.Message = fmt.Sprintf(
			"%s could not be scheduled for %s; new pods are put into other subsets for %s",
			wording.Count(stuck, "pod"), patience, window)
		return c, false, at.Add(window)
	case old != nil && old.Status == metav1.ConditionTrue:
		c.LastTransitionTime = old.LastTransitionTime
	}

	return c, was, time.Time{}
}

// Schedulable returns the condition Schedulable of a subset, or nil if there is none.
func Schedulable(status *appsv1beta1.WorkloadSpreadSubsetStatus) *metav1.Condition {
	if status == nil {
		return nil
	}
	return meta.FindStatusCondition(status.Conditions, string(appsv1beta1.SubsetSchedulable))
}

// withCondition returns a copy of conditions in which c replaces the condition Schedulable. A nil c removes
// it.
func withCondition(conditions []metav1.Condition, c *metav1.Condition) []metav1.Condition {
	var changed []metav1.Condition
	for i := range conditions {
		if conditions[i].Type != string(appsv1beta1.SubsetSchedulable) {
			changed = append(changed, conditions[i])
		}
	}
	if c != nil {
		changed = append(changed, *c)
	}
	return changed
}
