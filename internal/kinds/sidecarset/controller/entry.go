package controller

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/framework"
	"github.com/afloat-project/afloat/internal/kinds/sidecarset"
	"github.com/afloat-project/afloat/internal/kinds/sidecarset/controller/choose"
	"github.com/afloat-project/afloat/internal/platform/features"
	"github.com/afloat-project/afloat/internal/rehearsal"
)

// SidecarSet describes the kind.
var SidecarSet = framework.Kind{
	Group:    appsv1beta1.GroupVersion.Group,
	Name:     "SidecarSet",
	Plural:   "sidecarsets",
	Cluster:  true,
	Webhooks: SidecarSets,
	Conversion: framework.Between((*appsv1alpha1.SidecarSet).ToV1beta1,
		appsv1alpha1.SidecarSetFromV1beta1, nil),
	Controller: "sidecarset",
	Workers:    3,
	Access:     framework.View,
	Beside:     []client.Object{&appsv1.ControllerRevision{}},
	Prepare:    prepare,
	Setup:      setUp,
	Absent:     absent,
	Rehearse:   rehearse,
}

// Watching follows SidecarSets for the webhooks of pods; it is nil without the gate PodWebhook.
var Watching framework.Shared[*choose.Watch]

func prepare(_ context.Context, e *framework.Environment) error {
	if !e.Gates.Enabled(features.PodWebhook) {
		return nil
	}
	watch, err := choose.NewWatch(e.Manager, e.Namespace, e.Watches.Following(nil))
	if err == nil {
		Watching.Set(e, watch)
	}
	return err
}

// setUp watches SidecarSets on every replica and adds their controller.
func setUp(ctx context.Context, e *framework.Environment) error {
	features, err := featuresOf(e)
	if err != nil {
		return err
	}

	if watch := Watching.In(e); watch != nil {
		if err := watch.Follow(ctx, e.Manager); err != nil {
			return err
		}
	}

	return Setup(e.Manager, Options{
		Features:  features,
		Options:   e.Controller("sidecarset"),
		Namespace: e.Namespace,
	})
}

func absent(e *framework.Environment) {
	if watch := Watching.In(e); watch != nil {
		watch.Absent()
	}
}

// featuresOf returns the switches of gates and flags.
func featuresOf(e *framework.Environment) (sidecarset.Features, error) {
	resize, err := e.Resizes(features.InPlacePodVerticalScaling)
	return sidecarset.Features{
		Resize:         resize,
		NativeSidecars: e.Minor >= 29 && e.Gates.Enabled(features.SidecarSetInPlaceUpdateNativeSidecar),
	}, err
}

func rehearse(_ context.Context, e *framework.Environment, s *rehearsal.Stage) (rehearsal.Player, error) {
	features, err := featuresOf(e)
	if err != nil {
		return nil, err
	}

	pass := New(&Kube{
		API:       s.API(),
		Pods:      s.Pods(),
		Namespace: e.Namespace,
	}, features, s)

	return func(ctx context.Context, name types.NamespacedName, uid types.UID) (*rehearsal.Pass, error) {
		outcome, err := pass.Run(ctx, name, uid)
		if outcome.Plan == nil {
			return nil, err
		}
		return ofSidecars(outcome, err), nil
	}, nil
}

func ofSidecars(outcome Outcome, failed error) *rehearsal.Pass {
	plan := outcome.Plan
	pass := &rehearsal.Pass{
		Failed:         rehearsal.Words(failed),
		Summary:        plan.Sentences,
		UpdateRevision: plan.Status.LatestRevision,
		After:          outcome.After,
	}
	if plan.Waiting != nil {
		pass.Waiting = plan.Waiting.String()
	}
	done := 0
	for _, n := range outcome.Done {
		done += n
	}

	for _, v := range plan.Verdicts {
		told := rehearsal.Verdict{
			Namespace: v.Pod.Namespace,
			Pod:       v.Pod.Name,
			Action:    string(v.Action),
			Reason:    string(v.Reason),
			Message:   v.Message,
			Done:      v.Action == sidecarset.Keep,
			Waits:     v.Action == sidecarset.Wait,
		}
		pass.Verdicts = append(pass.Verdicts, told)
		if done > 0 && !told.Done && !told.Waits {
			pass.Done = append(pass.Done, rehearsal.Step{Verdict: told})
		}
	}

	return pass
}
