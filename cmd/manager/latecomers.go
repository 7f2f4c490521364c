package main

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// servedEvery is the pause between looks for kinds that were not served at the start.
const servedEvery = 10 * time.Second

// tries says how often, and with which pauses, kinds are looked for at the start while the API server does
// not answer (OPS-031).
var tries = wait.Backoff{Duration: 500 * time.Millisecond, Factor: 5, Steps: 4}

// latecomer adds controllers as soon as their kinds are served. CRDs may be applied, or upgraded, after the
// manager has started.
type latecomer struct {
	kinds  []schema.GroupVersionKind
	mapper meta.RESTMapper
	setup  func(context.Context) error
	every  time.Duration
}

var _ manager.LeaderElectionRunnable = &latecomer{}

// whenServed sets controllers up at once if the API server serves their kinds, otherwise as soon as it does.
// In the latter case it first calls absent, unless that is nil.
func whenServed(
	ctx context.Context, mgr ctrl.Manager, every time.Duration, absent func(),
	setup func(context.Context) error,
	kinds ...schema.GroupVersionKind,
) error {
	l := &latecomer{kinds: kinds, mapper: mgr.GetRESTMapper(), setup: setup, every: every}
	switch missing, err := l.atStart(ctx); {
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

	if err := mgr.Add(l); err != nil {
		return fmt.Errorf("adding what waits for %v: %w", kinds, err)
	}

	return nil
}

// atStart is missing for the start: it is repeated a few times if the API server does not answer. Then it
// returns the error, with which the manager ends; without an answer no kind counts as not served.
func (l *latecomer) atStart(ctx context.Context) (missing schema.GroupVersionKind, err error) {
	_ = wait.ExponentialBackoffWithContext(ctx, tries, func(context.Context) (bool, error) {
		missing, err = l.missing()
		return err == nil, nil
	})
	return missing, err
}

// missing returns a kind that is not served, or an error if the API server does not answer.
func (l *latecomer) missing() (schema.GroupVersionKind, error) {
	for _, kind := range l.kinds {
		_, err := l.mapper.RESTMapping(kind.GroupKind(), kind.Version)
		if meta.IsNoMatchError(err) {
			return kind, nil
		}
		if err != nil {
			return schema.GroupVersionKind{},
				fmt.Errorf("finding out whether %s is served: %w", kind.Kind, err)
		}
	}
	return schema.GroupVersionKind{}, nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: every replica must have the controllers when
// it becomes the leader.
func (l *latecomer) NeedLeaderElection() bool { return false }

// Start waits and adds the controllers. An error ends the manager, as it would at the start.
func (l *latecomer) Start(ctx context.Context) error {
	err := wait.PollUntilContextCancel(ctx, l.every, false, func(context.Context) (bool, error) {
		missing, err := l.missing()
		return missing.Empty() && err == nil, nil // the API server may not answer for a while
	})
	if err != nil {
		return nil //nolint:nilerr // the manager ends
	}
	ctrl.Log.Info("Kinds are served now, their controllers start", "kinds", l.kinds)
	return l.setup(ctx)
}
