package controller

import (
	"context"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/framework"
	"github.com/afloat-project/afloat/internal/kinds/persistentpodstate"
	workloadspreadcontroller "github.com/afloat-project/afloat/internal/kinds/workloadspread/controller"
	"github.com/afloat-project/afloat/internal/platform/features"
)

// PersistentPodState describes the kind.
var PersistentPodState = framework.Kind{
	Group:    appsv1beta1.GroupVersion.Group,
	Name:     "PersistentPodState",
	Plural:   "persistentpodstates",
	Webhooks: PersistentPodStates,
	Conversion: framework.Between((*appsv1alpha1.PersistentPodState).ToV1beta1,
		appsv1alpha1.PersistentPodStateFromV1beta1, RenamedInPersistentPodStates),
	Controller: "persistentpodstate",
	Workers:    3,
	With:       []string{"StatefulSet"},
	Access:     framework.Edit,
	Prepare:    prepare,
	Setup:      setUp,
	Absent:     absent,
}

// What PersistentPodStates share: Watching follows them for the webhooks of pods, and Listing holds the kinds that an
// administrator lists for them.
var (
	Watching framework.Shared[*Watch]
	Listing  framework.Shared[*workloadspreadcontroller.Listed]
	targets  framework.Shared[*Kinds]
)

// prepare makes what the webhooks and the controller share, on every replica. It follows the lists of kinds, those
// of WorkloadSpreads too, since they are in one ConfigMap.
func prepare(ctx context.Context, e *framework.Environment) error {
	listed := workloadspreadcontroller.NewListed(persistentpodstate.AllowListKey,
		e.Manager.GetLogger().WithName("persistentpodstate"))
	kinds := NewKinds(e.Manager, listed.Kinds, listed.Ready, e.Gates.Enabled(features.StatefulSetStartOrdinal))
	listed.WhenRead(kinds.Relisted)
	Watching.Set(e, NewWatch(e.Manager, listed.Kinds, listed.Ready))
	Listing.Set(e, listed)
	targets.Set(e, kinds)

	lists := []*workloadspreadcontroller.Listed{listed}
	if other := workloadspreadcontroller.Listing.In(e); other != nil {
		lists = append(lists, other)
	}

	return workloadspreadcontroller.FollowLists(ctx, e.Manager, e.Namespace, e.Watches.Following(nil), lists...)
}

// setUp watches PersistentPodStates on every replica and adds their controllers.
func setUp(ctx context.Context, e *framework.Environment) error {
	if err := Watching.In(e).Follow(ctx, e.Manager); err != nil {
		return err
	}
	return Setup(ctx, e.Manager, Options{
		Options:   e.Controller("persistentpodstate"),
		Workloads: targets.In(e),
		Cleanup:   e.Gates.Enabled(features.PersistentPodStateAutoCleanup),
	})
}

func absent(e *framework.Environment) { Watching.In(e).Absent() }
