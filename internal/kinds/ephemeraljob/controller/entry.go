package controller

import (
	"context"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/framework"
)

// EphemeralJob describes the kind.
var EphemeralJob = framework.Kind{
	Group:      appsv1beta1.GroupVersion.Group,
	Name:       "EphemeralJob",
	Plural:     "ephemeraljobs",
	Version:    appsv1alpha1.GroupVersion.Version,
	Webhooks:   EphemeralJobs,
	Controller: "ephemeraljob",
	Workers:    10,
	Access:     framework.View,
	Finalizer:  pub.EphemeralContainersCleanup,
	Setup:      setUp,
}

func setUp(ctx context.Context, e *framework.Environment) error {
	return Setup(ctx, e.Manager, e.Controller("ephemeraljob"))
}
