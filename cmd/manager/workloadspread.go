package main

import (
	"context"

	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/afloat-project/afloat/internal/platform/podindex"
	"github.com/afloat-project/afloat/internal/pods/workloadspread"
)

// addController adds the controller, if WorkloadSpreads are served; where they come later the manager starts again.
func (s *spreads) addController(ctx context.Context, mgr ctrl.Manager, o *options, pods *podindex.Index, limiter workqueue.TypedRateLimiter[reconcile.Request]) error {
	if s.watch == nil {
		return nil
	}
	return workloadspread.Setup(ctx, mgr, workloadspread.Options{Workers: *o.workers["workloadspread"], RateLimiter: limiter, Pods: pods,
		Workloads: s.kinds, Booker: s.watch.Booker, Versioned: s.versioned, Window: o.unschedulableWindow})
}
