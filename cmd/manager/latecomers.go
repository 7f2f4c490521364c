package main

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/afloat-project/afloat/internal/platform/matchconditions"
	"github.com/afloat-project/afloat/internal/reconcile"
)

// tries is the back-off for looking up kinds at the start while the API server does not respond.
var tries = wait.Backoff{Duration: 500 * time.Millisecond, Factor: 5, Steps: 4}

// whenServed sets up controllers immediately if the API server serves their kinds, or else as soon as it
// does, because CRDs may be applied or upgraded after the manager has started. In the latter case it calls
// absent first, unless absent is nil.
func whenServed(
	ctx context.Context, mgr ctrl.Manager, every time.Duration, absent func(),
	setup func(context.Context) error, kinds ...schema.GroupVersionKind,
) error {
	switch missing, err := unservedAtStart(ctx, mgr.GetRESTMapper(), kinds); {
	case err != nil:
		return err
	case missing.Empty():
		return setup(ctx)
	default:
		mgr.GetLogger().Info("A kind is not served: its controller starts when it is", "kind", missing.Kind,
			"version", missing.GroupVersion())
		if absent != nil {
			absent()
		}
	}

	// Every replica must have the controllers when it becomes the leader.
	if err := mgr.Add(matchconditions.Everywhere(func(ctx context.Context) error {
		return setUpLater(ctx, mgr.GetRESTMapper(), every, setup, kinds)
	})); err != nil {
		return fmt.Errorf("adding what waits for %v: %w", kinds, err)
	}

	return nil
}

// unservedAtStart returns a kind that is not served at the start, if there is one. It retries a few times if
// the API server does not respond, and then returns the error, which ends the manager. Without a response, no
// kind counts as not served.
func unservedAtStart(
	ctx context.Context, mapper meta.RESTMapper, kinds []schema.GroupVersionKind,
) (missing schema.GroupVersionKind, err error) {
	_ = wait.ExponentialBackoffWithContext(ctx, tries, func(context.Context) (bool, error) {
		missing, err = reconcile.Unserved(mapper, kinds...)
		return err == nil, nil
	})
	return missing, err
}

// setUpLater waits until the kinds are served and sets up their controllers. An error ends the manager, as it
// would at the start.
func setUpLater(
	ctx context.Context, mapper meta.RESTMapper, every time.Duration, setup func(context.Context) error,
	kinds []schema.GroupVersionKind,
) error {
	if err := reconcile.AwaitServed(ctx, mapper, every, kinds...); err != nil {
		return nil //nolint:nilerr // the manager ends
	}
	ctrl.Log.Info("Kinds are served now, their controllers start", "kinds", kinds)
	return setup(ctx)
}
