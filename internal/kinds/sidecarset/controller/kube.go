package controller

import (
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/kinds/sidecarset"
	"github.com/afloat-project/afloat/internal/platform/podindex"
	"github.com/afloat-project/afloat/internal/reconcile"
)

// Kube reads from the caches, over which own writes are laid.
type Kube struct {
	*reconcile.API
	// Pods finds pods in the caches.
	Pods *podindex.Index
	// Namespace is where revisions are kept.
	Namespace string
}

// Injected are the pods that list a SidecarSet, whether it exists or not; owner is its UID.
func (k *Kube) Injected(name string, owner types.UID) ([]*corev1.Pod, error) {
	pods, err := k.Pods.InjectedBy(name)
	return reconcile.Overlay(k.Own, owner, pods, func(pod *corev1.Pod) bool {
		return slices.Contains(pub.InjectedSidecarSets(pod.Annotations[pub.SidecarSetInjectedList]), name)
	}), err
}

// Snapshot reads the pods and revisions of a SidecarSet. The objects are the caches' own and must not be
// changed. Time and features are filled in by the pass.
func (k *Kube) Snapshot(ctx context.Context, set *appsv1beta1.SidecarSet) (*sidecarset.Snapshot, error) {
	snapshot := &sidecarset.Snapshot{Set: set, RevisionNamespace: k.Namespace}
	var err error
	if snapshot.Pods, err = k.Injected(set.Name, set.UID); err != nil {
		return nil, err
	}
	if snapshot.Disruptions, err = k.Limits(ctx, snapshot.Pods); err != nil {
		return nil, err
	}
	if set.Spec.NamespaceSelector != nil {
		if snapshot.Namespaces, err = k.namespaces(ctx, snapshot.Pods); err != nil {
			return nil, err
		}
	}
	var revisions appsv1.ControllerRevisionList
	if err := k.Client.List(ctx, &revisions, client.InNamespace(k.Namespace),
		client.MatchingLabels{pub.SidecarSetName: set.Name},
		client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing revisions: %w", err)
	}

	for i := range revisions.Items {
		snapshot.Revisions = append(snapshot.Revisions, &revisions.Items[i])
	}

	snapshot.Revisions = reconcile.Overlay(k.Own, set.UID, snapshot.Revisions,
		func(r *appsv1.ControllerRevision) bool { return r.Labels[pub.SidecarSetName] == set.Name })
	return snapshot, nil
}

func (k *Kube) namespaces(ctx context.Context, pods []*corev1.Pod) (map[string]map[string]string, error) {
	known, asked := map[string]map[string]string{}, map[string]bool{}
	for _, pod := range pods {
		if asked[pod.Namespace] {
			continue
		}
		asked[pod.Namespace] = true
		namespace := namespaceMetadata()
		switch err := k.Client.Get(ctx, types.NamespacedName{Name: pod.Namespace}, namespace,
			client.UnsafeDisableDeepCopy); {
		case err == nil:
			known[pod.Namespace] = namespace.Labels
		case !apierrors.IsNotFound(err):
			return nil, fmt.Errorf("reading namespace %s: %w", pod.Namespace, err)
		}
	}

	return known, nil
}

func namespaceMetadata() *metav1.PartialObjectMetadata {
	namespace := &metav1.PartialObjectMetadata{}
	namespace.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	return namespace
}
