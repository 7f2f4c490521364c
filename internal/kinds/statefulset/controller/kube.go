package controller

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/statefulset"
	"github.com/afloat-project/afloat/internal/reconcile"
	"github.com/afloat-project/afloat/internal/reconcile/podapply"
)

// Kube reads from the caches, over which own writes are laid.
type Kube struct{ podapply.Reader }

// Snapshot reads what the set owns or may adopt. The objects are the caches' own and must not be changed.
// Time and features are filled in by the pass.
func (k *Kube) Snapshot(ctx context.Context, set *appsv1beta1.StatefulSet, features statefulset.Features) (*statefulset.Snapshot, error) {
	owned, err := k.Read(ctx, set, set.Spec.Selector)
	if err != nil {
		return nil, err
	}
	s := &statefulset.Snapshot{Set: set, Snapshot: owned, Features: features, Claims: map[string]*corev1.PersistentVolumeClaim{},
		ForeignPods: map[string]bool{}, Late: map[string]bool{}}
	if s.Orphans, err = k.Orphans(set, set.Spec.Selector, s.Pods); err != nil {
		return nil, err
	}
	s.Orphans = slices.DeleteFunc(s.Orphans, func(pod *corev1.Pod) bool { return statefulset.SetOf(pod.Name) != set.Name }) // ASTS-070
	for _, name := range s.ClaimNames() {
		claim, err := newest(ctx, k, set, name, &corev1.PersistentVolumeClaim{})
		if err != nil {
			return nil, err
		}
		if claim != nil {
			s.Claims[name] = claim
		}
	}
	selector, _ := metav1.LabelSelectorAsSelector(set.Spec.Selector) // the plan says what is wrong with it
	for _, name := range s.Vacant() {
		pod, err := newest(ctx, k, set, name, &corev1.Pod{})
		if err != nil {
			return nil, err
		}
		switch {
		case pod == nil:
		case metav1.IsControlledBy(pod, set), metav1.GetControllerOfNoCopy(pod) == nil && selector != nil && selector.Matches(labels.Set(pod.Labels)):
			s.Late[name] = true
		default:
			s.ForeignPods[name] = true
		}
	}
	return s, nil
}

// newest reads an object of the set's namespace, nil if there is none.
func newest[T client.Object](ctx context.Context, k *Kube, set *appsv1beta1.StatefulSet, name string, into T) (T, error) {
	key := types.NamespacedName{Namespace: set.Namespace, Name: name}
	err := k.Client.Get(ctx, key, into, client.UnsafeDisableDeepCopy)
	if client.IgnoreNotFound(err) != nil {
		return *new(T), fmt.Errorf("reading %T %s: %w", into, name, err)
	}
	into.SetNamespace(key.Namespace)
	into.SetName(key.Name)
	if found, exists := reconcile.Newest(k.Own, set.UID, into, err == nil); exists {
		return found, nil
	}
	return *new(T), nil
}

// betweenRevisions are the sets for which images may be pulled ahead.
func (k *Kube) betweenRevisions(ctx context.Context) ([]ctrl.Request, error) {
	return reconcile.Due(ctx, k.API, &appsv1beta1.StatefulSetList{}, func(set *appsv1beta1.StatefulSet) bool {
		return set.Status.CurrentRevision != set.Status.UpdateRevision
	})
}
