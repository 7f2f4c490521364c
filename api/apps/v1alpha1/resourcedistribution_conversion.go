package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/afloat-project/afloat/api/apps/v1beta1"
)

// Conversion of ResourceDistributions (RD-110): the selector and the namespaces of conditions have other names.

// ToV1beta1 returns the ResourceDistribution in the v1beta1 form. It does not modify in.
func (in *ResourceDistribution) ToV1beta1() *v1beta1.ResourceDistribution {
	in = in.DeepCopy()
	return &v1beta1.ResourceDistribution{ObjectMeta: in.ObjectMeta,
		Spec: v1beta1.ResourceDistributionSpec{Resource: in.Spec.Resource, Targets: v1beta1.ResourceDistributionTargets{
			ResourceDistributionTargetLists: listsIfAny(in.Spec.Targets.ResourceDistributionTargetLists),
			NamespaceSelector:               selectorIfAny(in.Spec.Targets.NamespaceLabelSelector)}},
		Status: v1beta1.ResourceDistributionStatus{ResourceDistributionCounters: in.Status.ResourceDistributionCounters,
			Conditions: each(in.Status.Conditions, func(c ResourceDistributionCondition) v1beta1.ResourceDistributionCondition {
				return v1beta1.ResourceDistributionCondition{ResourceDistributionConditionState: c.ResourceDistributionConditionState,
					FailedNamespaces: c.FailedNamespace}
			})}}
}

// ResourceDistributionFromV1beta1 returns the ResourceDistribution in the v1alpha1 form. It does not modify in.
func ResourceDistributionFromV1beta1(in *v1beta1.ResourceDistribution) *ResourceDistribution {
	in = in.DeepCopy()
	return &ResourceDistribution{ObjectMeta: in.ObjectMeta,
		Spec: ResourceDistributionSpec{Resource: in.Spec.Resource, Targets: ResourceDistributionTargets{
			ResourceDistributionTargetLists: listsIfAny(in.Spec.Targets.ResourceDistributionTargetLists),
			NamespaceLabelSelector:          selectorIfAny(in.Spec.Targets.NamespaceSelector)}},
		Status: ResourceDistributionStatus{ResourceDistributionCounters: in.Status.ResourceDistributionCounters,
			Conditions: each(in.Status.Conditions, func(c v1beta1.ResourceDistributionCondition) ResourceDistributionCondition {
				return ResourceDistributionCondition{ResourceDistributionConditionState: c.ResourceDistributionConditionState,
					FailedNamespace: c.FailedNamespaces}
			})}}
}

// selectorIfAny returns a selector, or none for one that selects nothing: an empty map is no absent one, so that an object would be
// another one after it was written in both versions.
func selectorIfAny(selector metav1.LabelSelector) metav1.LabelSelector {
	if len(selector.MatchLabels)+len(selector.MatchExpressions) == 0 {
		return metav1.LabelSelector{}
	}
	return selector
}

// listsIfAny returns lists of namespaces without empty ones, which are no absent ones either.
func listsIfAny(lists v1beta1.ResourceDistributionTargetLists) v1beta1.ResourceDistributionTargetLists {
	for _, of := range []*v1beta1.ResourceDistributionTargetNamespaces{&lists.ExcludedNamespaces, &lists.IncludedNamespaces} {
		if len(of.List) == 0 {
			of.List = nil
		}
	}
	return lists
}
