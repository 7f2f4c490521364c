package controller

import (
	"context"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/framework"
	"github.com/afloat-project/afloat/internal/reconcile/podapply"
	"github.com/afloat-project/afloat/internal/rehearsal"
)

// BroadcastJob describes the kind.
var BroadcastJob = framework.Kind{
	Group:      appsv1beta1.GroupVersion.Group,
	Name:       "BroadcastJob",
	Plural:     "broadcastjobs",
	Webhooks:   BroadcastJobs,
	Controller: "broadcastjob",
	Workers:    3,
	Workload:   true,
	Access:     framework.Edit,
	Finalizer:  pub.UnrecordedRun,
	Setup:      setUp,
	Rehearse:   rehearse,
}

func setUp(ctx context.Context, e *framework.Environment) error {
	return Setup(ctx, e.Manager, Options{
		Options: e.Controller("broadcastjob"),
		Binds:   !e.Flags.AssignJobsByScheduler,
	})
}

func rehearse(_ context.Context, e *framework.Environment, s *rehearsal.Stage) (rehearsal.Player, error) {
	return rehearsal.Workload(New(&Kind{
		Kube:  &Kube{Reader: podapply.Reader{API: s.API(), Pods: s.Pods()}},
		Binds: !e.Flags.AssignJobsByScheduler,
	}, s)), nil
}
