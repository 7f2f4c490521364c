package controller

import (
	"context"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/framework"
	"github.com/afloat-project/afloat/internal/platform/features"
	sidecarterminatorcontroller "github.com/afloat-project/afloat/internal/podfeatures/sidecarterminator/controller"
)

// ContainerRecreateRequest describes the kind.
var ContainerRecreateRequest = framework.Kind{
	Group:    appsv1beta1.GroupVersion.Group,
	Name:     "ContainerRecreateRequest",
	Plural:   "containerrecreaterequests",
	Gates:    framework.Gates{{features.KruiseDaemon}},
	Webhooks: ContainerRecreateRequests,
	Conversion: framework.Between((*appsv1alpha1.ContainerRecreateRequest).ToV1beta1,
		appsv1alpha1.ContainerRecreateRequestFromV1beta1, nil),
	Controller: "crr",
	Workers:    3,
	Access:     framework.Edit,
	Finalizer:  pub.RecreateUnreadyAcquired,
	Setup:      setUp,
}

// setUp adds the controller, and the sidecar terminator, which creates ContainerRecreateRequests.
func setUp(ctx context.Context, e *framework.Environment) error {
	if err := Setup(ctx, e.Manager, e.Controller("crr")); err != nil {
		return err
	}
	if !terminatesSidecars(e.Gates) {
		return nil
	}
	return sidecarterminatorcontroller.Setup(ctx, e.Manager, e.Controller(framework.SidecarTerminator))
}

// terminatesSidecars reports whether the sidecar terminator is enabled.
func terminatesSidecars(gates *features.Gates) bool { return gates.Enabled(features.SidecarTerminator) }
