package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/afloat-project/afloat/internal/framework"
	"github.com/afloat-project/afloat/internal/platform/uninstall"
	"github.com/afloat-project/afloat/internal/registry"
)

// unholdEvery is the interval at which the objects of disabled kinds are checked.
const unholdEvery = 5 * time.Minute

// off removes the finalizers of objects whose controller does not run because their feature gate was
// disabled. Otherwise a ContainerRecreateRequest would keep its pod out of service forever, and neither the
// object nor its namespace could be deleted.
type off struct {
	kinds []schema.GroupKind
	guard uninstall.Guard
	every time.Duration
}

// unholdOff adds this runnable for the kinds whose gates are disabled, if there are any.
func unholdOff(e *framework.Environment) error {
	var kinds []schema.GroupKind
	for i := range registry.Kinds {
		if kind := &registry.Kinds[i]; kind.Gates.Off(e.Gates) != nil {
			kinds = append(kinds, schema.GroupKind{Group: kind.Group, Kind: kind.Name})
		}
	}

	if len(kinds) == 0 {
		return nil
	}

	live, err := client.New(e.Manager.GetConfig(), client.Options{
		Scheme:     e.Manager.GetScheme(),
		Mapper:     e.Manager.GetRESTMapper(),
		HTTPClient: e.Manager.GetHTTPClient(),
	})
	if err != nil {
		return fmt.Errorf("building a client without cache: %w", err)
	}
	if err := e.Manager.Add(&off{
		kinds: kinds,
		guard: uninstall.Guard{Client: live, Held: registry.Held(), Out: io.Discard},
		every: unholdEvery,
	}); err != nil {
		return fmt.Errorf("adding what lets go of kinds that are off: %w", err)
	}

	return nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (*off) NeedLeaderElection() bool { return true }

// Start checks the objects at intervals until the context is canceled. Failures are retried, and logged once.
func (o *off) Start(ctx context.Context) error {
	told := ""
	tick := time.NewTicker(o.every)
	defer tick.Stop()

	for {
		if err := o.guard.UnholdKinds(ctx, o.kinds); err != nil && ctx.Err() == nil && err.Error() != told {
			told = err.Error()
			ctrl.Log.Error(err,
				"Objects of kinds whose feature gates are off may hold pods, and cannot be deleted",
				"kinds", o.kinds)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}
