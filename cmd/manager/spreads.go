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

// spreads is what the webhooks and the controller of WorkloadSpreads have in common. All nil without the gate (WS-186, WS-187).
type spreads struct {
	listed    *workloadspread.Listed
	kinds     *workloadspread.Kinds
	watch     *workloadspread.Watch
	versioned workloadspread.Versioned
}

// newSpreads is for every replica.
func newSpreads(ctx context.Context, mgr ctrl.Manager, o *options, gates *features.Gates) (*spreads, error) {
	s := &spreads{versioned: workloadspread.ParseVersioned(o.versionedStatus)}
	if !gates.Enabled(features.WorkloadSpread) {
		return s, nil
	}
	var err error
	if s.listed, err = workloadspread.NewListed(ctx, mgr, o.installNamespace); err != nil {
		return nil, err
	}
	s.kinds = workloadspread.NewKinds(mgr, s.listed.Kinds, s.listed.Ready, s.versioned)
	s.watch = workloadspread.NewWatch(ctx, mgr, s.kinds)
	s.listed.WhenRead(s.watch.FollowListed)
	return s, nil
}

// addController follows WorkloadSpreads on every replica, and adds their controller, as soon as they are served.
func (s *spreads) addController(ctx context.Context, mgr ctrl.Manager, o *options, pods *podindex.Index, limiter workqueue.TypedRateLimiter[reconcile.Request]) error {
	if s.watch == nil {
		return nil
	}
	return whenServed(ctx, mgr, servedEvery, s.watch.Absent, func(ctx context.Context) error {
		if err := s.watch.Follow(ctx, mgr); err != nil {
			return err
		}
		return workloadspread.Setup(ctx, mgr, workloadspread.Options{Workers: *o.workers["workloadspread"], RateLimiter: limiter, Pods: pods,
			Workloads: s.kinds, Booker: s.watch.Booker, Versioned: s.versioned, Window: o.unschedulableWindow})
	}, "WorkloadSpread")
}
