package controller

import (
	"context"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/framework"
	"github.com/afloat-project/afloat/internal/platform/features"
)

// NodePodProbe describes the kind.
var NodePodProbe = framework.Kind{
	Group:      appsv1beta1.GroupVersion.Group,
	Name:       "NodePodProbe",
	Plural:     "nodepodprobes",
	Version:    appsv1alpha1.GroupVersion.Version,
	Cluster:    true,
	Gates:      framework.Gates{{features.KruiseDaemon}, {features.PodProbeMarkerGate}},
	Webhooks:   NodePodProbes,
	Controller: "nodepodprobe",
	Workers:    3,
}

// PodProbeMarker describes the kind.
var PodProbeMarker = framework.Kind{
	Group:      appsv1beta1.GroupVersion.Group,
	Name:       "PodProbeMarker",
	Plural:     "podprobemarkers",
	Version:    appsv1alpha1.GroupVersion.Version,
	Gates:      framework.Gates{{features.KruiseDaemon}, {features.PodProbeMarkerGate}},
	Webhooks:   PodProbeMarkers,
	Controller: "podprobemarker",
	Workers:    3,
	With:       []string{"NodePodProbe"},
	Access:     framework.Edit,
	Finalizer:  pub.ProbeCleanup,
	Setup:      setUp,
}

// setUp adds the controllers of PodProbeMarkers and of NodePodProbes.
func setUp(ctx context.Context, e *framework.Environment) error {
	return Setup(ctx, e.Manager, Options{
		Options:     e.Controller("podprobemarker"),
		NodeWorkers: *e.Workers["nodepodprobe"],
		Serverless:  e.Gates.Enabled(features.EnablePodProbeMarkerOnServerless),
		Liveness:    e.Gates.Enabled(features.EnhancedLivenessProbe),
	})
}
