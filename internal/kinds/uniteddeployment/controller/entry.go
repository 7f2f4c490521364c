package controller

import (
	"context"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/framework"
)

// UnitedDeployment describes the kind.
var UnitedDeployment = framework.Kind{
	Group:    appsv1beta1.GroupVersion.Group,
	Name:     "UnitedDeployment",
	Plural:   "uniteddeployments",
	Webhooks: UnitedDeployments,
	Conversion: framework.Between((*appsv1alpha1.UnitedDeployment).ToV1beta1,
		appsv1alpha1.UnitedDeploymentFromV1beta1, nil),
	Controller: "uniteddeployment",
	Workers:    3,
	Workload:   true,
	Access:     framework.Edit,
	Setup:      setUp,
}

func setUp(ctx context.Context, e *framework.Environment) error {
	return Setup(ctx, e.Manager, e.Controller("uniteddeployment"))
}
