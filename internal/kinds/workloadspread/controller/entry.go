package controller

import (
	"context"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/framework"
	"github.com/afloat-project/afloat/internal/kinds/workloadspread"
	"github.com/afloat-project/afloat/internal/platform/features"
)

// WorkloadSpread describes the kind.
var WorkloadSpread = framework.Kind{
	Group:    appsv1beta1.GroupVersion.Group,
	Name:     "WorkloadSpread",
	Plural:   "workloadspreads",
	Gates:    framework.Gates{{features.WorkloadSpread}},
	Webhooks: WorkloadSpreads,
	Conversion: framework.Between((*appsv1alpha1.WorkloadSpread).ToV1beta1,
		appsv1alpha1.WorkloadSpreadFromV1beta1, RenamedInWorkloadSpreads),
	Controller: "workloadspread",
	Workers:    3,
	Access:     framework.Edit,
	Prepare:    prepare,
	Setup:      setUp,
	Absent:     absent,
}

// What WorkloadSpreads share: Watching follows them for the webhooks of pods, and Listing holds the kinds that an
// administrator lists for them. Both are nil without the gate.
var (
	Watching framework.Shared[*Watch]
	Listing  framework.Shared[*Listed]
	targets  framework.Shared[*Kinds]
)

// Versioned returns the kinds whose pods are counted by version (WS-184).
func Versioned(e *framework.Environment) workloadspread.Versioned {
	return workloadspread.ParseVersioned(e.Flags.VersionedStatus)
}

// prepare makes what the webhooks and the controller share, on every replica, unless the gate is disabled
// (WS-186, WS-187).
func prepare(ctx context.Context, e *framework.Environment) error {
	if !e.Gates.Enabled(features.WorkloadSpread) {
		return nil
	}
	listed := NewListed(workloadspread.AllowListKey, e.Manager.GetLogger().WithName("workloadspread"))
	kinds := NewKinds(e.Manager, listed.Kinds, listed.Ready, Versioned(e))
	watch := NewWatch(ctx, e.Manager, kinds)
	listed.WhenRead(watch.FollowListed)
	Watching.Set(e, watch)
	Listing.Set(e, listed)
	targets.Set(e, kinds)
	return nil
}

// setUp watches WorkloadSpreads on every replica and adds their controller.
func setUp(ctx context.Context, e *framework.Environment) error {
	watch := Watching.In(e)
	if err := watch.Follow(ctx, e.Manager); err != nil {
		return err
	}
	return Setup(ctx, e.Manager, Options{
		Options:   e.Controller("workloadspread"),
		Workloads: targets.In(e),
		Booker:    watch.Booker,
		Versioned: Versioned(e),
		Window:    e.Flags.UnschedulableWindow,
	})
}

func absent(e *framework.Environment) { Watching.In(e).Absent() }
