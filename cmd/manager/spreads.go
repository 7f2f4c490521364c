package main

import (
	"context"
	"errors"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/afloat-project/afloat/internal/platform/features"
	"github.com/afloat-project/afloat/internal/pods/workloadspread"
)

// spreads is what the webhooks and the controller of WorkloadSpreads have in common. Both nil without the gate (WS-186, WS-187); the watch
// is nil as long as the kind is not served.
type spreads struct {
	listed    *workloadspread.Listed
	kinds     *workloadspread.Kinds
	watch     *workloadspread.Watch
	versioned workloadspread.Versioned
}

// newSpreads follows WorkloadSpreads on every replica.
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
	late := false
	err = whenServed(ctx, mgr, servedEvery, func(ctx context.Context) (err error) {
		if late {
			return errors.New("WorkloadSpreads are served now: this manager must start again, or pods would do without them")
		}
		if s.watch, err = workloadspread.NewWatch(ctx, mgr, s.kinds); err == nil {
			s.listed.WhenRead(s.watch.FollowListed)
		}
		return err
	}, "WorkloadSpread")
	late = true
	return s, err
}
