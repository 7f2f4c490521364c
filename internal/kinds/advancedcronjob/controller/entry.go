package controller

import (
	"context"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/framework"
)

// AdvancedCronJob describes the kind.
var AdvancedCronJob = framework.Kind{
	Group:      appsv1beta1.GroupVersion.Group,
	Name:       "AdvancedCronJob",
	Plural:     "advancedcronjobs",
	Webhooks:   AdvancedCronJobs,
	Conversion: AdvancedCronJobConversion(),
	Controller: "advancedcronjob",
	Workers:    3,
	Workload:   true,
	Access:     framework.Edit,
	Setup:      setUp,
}

func setUp(ctx context.Context, e *framework.Environment) error {
	return Setup(ctx, e.Manager, e.Controller("advancedcronjob"))
}
