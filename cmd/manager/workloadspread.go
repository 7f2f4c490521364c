package main

import (
	"context"

	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/afloat-project/afloat/internal/platform/features"
	"github.com/afloat-project/afloat/internal/platform/podindex"
	"github.com/afloat-project/afloat/internal/pods/workloadspread"
)

// spreads is what webhooks and controller of WorkloadSpreads share.
type spreads struct {
	listed    *workloadspread.Listed
	kinds     *workloadspread.Kinds
	versioned workloadspread.Versioned
}

// newSpreads returns nil with gate WorkloadSpread off: nothing of it exists then (WS-186, WS-187).
func newSpreads(ctx context.Context, mgr ctrl.Manager, o *options, gates *features.Gates) (*spreads, error) {
	if !gates.Enabled(features.WorkloadSpread) {
		return nil, nil
	}
	listed, err := workloadspread.NewListed(ctx, mgr, o.installNamespace)
	if err != nil {
		return nil, err
	}
	versioned := workloadspread.ParseVersioned(o.versionedStatus) // WS-184
	return &spreads{listed: listed, versioned: versioned, kinds: workloadspread.NewKinds(mgr, listed.Kinds, versioned)}, nil
}

// addController adds the controller, as soon as WorkloadSpreads are served.
func (s *spreads) addController(ctx context.Context, mgr ctrl.Manager, o *options, pods *podindex.Index, limiter workqueue.TypedRateLimiter[reconcile.Request]) error {
	if s == nil {
		return nil
	}
	return whenServed(ctx, mgr, servedEvery, func(ctx context.Context) error {
		return workloadspread.Setup(ctx, mgr, workloadspread.Options{Workers: *o.workers["workloadspread"], RateLimiter: limiter, Pods: pods,
			Workloads: s.kinds, Versioned: s.versioned, Window: o.unschedulableWindow})
	}, "WorkloadSpread")
}
