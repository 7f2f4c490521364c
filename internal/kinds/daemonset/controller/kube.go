package controller

import (
	"context"

	ctrl "sigs.k8s.io/controller-runtime"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/daemonset"
	"github.com/afloat-project/afloat/internal/reconcile"
	"github.com/afloat-project/afloat/internal/reconcile/podapply"
)

// Kube reads from the caches, over which own writes are laid.
type Kube struct {
	podapply.Reader
	rules podapply.Rules[rules]
}

// Snapshot reads what the set owns or may adopt, and all nodes. The objects are the caches' own and must not
// be changed. Time and what failed before are filled in by the pass.
func (k *Kube) Snapshot(ctx context.Context, set *appsv1beta1.DaemonSet, features daemonset.Features) (*daemonset.Snapshot, error) {
	owned, err := k.Read(ctx, set, set.Spec.Selector)
	if err != nil {
		return nil, err
	}
	s := &daemonset.Snapshot{Set: set, Snapshot: owned, Features: features}
	if s.Orphans, err = k.Orphans(set, set.Spec.Selector, s.Pods); err != nil {
		return nil, err
	}
	if s.Nodes, err = k.Nodes(ctx); err != nil {
		return nil, err
	}
	s.Taken = func(pod string) bool { return k.Taken(ctx, set, pod) }
	return s, nil
}

// betweenRevisions are the sets for which images may be pulled ahead.
func (k *Kube) betweenRevisions(ctx context.Context) ([]ctrl.Request, error) {
	return reconcile.Due(ctx, k.API, &appsv1beta1.DaemonSetList{}, func(set *appsv1beta1.DaemonSet) bool {
		return set.Status.UpdatedNumberScheduled != set.Status.DesiredNumberScheduled
	})
}
