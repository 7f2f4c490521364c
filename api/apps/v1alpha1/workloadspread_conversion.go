package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/afloat-project/afloat/api/apps/v1beta1"
)

// Conversion of WorkloadSpreads (WS-180 to WS-183): other names of the node selectors, and the standard condition, which requires a
// reason and a time.

// unknownReason stands for the reason that a condition lacks (WS-182).
const unknownReason = "Unknown"

// ToV1beta1 returns the WorkloadSpread in the v1beta1 form. It does not modify in.
func (in *WorkloadSpread) ToV1beta1() *v1beta1.WorkloadSpread {
	in = in.DeepCopy()
	up := func(from WorkloadSpreadSubsetCondition) metav1.Condition {
		to := metav1.Condition{Type: string(from.Type), Status: metav1.ConditionStatus(from.Status), Reason: from.Reason,
			Message:            from.Message,
			LastTransitionTime: from.LastTransitionTime}
		if to.Reason == "" {
			to.Reason = unknownReason
		}
		if to.LastTransitionTime.IsZero() {
			to.LastTransitionTime = in.CreationTimestamp
		}
		return to
	}
	statuses := func(from []WorkloadSpreadSubsetStatus) []v1beta1.WorkloadSpreadSubsetStatus {
		return each(from, func(s WorkloadSpreadSubsetStatus) v1beta1.WorkloadSpreadSubsetStatus {
			return v1beta1.WorkloadSpreadSubsetStatus{Name: s.Name, WorkloadSpreadSubsetCounters: s.WorkloadSpreadSubsetCounters,
				Conditions: each(s.Conditions, up)}
		})
	}
	return &v1beta1.WorkloadSpread{ObjectMeta: in.ObjectMeta,
		Spec: v1beta1.WorkloadSpreadSpec{WorkloadSpreadTarget: in.Spec.WorkloadSpreadTarget,
			Subsets: each(in.Spec.Subsets, func(s WorkloadSpreadSubset) v1beta1.WorkloadSpreadSubset {
				return v1beta1.WorkloadSpreadSubset{Name: s.Name, RequiredNodeSelector: s.RequiredNodeSelectorTerm,
					PreferredNodeSelector: s.PreferredNodeSelectorTerms, WorkloadSpreadSubsetRest: s.WorkloadSpreadSubsetRest}
			})},
		Status: v1beta1.WorkloadSpreadStatus{ObservedGeneration: in.Status.ObservedGeneration,
			SubsetStatuses:          statuses(in.Status.SubsetStatuses),
			VersionedSubsetStatuses: eachValue(in.Status.VersionedSubsetStatuses, statuses)}}
}

// WorkloadSpreadFromV1beta1 returns the WorkloadSpread in the v1alpha1 form. It does not modify in.
func WorkloadSpreadFromV1beta1(in *v1beta1.WorkloadSpread) *WorkloadSpread {
	in = in.DeepCopy()
	down := func(from metav1.Condition) WorkloadSpreadSubsetCondition {
		return WorkloadSpreadSubsetCondition{Type: v1beta1.WorkloadSpreadSubsetConditionType(from.Type),
			Status:             corev1.ConditionStatus(from.Status),
			LastTransitionTime: from.LastTransitionTime, Reason: from.Reason, Message: from.Message}
	}
	statuses := func(from []v1beta1.WorkloadSpreadSubsetStatus) []WorkloadSpreadSubsetStatus {
		return each(from, func(s v1beta1.WorkloadSpreadSubsetStatus) WorkloadSpreadSubsetStatus {
			return WorkloadSpreadSubsetStatus{Name: s.Name, WorkloadSpreadSubsetCounters: s.WorkloadSpreadSubsetCounters,
				Conditions: each(s.Conditions, down)}
		})
	}
	return &WorkloadSpread{ObjectMeta: in.ObjectMeta,
		Spec: WorkloadSpreadSpec{WorkloadSpreadTarget: in.Spec.WorkloadSpreadTarget,
			Subsets: each(in.Spec.Subsets, func(s v1beta1.WorkloadSpreadSubset) WorkloadSpreadSubset {
				return WorkloadSpreadSubset{Name: s.Name, RequiredNodeSelectorTerm: s.RequiredNodeSelector,
					PreferredNodeSelectorTerms: s.PreferredNodeSelector, WorkloadSpreadSubsetRest: s.WorkloadSpreadSubsetRest}
			})},
		Status: WorkloadSpreadStatus{ObservedGeneration: in.Status.ObservedGeneration, SubsetStatuses: statuses(in.Status.SubsetStatuses),
			VersionedSubsetStatuses: eachValue(in.Status.VersionedSubsetStatuses, statuses)}}
}

// each converts the items of a list; nil stays nil.
func each[From, To any](from []From, convert func(From) To) []To {
	if from == nil {
		return nil
	}
	to := make([]To, len(from))
	for i := range from {
		to[i] = convert(from[i])
	}
	return to
}

// eachValue converts the values of a map; nil stays nil.
func eachValue[From, To any](from map[string]From, convert func(From) To) map[string]To {
	if from == nil {
		return nil
	}
	to := make(map[string]To, len(from))
	for key := range from {
		to[key] = convert(from[key])
	}
	return to
}
