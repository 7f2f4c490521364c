package podapply

import (
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/podplan"
	"github.com/afloat-project/afloat/internal/engine/revision"
	"github.com/afloat-project/afloat/internal/platform/podindex"
	"github.com/afloat-project/afloat/internal/reconcile"
)

const (
	// OwnerIndex is an index of objects by the UID of their controller. Those without one are indexed as
	// [Nobody].
	OwnerIndex = "metadata.controller.uid"
	// Nobody is the value of the index for objects without a controller.
	Nobody = "nobody"
)

// IndexByController returns the values of an object in [OwnerIndex].
func IndexByController(object client.Object) []string {
	owner := metav1.GetControllerOfNoCopy(object)
	if owner == nil {
		return []string{Nobody}
	}
	return []string{string(owner.UID)}
}

// IndexRevisions adds the index that finds the revisions of an owner, once for all controllers of a manager.
func IndexRevisions(ctx context.Context, indexer client.FieldIndexer) error {
	if err := indexer.IndexField(ctx, &appsv1.ControllerRevision{},
		OwnerIndex, IndexByController); err != nil {
		return fmt.Errorf("indexing ControllerRevisions by controller: %w", err)
	}
	return nil
}

// Reader reads what workloads own from the caches, with own writes laid over them. The objects belong to the
// caches and must not be changed.
type Reader struct {
	*reconcile.API
	// Pods finds pods in the caches.
	Pods *podindex.Index
	// PullJobs reports whether ImagePullJobs are known; nil means never.
	PullJobs func() bool
}

// Read reads what the owner controls, and the revisions without a controller that the selector matches. It
// leaves out the time and earlier failures.
func (r *Reader) Read(
	ctx context.Context, owner client.Object, selector *metav1.LabelSelector,
) (podplan.Snapshot, error) {
	snapshot, uid := podplan.Snapshot{}, owner.GetUID()
	owned := []client.ListOption{
		client.InNamespace(owner.GetNamespace()),
		client.MatchingFields{OwnerIndex: string(uid)},
		client.UnsafeDisableDeepCopy,
	}

	var err error
	if snapshot.Pods, err = r.Pods.ControlledBy(owner.GetNamespace(), uid); err != nil {
		return snapshot, err
	}
	snapshot.Pods = reconcile.Overlay(r.Own, uid, snapshot.Pods, func(pod *corev1.Pod) bool {
		controller := metav1.GetControllerOfNoCopy(pod)
		return controller != nil && controller.UID == uid
	})

	if snapshot.Disruptions, err = r.Limits(ctx, snapshot.Pods); err != nil {
		return snapshot, err
	}

	if snapshot.PullJobsServed = r.PullJobs != nil && r.PullJobs(); snapshot.PullJobsServed {
		var jobs metav1.PartialObjectMetadataList
		jobs.SetGroupVersionKind(podplan.PullJobKind)
		if err := r.Client.List(ctx, &jobs, owned...); err != nil {
			return snapshot, fmt.Errorf("listing image pull jobs: %w", err)
		}
		for i := range jobs.Items {
			snapshot.PullJobs = append(snapshot.PullJobs, &jobs.Items[i])
		}
	}

	var revisions, orphans appsv1.ControllerRevisionList
	if err := r.Client.List(ctx, &revisions, owned...); err != nil {
		return snapshot, fmt.Errorf("listing revisions: %w", err)
	}
	if labels, err := metav1.LabelSelectorAsSelector(selector); err == nil { // otherwise the plan reports it
		if err := r.Client.List(ctx, &orphans,
			client.InNamespace(owner.GetNamespace()),
			client.MatchingFields{OwnerIndex: Nobody},
			client.MatchingLabelsSelector{Selector: labels},
			client.UnsafeDisableDeepCopy,
		); err != nil {
			return snapshot, fmt.Errorf("listing revisions without owner: %w", err)
		}
	}

	for _, items := range [][]appsv1.ControllerRevision{revisions.Items, orphans.Items} {
		for i := range items {
			snapshot.Revisions = append(snapshot.Revisions, &items[i])
		}
	}
	snapshot.Revisions = reconcile.Overlay(r.Own, uid, snapshot.Revisions,
		func(found *appsv1.ControllerRevision) bool { return ours(owner, selector, found) })
	snapshot.Foreign, err = r.foreign(ctx, owner, &snapshot)
	return snapshot, err
}

// Orphans returns the pods of the owner's namespace that have no controller and match the selector, including
// those that only own writes show so far. owned are the pods that Read has returned; they are left out,
// because the caches may change between the two lists.
func (r *Reader) Orphans(
	owner client.Object, selector *metav1.LabelSelector, owned []*corev1.Pod,
) ([]*corev1.Pod, error) {
	matches, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil || matches.Empty() || owner.GetDeletionTimestamp() != nil {
		return nil, nil //nolint:nilerr // the plan says so
	}

	orphan := func(pod *corev1.Pod) bool {
		return metav1.GetControllerOfNoCopy(pod) == nil && matches.Matches(labels.Set(pod.Labels))
	}
	pods, err := r.Pods.Uncontrolled(owner.GetNamespace())
	pods = slices.DeleteFunc(pods, func(pod *corev1.Pod) bool { return !orphan(pod) })
	if pods = reconcile.Overlay(r.Own, owner.GetUID(), pods, orphan); len(pods) == 0 {
		return nil, err
	}

	known := sets.New[types.UID]()
	for _, pod := range owned {
		known.Insert(pod.UID)
	}
	return slices.DeleteFunc(pods, func(pod *corev1.Pod) bool { return known.Has(pod.UID) }), err
}

// foreign reads the revisions of other owners that pods of the owner are labeled with.
func (r *Reader) foreign(
	ctx context.Context, owner client.Object, s *podplan.Snapshot,
) (found []*appsv1.ControllerRevision, err error) {
	looked := map[string]bool{"": true}
	for _, stored := range s.Revisions {
		looked[stored.Name], looked[revision.ShortHash(stored.Name)] = true, true
	}
	for _, pod := range s.Pods {
		label := pod.Labels[pub.ControllerRevisionHash]
		if looked[label] {
			continue
		}
		looked[label] = true
		object := &appsv1.ControllerRevision{}
		name := types.NamespacedName{Namespace: owner.GetNamespace(), Name: revisionName(owner, label)}
		err := r.Client.Get(ctx, name, object, client.UnsafeDisableDeepCopy)
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("reading revision %s: %w", name.Name, err)
		}
		object.Namespace, object.Name = name.Namespace, name.Name
		if newest, exists := reconcile.Newest(r.Own, owner.GetUID(), object, err == nil); exists {
			found = append(found, newest)
		}
	}
	return found, nil
}

// ours reports whether a revision is one of those that plans for the owner are made from.
func ours(owner client.Object, selector *metav1.LabelSelector, found *appsv1.ControllerRevision) bool {
	if controller := metav1.GetControllerOfNoCopy(found); controller != nil {
		return controller.UID == owner.GetUID()
	}
	matches, err := metav1.LabelSelectorAsSelector(selector)
	return err == nil && matches.Matches(labels.Set(found.Labels))
}
