package controller

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/daemonset"
	"github.com/afloat-project/afloat/internal/reconcile"
	"github.com/afloat-project/afloat/internal/reconcile/podapply"
)

// Kube reads from the caches, over which own writes are laid.
type Kube struct {
	podapply.Reader
	// Rules are what the templates of sets ask of nodes.
	Rules *Rules
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
	var all corev1.NodeList
	if err := k.Client.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	s.Nodes = make([]*corev1.Node, len(all.Items))
	for i := range all.Items {
		s.Nodes[i] = &all.Items[i]
	}
	s.Taken = func(pod string) bool { return k.taken(ctx, set, pod) }
	return s, nil
}

// taken tells whether a pod has the name, as far as the caches and own writes know. One that nobody knows of
// is found out by creating it.
func (k *Kube) taken(ctx context.Context, set *appsv1beta1.DaemonSet, name string) bool {
	pod := &corev1.Pod{}
	err := k.Client.Get(ctx, types.NamespacedName{Namespace: set.Namespace, Name: name}, pod, client.UnsafeDisableDeepCopy)
	pod.Namespace, pod.Name = set.Namespace, name
	_, exists := reconcile.Newest(k.Own, set.UID, pod, err == nil)
	return exists
}

// betweenRevisions are the sets for which images may be pulled ahead.
func (k *Kube) betweenRevisions(ctx context.Context) ([]ctrl.Request, error) {
	return reconcile.Due(ctx, k.API, &appsv1beta1.DaemonSetList{}, func(set *appsv1beta1.DaemonSet) bool {
		return set.Status.UpdatedNumberScheduled != set.Status.DesiredNumberScheduled
	})
}
