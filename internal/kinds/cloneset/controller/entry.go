package controller

import (
	"context"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/framework"
	"github.com/afloat-project/afloat/internal/kinds/cloneset"
	"github.com/afloat-project/afloat/internal/platform/features"
	"github.com/afloat-project/afloat/internal/rehearsal"
)

// CloneSet describes the kind.
var CloneSet = framework.Kind{
	Group:    appsv1beta1.GroupVersion.Group,
	Name:     "CloneSet",
	Plural:   "clonesets",
	Webhooks: CloneSets,
	Conversion: framework.Between((*appsv1alpha1.CloneSet).ToV1beta1,
		appsv1alpha1.CloneSetFromV1beta1, MovedInCloneSets),
	// A worker waits while requests of its set are in flight. The priority and fairness of the API server
	// limits them.
	Controller: "cloneset",
	Workers:    20,
	Workload:   true,
	Access:     framework.Edit,
	Setup:      setUp,
	Rehearse:   rehearse,
}

func setUp(ctx context.Context, e *framework.Environment) error {
	return Setup(ctx, e.Manager, Options{
		Features: featuresOf(e),
		Options:  e.Controller("cloneset"),
		PullJobs: e.PullJobs,
	})
}

// featuresOf returns the switches of gates and flags.
func featuresOf(e *framework.Environment) cloneset.Features {
	return cloneset.Features{
		ShortHash:               e.Gates.Enabled(features.CloneSetShortHash),
		PartitionRollback:       e.Gates.Enabled(features.CloneSetPartitionRollback),
		RecreateOnClaimChange:   e.Gates.Enabled(features.RecreatePodWhenChangeVCTInCloneSetGate),
		PreparingUpdateAsUpdate: e.Gates.Enabled(features.PreparingUpdateAsUpdate),
		ExcludePreparingDelete:  e.Flags.ExcludePreparingDelete,
		InPlace:                 e.InPlace,
		DeferredResize:          e.Flags.DeferredResize,
		PreDownload: e.Gates.Enabled(features.KruiseDaemon) &&
			e.Gates.Enabled(features.PreDownloadImageForInPlaceUpdate),
	}
}

func rehearse(ctx context.Context, e *framework.Environment, s *rehearsal.Stage) (rehearsal.Player, error) {
	read, err := rehearsal.Reader(ctx, s)
	if err != nil {
		return nil, err
	}
	if err := Index(ctx, s); err != nil {
		return nil, err
	}
	return rehearsal.Workload(New(&Kind{
		Kube: &Kube{Reader: read}, Features: featuresOf(e), Random: s.Rand.IntN,
	}, s)), nil
}
