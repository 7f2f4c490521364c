package cloneset

import (
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/podplan"
	"github.com/afloat-project/afloat/internal/platform/podindex"
	"github.com/afloat-project/afloat/internal/reconcile"
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

// Kube reads from the caches, over which own writes are laid.
type Kube struct {
	*reconcile.API
	// Pods finds pods in the caches.
	Pods *podindex.Index
	// pulls is the watch of ImagePullJobs, nil without the feature.
	pulls *pullWatch
}

// Owner returns the UID of a set in the cache, empty if there is none.
func (k *Kube) Owner(ctx context.Context, name types.NamespacedName) (types.UID, error) {
	set := &appsv1beta1.CloneSet{}
	if err := k.Client.Get(ctx, name, set, client.UnsafeDisableDeepCopy); client.IgnoreNotFound(err) != nil {
		return "", fmt.Errorf("reading CloneSet: %w", err)
	}
	return set.UID, nil
}

// Set returns a set, and nil if it does not exist.
func (k *Kube) Set(ctx context.Context, name types.NamespacedName, owner types.UID) (*appsv1beta1.CloneSet, error) {
	set := &appsv1beta1.CloneSet{}
	if err := k.Client.Get(ctx, name, set, client.UnsafeDisableDeepCopy); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	if set, exists := reconcile.Newest(k.Own, owner, set, true); exists {
		return set, nil
	}
	return nil, nil
}

// Snapshot reads what the set owns. The objects are the caches' own and must not be changed. Time, chance and features are filled in by the pass.
func (k *Kube) Snapshot(ctx context.Context, set *appsv1beta1.CloneSet) (*Snapshot, error) {
	snapshot := &Snapshot{Set: set}
	controlled := func(object client.Object) bool {
		controller := metav1.GetControllerOfNoCopy(object)
		return controller != nil && controller.UID == set.UID
	}
	owned := []client.ListOption{client.InNamespace(set.Namespace), client.MatchingFields{ownerIndex: string(set.UID)}, client.UnsafeDisableDeepCopy}
	var err error
	if snapshot.Pods, err = k.Pods.ControlledBy(set.Namespace, set.UID); err != nil {
		return nil, err
	}
	snapshot.Pods = reconcile.Laid(k.Own, set.UID, snapshot.Pods, func(pod *corev1.Pod) bool { return controlled(pod) })
	if err := k.orphans(snapshot); err != nil {
		return nil, err
	}
	if snapshot.Claims, err = k.claims(ctx, set, string(set.UID)); err != nil {
		return nil, err
	}
	if snapshot.HandedClaims, err = k.claims(ctx, set, handed); err != nil {
		return nil, err
	}
	if err := k.nodes(ctx, snapshot); err != nil {
		return nil, err
	}
	for _, unmanned := range snapshot.unmanned() {
		pod := &corev1.Pod{}
		name := types.NamespacedName{Namespace: set.Namespace, Name: unmanned}
		err := k.Client.Get(ctx, name, pod, client.UnsafeDisableDeepCopy)
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("reading pod %s: %w", unmanned, err)
		}
		pod.Namespace, pod.Name = name.Namespace, name.Name
		if pod, exists := reconcile.Newest(k.Own, set.UID, pod, err == nil); exists {
			snapshot.Strangers = append(snapshot.Strangers, pod)
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
		if err := k.Client.List(ctx, &orphans, client.InNamespace(set.Namespace), client.MatchingFields{ownerIndex: nobody},
			client.MatchingLabelsSelector{Selector: selector}, client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("listing revisions without owner: %w", err)
		}
	}
	for _, items := range [][]appsv1.ControllerRevision{revisions.Items, orphans.Items} {
		for i := range items {
			snapshot.Revisions = append(snapshot.Revisions, &items[i])
		}
	}
	snapshot.Revisions = reconcile.Laid(k.Own, set.UID, snapshot.Revisions, func(r *appsv1.ControllerRevision) bool { return ours(set, r) })
	return snapshot, nil
}

// claims are those of the set's namespace that are found by a value of the index.
func (k *Kube) claims(ctx context.Context, set *appsv1beta1.CloneSet, by string) ([]*corev1.PersistentVolumeClaim, error) {
	var list corev1.PersistentVolumeClaimList
	if err := k.Client.List(ctx, &list, client.InNamespace(set.Namespace), client.MatchingFields{ownerIndex: by}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing claims: %w", err)
	}
	var claims []*corev1.PersistentVolumeClaim
	for i := range list.Items {
		claims = append(claims, &list.Items[i])
	}
	return reconcile.Laid(k.Own, set.UID, claims, func(claim *corev1.PersistentVolumeClaim) bool { return slices.Contains(indexByController(claim), by) }), nil
}

// nodes reads of the pods' nodes what decisions need: labels, if the set has more pods than it should and spreads them over domains (CS-151);
// and whether they are lost, if inactive pods on them have claims that others could take over (CS-335).
func (k *Kube) nodes(ctx context.Context, s *Snapshot) error {
	spread := len(topologyKeys(s.Set)) > 0 && (s.Set.Spec.Replicas == nil || len(s.Pods) > int(*s.Set.Spec.Replicas))
	reuse := len(s.Claims) > 0 && s.Set.Spec.ScaleStrategy.EnablePVCReuse
	seen := map[string]bool{"": true}
	for _, pod := range s.Pods {
		name := pod.Spec.NodeName
		if seen[name] || !spread && (!reuse || podplan.Active(pod)) {
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
