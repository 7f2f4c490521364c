package cloneset

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/platform/ownwrites"
	"github.com/afloat-project/afloat/internal/platform/podindex"
)

const (
	// ownerIndex finds objects by the UID of their controller.
	ownerIndex = "metadata.controller.uid"
	// nobody is the index value of objects without a controller.
	nobody = "nobody"
	// handed is the index value of claims that pods of CloneSets take along.
	handed = "handed"
)

func indexByController(object client.Object) []string {
	owner := metav1.GetControllerOfNoCopy(object)
	if owner == nil {
		return []string{nobody}
	}
	if owner.Kind == "Pod" && object.GetLabels()[pub.CloneSetInstanceID] != "" {
		return []string{string(owner.UID), handed}
	}
	return []string{string(owner.UID)}
}

// Kube reads from the caches and writes to the API server.
type Kube struct {
	// Client reads from the caches; Reader from the API server.
	Client client.Client
	Reader client.Reader
	// Pods finds pods in the caches.
	Pods *podindex.Index
	// pulls is the watch of ImagePullJobs, nil without the feature.
	pulls *pullWatch
}

var (
	_ Reader  = (*Kube)(nil)
	_ Cluster = (*Kube)(nil)
)

// Owner implements Reader.
func (k *Kube) Owner(ctx context.Context, name types.NamespacedName) (types.UID, error) {
	set := &appsv1beta1.CloneSet{}
	if err := k.Client.Get(ctx, name, set, client.UnsafeDisableDeepCopy); err != nil {
		return "", client.IgnoreNotFound(err)
	}
	return set.UID, nil
}

// Snapshot implements Reader. The objects are the caches' own and must not be changed.
func (k *Kube) Snapshot(ctx context.Context, name types.NamespacedName) (*Snapshot, error) {
	set := &appsv1beta1.CloneSet{}
	if err := k.Client.Get(ctx, name, set, client.UnsafeDisableDeepCopy); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	snapshot := &Snapshot{Set: set}
	owned := []client.ListOption{client.InNamespace(name.Namespace), client.MatchingFields{ownerIndex: string(set.UID)}, client.UnsafeDisableDeepCopy}
	var err error
	if snapshot.Pods, err = k.Pods.ControlledBy(name.Namespace, set.UID); err != nil {
		return nil, err
	}
	if err := k.orphans(snapshot); err != nil {
		return nil, err
	}
	if snapshot.Claims, err = k.claims(ctx, owned...); err != nil {
		return nil, err
	}
	if snapshot.HandedClaims, err = k.claims(ctx, client.InNamespace(name.Namespace), client.MatchingFields{ownerIndex: handed}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	if err := k.nodes(ctx, snapshot); err != nil {
		return nil, err
	}
	for _, unmanned := range snapshot.unmanned() {
		pod := &corev1.Pod{}
		switch err := k.Client.Get(ctx, types.NamespacedName{Namespace: name.Namespace, Name: unmanned}, pod, client.UnsafeDisableDeepCopy); {
		case err == nil:
			snapshot.Strangers = append(snapshot.Strangers, pod)
		case !apierrors.IsNotFound(err):
			return nil, fmt.Errorf("reading pod %s: %w", unmanned, err)
		}
	}
	if err := k.readPullJobs(ctx, snapshot, owned); err != nil {
		return nil, err
	}
	var revisions, orphans appsv1.ControllerRevisionList
	if err := k.Client.List(ctx, &revisions, owned...); err != nil {
		return nil, fmt.Errorf("listing revisions: %w", err)
	}
	if selector, err := metav1.LabelSelectorAsSelector(set.Spec.Selector); err == nil { // otherwise the plan says so
		if err := k.Client.List(ctx, &orphans, client.InNamespace(name.Namespace), client.MatchingFields{ownerIndex: nobody},
			client.MatchingLabelsSelector{Selector: selector}, client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("listing revisions without owner: %w", err)
		}
	}
	for _, items := range [][]appsv1.ControllerRevision{revisions.Items, orphans.Items} {
		for i := range items {
			snapshot.Revisions = append(snapshot.Revisions, &items[i])
		}
	}
	return snapshot, nil
}

func (k *Kube) claims(ctx context.Context, options ...client.ListOption) ([]*corev1.PersistentVolumeClaim, error) {
	var list corev1.PersistentVolumeClaimList
	if err := k.Client.List(ctx, &list, options...); err != nil {
		return nil, fmt.Errorf("listing claims: %w", err)
	}
	var claims []*corev1.PersistentVolumeClaim
	for i := range list.Items {
		claims = append(claims, &list.Items[i])
	}
	return claims, nil
}

// nodes reads of the pods' nodes what decisions need: labels, if the set has more pods than it should and spreads them over domains (CS-151);
// and whether they are lost, if inactive pods on them have claims that others could take over (CS-335).
func (k *Kube) nodes(ctx context.Context, s *Snapshot) error {
	spread := len(topologyKeys(s.Set)) > 0 && (s.Set.Spec.Replicas == nil || len(s.Pods) > int(*s.Set.Spec.Replicas))
	reuse := len(s.Claims) > 0 && s.Set.Spec.ScaleStrategy.EnablePVCReuse
	seen := map[string]bool{"": true}
	for _, pod := range s.Pods {
		name := pod.Spec.NodeName
		if seen[name] || !spread && (!reuse || Active(pod)) {
			continue
		}
		seen[name] = true
		node := &corev1.Node{}
		err := k.Client.Get(ctx, types.NamespacedName{Name: name}, node, client.UnsafeDisableDeepCopy)
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("reading node %s: %w", name, err)
		}
		s.lookAt(name, node, err == nil)
	}
	return nil
}

// orphans finds pods that match the selector and that nobody controls (CS-355).
func (k *Kube) orphans(s *Snapshot) error {
	selector, err := metav1.LabelSelectorAsSelector(s.Set.Spec.Selector)
	if err != nil {
		selector = labels.Nothing() // the plan says so
	}
	if selector.Empty() {
		return nil
	}
	pods, err := k.Pods.Uncontrolled(s.Set.Namespace)
	for _, pod := range pods {
		if selector.Matches(labels.Set(pod.Labels)) {
			s.Orphans = append(s.Orphans, pod.Name)
		}
	}
	return err
}

func newObject(kind ownwrites.Kind) (client.Object, error) {
	switch kind {
	case KindPod:
		return &corev1.Pod{}, nil
	case KindClaim:
		return &corev1.PersistentVolumeClaim{}, nil
	case KindRevision:
		return &appsv1.ControllerRevision{}, nil
	case KindSet:
		return &appsv1beta1.CloneSet{}, nil
	}
	return nil, fmt.Errorf("unknown kind %q", kind)
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
	found, err := newObject(object.Kind)
	if err != nil {
		return nil, err
	}
	if err := reader.Get(ctx, object.NamespacedName, found, options...); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return nil, err
	}
	return found, nil
}

// GetPod implements Cluster with a live read.
func (k *Kube) GetPod(ctx context.Context, name types.NamespacedName) (*corev1.Pod, error) {
	pod := &corev1.Pod{}
	return pod, k.Reader.Get(ctx, name, pod)
}

// CreatePod implements Cluster. The document is sent as it is, fields that our types do not know included.
func (k *Kube) CreatePod(ctx context.Context, document map[string]any) (*corev1.Pod, error) {
	return create(ctx, k.Client, document, &corev1.Pod{})
}

// CreateClaim implements Cluster.
func (k *Kube) CreateClaim(ctx context.Context, document map[string]any) (*corev1.PersistentVolumeClaim, error) {
	return create(ctx, k.Client, document, &corev1.PersistentVolumeClaim{})
}

func create[T client.Object](ctx context.Context, c client.Client, document map[string]any, created T) (T, error) {
	sent := &unstructured.Unstructured{Object: document}
	if err := c.Create(ctx, sent); err != nil {
		return created, err
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(sent.Object, created); err != nil {
		return created, fmt.Errorf("reading the created object: %w", err)
	}
	return created, nil
}

// PatchPod implements Cluster.
func (k *Kube) PatchPod(ctx context.Context, pod *corev1.Pod, body []byte, subresource string) (*corev1.Pod, error) {
	patched := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
	return patched, k.patch(ctx, patched, client.RawPatch(types.StrategicMergePatchType, body), subresource)
}

// PatchClaim implements Cluster.
func (k *Kube) PatchClaim(ctx context.Context, claim *corev1.PersistentVolumeClaim, body []byte) (*corev1.PersistentVolumeClaim, error) {
	patched := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: claim.Namespace, Name: claim.Name}}
	return patched, k.patch(ctx, patched, client.RawPatch(types.MergePatchType, body), "")
}

// PatchSet implements Cluster.
func (k *Kube) PatchSet(ctx context.Context, set *appsv1beta1.CloneSet, body []byte, subresource string) (*appsv1beta1.CloneSet, error) {
	patched := &appsv1beta1.CloneSet{ObjectMeta: metav1.ObjectMeta{Namespace: set.Namespace, Name: set.Name}}
	return patched, k.patch(ctx, patched, client.RawPatch(types.MergePatchType, body), subresource)
}

// PatchRevision implements Cluster.
func (k *Kube) PatchRevision(ctx context.Context, r *appsv1.ControllerRevision, body []byte) (*appsv1.ControllerRevision, error) {
	patched := &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace, Name: r.Name}}
	return patched, k.patch(ctx, patched, client.RawPatch(types.MergePatchType, body), "")
}

func (k *Kube) patch(ctx context.Context, object client.Object, patch client.Patch, subresource string) error {
	if subresource != "" {
		return k.Client.SubResource(subresource).Patch(ctx, object, patch)
	}
	return k.Client.Patch(ctx, object, patch)
}

// DeletePod implements Cluster.
func (k *Kube) DeletePod(ctx context.Context, pod *corev1.Pod) error { return k.delete(ctx, pod) }

// DeleteClaim implements Cluster.
func (k *Kube) DeleteClaim(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	return k.delete(ctx, claim)
}

// DeleteRevision implements Cluster.
func (k *Kube) DeleteRevision(ctx context.Context, r *appsv1.ControllerRevision) error {
	return k.delete(ctx, r)
}

func (k *Kube) delete(ctx context.Context, object client.Object) error {
	uid, version := object.GetUID(), object.GetResourceVersion()
	exactly := client.Preconditions{UID: &uid}
	if version != "" {
		exactly.ResourceVersion = &version
	}
	return k.Client.Delete(ctx, object, exactly)
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
