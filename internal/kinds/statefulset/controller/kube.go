package controller

import (
	"context"
	"fmt"

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

// Snapshot reads what the set owns or may adopt. The objects are the caches' own and must not be changed. Time and features are
// filled in by the pass.
func (k *Kube) Snapshot(ctx context.Context, set *appsv1beta1.StatefulSet, features statefulset.Features) (*statefulset.Snapshot, error) {
	owned, err := k.Read(ctx, set, set.Spec.Selector)
	if err != nil {
		return nil, err
	}
	s := &statefulset.Snapshot{Set: set, Snapshot: owned, Features: features, Claims: map[string]*corev1.PersistentVolumeClaim{},
		Strangers: map[string]bool{}}
	if s.Orphans, err = k.orphans(set); err != nil {
		return nil, err
	}
	for _, name := range s.ClaimNames() {
		claim, err := newest(ctx, k, set, name, &corev1.PersistentVolumeClaim{})
		if err != nil {
			return nil, err
		}
		if claim != nil {
			s.Claims[name] = claim
		}
	}
	for _, name := range s.Vacant() {
		pod, err := newest(ctx, k, set, name, &corev1.Pod{})
		if err != nil {
			return nil, err
		}
		if pod != nil {
			s.Strangers[name] = true
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

// orphans finds pods that nobody controls and that have a name and labels of the set's (ASTS-070).
func (k *Kube) orphans(set *appsv1beta1.StatefulSet) ([]*corev1.Pod, error) {
	selector, err := metav1.LabelSelectorAsSelector(set.Spec.Selector)
	if err != nil {
		selector = labels.Nothing() // the plan says so
	}
	if selector.Empty() || set.DeletionTimestamp != nil {
		return nil, nil
	}
	pods, err := k.Pods.Uncontrolled(set.Namespace)
	var orphans []*corev1.Pod
	for _, pod := range pods {
		if statefulset.SetOf(pod.Name) == set.Name && selector.Matches(labels.Set(pod.Labels)) {
			if now, exists := reconcile.Newest(k.Own, set.UID, pod, true); exists && metav1.GetControllerOfNoCopy(now) == nil {
				orphans = append(orphans, now)
			}
		}
	}
	return orphans, err
}

// betweenRevisions are the sets for which images may be pulled ahead.
func (k *Kube) betweenRevisions(ctx context.Context) ([]ctrl.Request, error) {
	var sets appsv1beta1.StatefulSetList
	if err := k.Client.List(ctx, &sets, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	var requests []ctrl.Request
	for i := range sets.Items {
		if status := &sets.Items[i].Status; status.CurrentRevision != status.UpdateRevision {
			requests = append(requests, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&sets.Items[i])})
		}
	}
	return requests, nil
}
