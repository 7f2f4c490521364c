package v1alpha1

import "github.com/afloat-project/afloat/api/apps/v1beta1"

// Conversion of ResourceDistributions (RD-110): the selector and the namespaces of conditions have other names.

// ToV1beta1 returns the ResourceDistribution in the v1beta1 form. It does not modify in.
func (in *ResourceDistribution) ToV1beta1() *v1beta1.ResourceDistribution {
	in = in.DeepCopy()
	return &v1beta1.ResourceDistribution{ObjectMeta: in.ObjectMeta,
		Spec: v1beta1.ResourceDistributionSpec{Resource: in.Spec.Resource, Targets: v1beta1.ResourceDistributionTargets{
			ResourceDistributionTargetLists: in.Spec.Targets.ResourceDistributionTargetLists,
			NamespaceSelector:               in.Spec.Targets.NamespaceLabelSelector}},
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
			ResourceDistributionTargetLists: in.Spec.Targets.ResourceDistributionTargetLists,
			NamespaceLabelSelector:          in.Spec.Targets.NamespaceSelector}},
		Status: ResourceDistributionStatus{ResourceDistributionCounters: in.Status.ResourceDistributionCounters,
			Conditions: each(in.Status.Conditions, func(c v1beta1.ResourceDistributionCondition) ResourceDistributionCondition {
				return ResourceDistributionCondition{ResourceDistributionConditionState: c.ResourceDistributionConditionState,
					FailedNamespace: c.FailedNamespaces}
			})}}
}
