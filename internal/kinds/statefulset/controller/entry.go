package controller

import (
	"context"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/framework"
	"github.com/afloat-project/afloat/internal/kinds/statefulset"
	"github.com/afloat-project/afloat/internal/platform/features"
	"github.com/afloat-project/afloat/internal/rehearsal"
)

// StatefulSet describes the kind.
var StatefulSet = framework.Kind{
	Group:      appsv1beta1.GroupVersion.Group,
	Name:       "StatefulSet",
	Plural:     "statefulsets",
	Webhooks:   StatefulSets,
	Conversion: StatefulSetConversion(),
	Controller: "statefulset",
	Workers:    20,
	Workload:   true,
	Access:     framework.Edit,
	Setup:      setUp,
	Rehearse:   rehearse,
}

func setUp(ctx context.Context, e *framework.Environment) error {
	return Setup(ctx, e.Manager, Options{
		Features: featuresOf(e),
		Options:  e.Controller("statefulset"),
		PullJobs: e.PullJobs,
	})
}

// featuresOf returns the switches of gates and flags.
func featuresOf(e *framework.Environment) statefulset.Features {
	return statefulset.Features{
		StartOrdinal:   e.Gates.Enabled(features.StatefulSetStartOrdinal),
		PodIndexLabel:  e.Gates.Enabled(features.PodIndexLabel),
		DeleteClaims:   e.Gates.Enabled(features.StatefulSetAutoDeletePVC),
		ResizeClaims:   e.Gates.Enabled(features.StatefulSetAutoResizePVCGate),
		InPlace:        e.InPlace,
		DeferredResize: e.Flags.DeferredResize,
		PreDownload: e.Gates.Enabled(features.KruiseDaemon) &&
			e.Gates.Enabled(features.PreDownloadImageForInPlaceUpdate),
	}
}

func rehearse(ctx context.Context, e *framework.Environment, s *rehearsal.Stage) (rehearsal.Player, error) {
	read, err := rehearsal.Reader(ctx, s)
	return rehearsal.Workload(New(&Kind{Kube: &Kube{Reader: read}, Features: featuresOf(e)}, s)), err
}
