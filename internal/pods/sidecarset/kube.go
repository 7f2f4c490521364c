package sidecarset

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/platform/ownwrites"
	"github.com/afloat-project/afloat/internal/platform/podindex"
)

// Kube reads from the caches and writes to the API server.
type Kube struct {
	// Client reads from the caches; Reader from the API server.
	Client client.Client
	Reader client.Reader
	// Pods finds pods in the caches.
	Pods *podindex.Index
	// Namespace is where revisions are kept.
	Namespace string
}

var (
	_ Reader  = (*Kube)(nil)
	_ Cluster = (*Kube)(nil)
)

// Owner implements Reader.
func (k *Kube) Owner(ctx context.Context, name string) (types.UID, error) {
	set := &appsv1beta1.SidecarSet{}
	if err := k.Client.Get(ctx, types.NamespacedName{Name: name}, set, client.UnsafeDisableDeepCopy); err != nil {
		return "", client.IgnoreNotFound(err)
	}
	return set.UID, nil
}

// Injected implements Reader.
func (k *Kube) Injected(name string) ([]*corev1.Pod, error) { return k.Pods.InjectedBy(name) }

// Snapshot implements Reader. The objects are the caches' own and must not be changed.
func (k *Kube) Snapshot(ctx context.Context, name string) (*Snapshot, error) {
	set := &appsv1beta1.SidecarSet{}
	if err := k.Client.Get(ctx, types.NamespacedName{Name: name}, set, client.UnsafeDisableDeepCopy); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	snapshot := &Snapshot{Set: set, RevisionNamespace: k.Namespace}
	var err error
	if snapshot.Pods, err = k.Pods.InjectedBy(name); err != nil {
		return nil, err
	}
	if set.Spec.NamespaceSelector != nil {
		if snapshot.Namespaces, err = k.namespaces(ctx, snapshot.Pods); err != nil {
			return nil, err
		}
	}
	var revisions appsv1.ControllerRevisionList
	if err := k.Client.List(ctx, &revisions, client.InNamespace(k.Namespace), client.MatchingLabels{pub.SidecarSetName: name}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing revisions: %w", err)
	}
	for i := range revisions.Items {
		snapshot.Revisions = append(snapshot.Revisions, &revisions.Items[i])
	}
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
		switch err := k.Client.Get(ctx, types.NamespacedName{Name: pod.Namespace}, namespace, client.UnsafeDisableDeepCopy); {
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

// Cached implements Reader.
func (k *Kube) Cached(ctx context.Context, object ownwrites.Object) (metav1.Object, error) {
	return get(ctx, k.Client, object, client.UnsafeDisableDeepCopy)
}

// Live implements Reader.
func (k *Kube) Live(ctx context.Context, object ownwrites.Object) (metav1.Object, error) {
	return get(ctx, k.Reader, object)
}

func get(ctx context.Context, reader client.Reader, object ownwrites.Object, options ...client.GetOption) (metav1.Object, error) {
	var found client.Object
	switch object.Kind {
	case KindPod:
		found = &corev1.Pod{}
	case KindRevision:
		found = &appsv1.ControllerRevision{}
	case KindSet:
		found = &appsv1beta1.SidecarSet{}
	default:
		return nil, fmt.Errorf("unknown kind %q", object.Kind)
	}
	if err := reader.Get(ctx, object.NamespacedName, found, options...); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return nil, fmt.Errorf("reading %s %s: %w", object.Kind, object.Name, err)
	}
	return found, nil
}

// GetPod implements Cluster with a live read.
func (k *Kube) GetPod(ctx context.Context, name types.NamespacedName) (*corev1.Pod, error) {
	pod := &corev1.Pod{}
	return pod, k.Reader.Get(ctx, name, pod)
}

// PatchPod implements Cluster.
func (k *Kube) PatchPod(ctx context.Context, pod *corev1.Pod, body []byte, subresource string) (*corev1.Pod, error) {
	patched := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
	patch := client.RawPatch(types.StrategicMergePatchType, body)
	if subresource != "" {
		return patched, k.Client.SubResource(subresource).Patch(ctx, patched, patch)
	}
	return patched, k.Client.Patch(ctx, patched, patch)
}

// GetRevision implements Cluster with a live read.
func (k *Kube) GetRevision(ctx context.Context, name types.NamespacedName) (*appsv1.ControllerRevision, error) {
	found := &appsv1.ControllerRevision{}
	return found, k.Reader.Get(ctx, name, found)
}

// CreateRevision implements Cluster.
func (k *Kube) CreateRevision(ctx context.Context, r *appsv1.ControllerRevision) (*appsv1.ControllerRevision, error) {
	created := r.DeepCopy()
	return created, k.Client.Create(ctx, created)
}

// PatchRevision implements Cluster.
func (k *Kube) PatchRevision(ctx context.Context, r *appsv1.ControllerRevision, body []byte) (*appsv1.ControllerRevision, error) {
	patched := &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace, Name: r.Name}}
	return patched, k.Client.Patch(ctx, patched, client.RawPatch(types.MergePatchType, body))
}

// DeleteRevision implements Cluster.
func (k *Kube) DeleteRevision(ctx context.Context, r *appsv1.ControllerRevision) error {
	uid, version := r.UID, r.ResourceVersion
	return k.Client.Delete(ctx, r, client.Preconditions{UID: &uid, ResourceVersion: &version})
}

// PatchStatus implements Cluster.
func (k *Kube) PatchStatus(ctx context.Context, set *appsv1beta1.SidecarSet, body []byte) (*appsv1beta1.SidecarSet, error) {
	patched := &appsv1beta1.SidecarSet{ObjectMeta: metav1.ObjectMeta{Name: set.Name}}
	return patched, k.Client.SubResource("status").Patch(ctx, patched, client.RawPatch(types.MergePatchType, body))
}
