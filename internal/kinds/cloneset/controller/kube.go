package controller

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/kinds/cloneset"
	"github.com/afloat-project/afloat/internal/reconcile"
	"github.com/afloat-project/afloat/internal/reconcile/podapply"
)

// handed is the index value of claims that pods of CloneSets take along.
const handed = "handed"

func indexByController(object client.Object) []string {
	values := podapply.IndexByController(object)
	if owner := metav1.GetControllerOfNoCopy(object); owner != nil && owner.Kind == "Pod" &&
		object.GetLabels()[pub.CloneSetInstanceID] != "" {
		values = append(values, handed)
	}
	return values
}

// Kube reads from the caches, over which own writes are laid.
type Kube struct{ podapply.Reader }

// Snapshot reads what the set owns. The objects are the caches' own and must not be changed. Time, chance and
// features are filled in by the pass.
func (k *Kube) Snapshot(ctx context.Context, set *appsv1beta1.CloneSet) (*cloneset.Snapshot, error) {
	owned, err := k.Read(ctx, set, set.Spec.Selector)
	if err != nil {
		return nil, err
	}
	snapshot := &cloneset.Snapshot{Set: set, Snapshot: owned}
	orphans, err := k.Orphans(set, set.Spec.Selector, owned.Pods)
	if err != nil {
		return nil, err
	}
	for _, pod := range orphans {
		snapshot.Orphans = append(snapshot.Orphans, pod.Name)
	}
	if snapshot.Claims, err = k.claims(ctx, set, string(set.UID)); err != nil {
		return nil, err
	}
	if snapshot.PodOwnedClaims, err = k.claims(ctx, set, handed); err != nil {
		return nil, err
	}
	if err := k.nodes(ctx, snapshot); err != nil {
		return nil, err
	}
	for _, unmanned := range snapshot.ClaimsWithoutPod() {
		pod := &corev1.Pod{}
		name := types.NamespacedName{Namespace: set.Namespace, Name: unmanned}
		err := k.Client.Get(ctx, name, pod, client.UnsafeDisableDeepCopy)
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("reading pod %s: %w", unmanned, err)
		}
		pod.Namespace, pod.Name = name.Namespace, name.Name
		if pod, exists := reconcile.Newest(k.Own, set.UID, pod, err == nil); exists {
			snapshot.ForeignPods = append(snapshot.ForeignPods, pod)
		}
	}
	return snapshot, nil
}

// claims are those of the set's namespace that are found by a value of the index.
func (k *Kube) claims(ctx context.Context, set *appsv1beta1.CloneSet, by string) ([]*corev1.PersistentVolumeClaim, error) {
	var list corev1.PersistentVolumeClaimList
	if err := k.Client.List(ctx, &list, client.InNamespace(set.Namespace), client.MatchingFields{podapply.OwnerIndex: by},
		client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing claims: %w", err)
	}
	var claims []*corev1.PersistentVolumeClaim
	for i := range list.Items {
		claims = append(claims, &list.Items[i])
	}
	return reconcile.Overlay(k.Own, set.UID, claims, func(claim *corev1.PersistentVolumeClaim) bool { return slices.Contains(indexByController(claim), by) }), nil
}

// nodes reads what the plan has to know of nodes.
func (k *Kube) nodes(ctx context.Context, s *cloneset.Snapshot) error {
	for _, name := range s.NodesWanted() {
		node := &corev1.Node{}
		err := k.Client.Get(ctx, types.NamespacedName{Name: name}, node, client.UnsafeDisableDeepCopy)
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("reading node %s: %w", name, err)
		}
		s.RecordNode(name, node, err == nil)
	}
	return nil
}

// betweenRevisions are the sets for which images may be pulled ahead.
func (k *Kube) betweenRevisions(ctx context.Context) ([]ctrl.Request, error) {
	return reconcile.Due(ctx, k.API, &appsv1beta1.CloneSetList{}, func(set *appsv1beta1.CloneSet) bool {
		return set.Status.CurrentRevision != set.Status.UpdateRevision
	})
}
