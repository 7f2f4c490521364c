package controller

import (
	"context"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/framework"
	"github.com/afloat-project/afloat/internal/platform/features"
)

// ResourceDistribution describes the kind.
var ResourceDistribution = framework.Kind{
	Group:    appsv1beta1.GroupVersion.Group,
	Name:     "ResourceDistribution",
	Plural:   "resourcedistributions",
	Cluster:  true,
	Gates:    framework.Gates{{features.ResourceDistributionGate}},
	Webhooks: ResourceDistributions,
	Conversion: framework.Between((*appsv1alpha1.ResourceDistribution).ToV1beta1,
		appsv1alpha1.ResourceDistributionFromV1beta1, RenamedInResourceDistributions),
	// This is not a workload, but nothing is uninstalled while objects of it exist.
	Controller: "resourcedistribution",
	Workers:    3,
	Workload:   true,
	Access:     framework.Administer,
	Setup:      setUp,
}

func setUp(_ context.Context, e *framework.Environment) error {
	return Setup(e.Manager, e.Controller("resourcedistribution"), e.Namespace, e.DaemonNamespace)
}
