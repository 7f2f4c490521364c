package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/workloadkind"
	"github.com/afloat-project/afloat/internal/kinds/workloadspread"
	"github.com/afloat-project/afloat/internal/platform/apiserver"
	"github.com/afloat-project/afloat/internal/platform/slim"
)

// Custom kinds need additional permissions, which an administrator grants.
//
// +kubebuilder:rbac:groups=apps,roleName=kruise-manager-workloadspread-role,resources=deployments;replicasets;statefulsets,verbs=get;list;watch
// +kubebuilder:rbac:groups=batch,roleName=kruise-manager-workloadspread-role,resources=jobs,verbs=get;list;watch
// +kubebuilder:rbac:groups=apps.kruise.io,roleName=kruise-manager-workloadspread-role,resources=clonesets;statefulsets,verbs=get;list;watch

// Workloads reads targets.
type Workloads interface {
	// Target returns the workload of a WorkloadSpread. It is no error if the workload does not exist. live
	// reads from the API server instead of the caches, and only what decides about new pods: the number of
	// replicas and the ordinals.
	Target(ctx context.Context, spread *appsv1beta1.WorkloadSpread, live bool) (*workloadspread.Target, error)
	// Ready reports whether the list of the users is known. Before that, only supported kinds are known.
	Ready() bool
	// Known reports whether the kind is supported, or listed by the user as a workload or as one of its
	// sub-resources (WS-051).
	Known(kind schema.GroupKind) bool
	// Parent returns the controller of an object of a known kind, and false if it has none. It returns a
	// NotFound error if the object does not exist (WS-052, WS-053).
	Parent(
		ctx context.Context, namespace string, of workloadspread.Reference,
	) (workloadspread.Reference, bool, error)
}

// Kinds reads workloads. A kind is cached from the first time that a WorkloadSpread refers to it, so that a
// cluster pays only for the kinds that are spread. Until its cache is filled, objects are read from the API
// server.
type Kinds struct {
	caches    cache.Cache
	live      client.Reader
	scales    client.SubResourceReader
	mapper    meta.RESTMapper
	scheme    *runtime.Scheme
	listed    func() workloadspread.AllowList
	ready     func() bool
	versioned workloadspread.Versioned

	mu       sync.Mutex
	followed map[schema.GroupKind]cache.Informer
	told     []func(namespace string, changed workloadspread.Reference)
}

var _ Workloads = &Kinds{}

// NewKinds returns a reader of workloads. listed returns the kinds that users list, and ready reports whether
// these are known.
func NewKinds(
	mgr manager.Manager, listed func() workloadspread.AllowList, ready func() bool,
	versioned workloadspread.Versioned,
) *Kinds {
	return &Kinds{caches: mgr.GetCache(), live: mgr.GetAPIReader(),
		scales: mgr.GetClient().SubResource("scale"), mapper: mgr.GetRESTMapper(),
		scheme: mgr.GetScheme(), listed: listed, ready: ready, versioned: versioned,
		followed: map[schema.GroupKind]cache.Informer{}}
}

// Ready implements Workloads.
func (k *Kinds) Ready() bool { return k.ready() }

// Known implements Workloads.
func (k *Kinds) Known(kind schema.GroupKind) bool {
	return workloadspread.BuiltIn(kind) || k.listed().Known(kind)
}

// empty returns an empty object of the kind. It returns a NotFound error if the kind is not served, since it
// has no objects then.
func (k *Kinds) empty(kind schema.GroupKind) (client.Object, error) {
	// Advanced StatefulSets are read as documents.
	if workloadspread.BuiltIn(kind) && kind != workloadkind.AdvancedStatefulSet {
		return workloadkind.Of(kind).New(), nil
	}

	custom, _ := k.listed().Workload(kind)
	document, err := apiserver.Document(k.mapper, kind.WithVersion(custom.Version))
	if meta.IsNoMatchError(err) {
		err = apierrors.NewNotFound(schema.GroupResource{Group: kind.Group, Resource: kind.Kind}, "")
	}
	if err != nil {
		return nil, err
	}

	return document, nil
}

// get reads an object from the cache if that is filled, and live otherwise. Objects that are read live are
// slimmed down, too.
func (k *Kinds) get(
	ctx context.Context, namespace string, of workloadspread.Reference, live bool,
) (client.Object, error) {
	object, err := k.empty(of.GroupKind)
	if err != nil {
		return nil, err
	}

	key := types.NamespacedName{Namespace: namespace, Name: of.Name}
	if !live && k.filled(of.GroupKind) {
		err = k.caches.Get(ctx, key, object)
	} else if err = k.live.Get(ctx, key, object); err == nil {
		_, err = slim.Workload(object)
	}
	if meta.IsNoMatchError(err) {
		err = apierrors.NewNotFound(schema.GroupResource{Group: of.Group, Resource: of.Kind}, of.Name)
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s %s: %w", of.Kind, key, err)
	}

	return object, nil
}

// Parent implements Workloads. An object that is not in the cache is read live.
func (k *Kinds) Parent(
	ctx context.Context, namespace string, of workloadspread.Reference,
) (workloadspread.Reference, bool, error) {
	object, err := k.get(ctx, namespace, of, false)
	if apierrors.IsNotFound(err) {
		object, err = k.get(ctx, namespace, of, true)
	}
	if err != nil {
		return workloadspread.Reference{}, false, err
	}

	parent, ok := workloadspread.ControllerOf(object)
	return parent, ok, nil
}

// Target implements Workloads.
func (k *Kinds) Target(
	ctx context.Context, spread *appsv1beta1.WorkloadSpread, live bool,
) (*workloadspread.Target, error) {
	target := &workloadspread.Target{Reference: workloadspread.TargetOf(spread)}

	custom, listed := k.listed().Workload(target.GroupKind)
	var paths []string
	if filter := spread.Spec.TargetFilter; filter != nil && len(filter.ReplicasPathList) > 0 {
		paths = filter.ReplicasPathList
	} else if listed && custom.ReplicasPath != "" && !workloadspread.BuiltIn(target.GroupKind) {
		paths = []string{custom.ReplicasPath}
	}

	object, err := k.get(ctx, spread.Namespace, target.Reference, live)
	if apierrors.IsNotFound(err) || err == nil && object.GetDeletionTimestamp() != nil {
		return target, nil
	}
	if err != nil {
		return nil, err
	}

	target.Exists, target.Controllers = true, []types.UID{object.GetUID()}
	if state, ok := workloadkind.StateOf(object); ok {
		target.Desired, target.Start = state.Pods(), int(state.Start)
	}

	switch workload := object.(type) {
	case *appsv1beta1.CloneSet:
		target.Costs = true
		k.latest(target, func() (string, error) {
			if workload.Status.ObservedGeneration < workload.Generation ||
				workload.Status.UpdateRevision == "" {
				return "", errors.New("its controller has not seen its last change yet")
			}
			return workloadspread.AfterLastDash(workload.Status.UpdateRevision), nil
		})
	case *appsv1.ReplicaSet:
		target.Costs = true
		k.latest(target, func() (string, error) { return workload.Labels[pub.PodTemplateHash], nil })
	case *appsv1.Deployment:
		if target.Costs = true; live {
			break
		}
		sets, err := k.replicaSets(ctx, workload)
		if err != nil {
			return nil, err
		}
		target.Controllers = nil
		for i := range sets {
			target.Controllers = append(target.Controllers, sets[i].UID)
		}
		k.latest(target, func() (string, error) { return latestOf(workload, sets) })
	case *batchv1.Job:
		if target.Selector, err = metav1.LabelSelectorAsSelector(workload.Spec.Selector); err != nil {
			return nil, fmt.Errorf("selector of Job %s: %w", workload.Name, err)
		}
	case *unstructured.Unstructured:
		if target.GroupKind == workloadkind.AdvancedStatefulSet {
			target.Desired, target.Start, target.Reserved, target.DesiredError =
				workloadspread.ReadAdvanced(workload.Object)
			break
		}
		if len(paths) == 0 {
			target.Desired, target.DesiredError = k.scaleReplicas(ctx, workload)
		}
		if live {
			break
		}
		target.Costs = custom.DeletionCost
		below, err := k.below(ctx, spread.Namespace, custom.SubResources, workload.GetUID())
		if err != nil {
			return nil, err
		}
		target.Controllers = append(target.Controllers, below...)
		target.Fallback = func() (labels.Selector, error) { return k.scaleSelector(ctx, workload) }
	}

	if len(paths) > 0 {
		target.Desired, target.DesiredError =
			k.atPaths(ctx, spread.Namespace, object, target.Reference, paths)
	}

	return target, nil
}

// atPaths reads the replicas at the paths. Cached objects of supported kinds lack most fields, so the object
// is read live.
func (k *Kinds) atPaths(
	ctx context.Context, namespace string, object client.Object, of workloadspread.Reference, paths []string,
) (int32, error) {
	whole, ok := object.(*unstructured.Unstructured)
	if !ok {
		typed, err := k.empty(of.GroupKind)
		if err != nil {
			return 0, err
		}
		if err := k.live.Get(
			ctx, types.NamespacedName{Namespace: namespace, Name: of.Name}, typed,
		); err != nil {
			return 0, fmt.Errorf("reading %s %s/%s: %w", of.Kind, namespace, of.Name, err)
		}
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
		if err != nil {
			return 0, fmt.Errorf("reading %s %s/%s: %w", of.Kind, namespace, of.Name, err)
		}
		whole = &unstructured.Unstructured{Object: content}
	}

	return workloadspread.Replicas(whole.Object, paths)
}

// latest sets the version of new pods, if pods of that kind are counted by version.
func (k *Kinds) latest(target *workloadspread.Target, find func() (string, error)) {
	if k.versioned.Has(target.Kind) {
		target.Latest, target.LatestError = find()
	}
}

// replicaSets returns the ReplicaSets of a Deployment that are not being deleted.
func (k *Kinds) replicaSets(ctx context.Context, deployment *appsv1.Deployment) ([]appsv1.ReplicaSet, error) {
	var all appsv1.ReplicaSetList
	var err error
	if k.filled(workloadkind.ReplicaSet) {
		err = k.caches.List(ctx, &all, client.InNamespace(deployment.Namespace), client.UnsafeDisableDeepCopy)
	} else {
		err = k.live.List(ctx, &all, client.InNamespace(deployment.Namespace))
	}
	if err != nil {
		return nil, fmt.Errorf("listing the ReplicaSets of Deployment %s/%s: %w", deployment.Namespace,
			deployment.Name, err)
	}

	var owned []appsv1.ReplicaSet
	for i := range all.Items {
		set := &all.Items[i]
		if owner := metav1.GetControllerOfNoCopy(set); set.DeletionTimestamp == nil && owner != nil &&
			owner.UID == deployment.UID {
			if _, err := slim.Workload(set); err != nil {
				return nil, fmt.Errorf("reading ReplicaSet %s: %w", set.Name, err)
			}
			owned = append(owned, *set)
		}
	}

	return owned, nil
}

// emptyList returns an empty list for the kind of an object that empty returned.
func (k *Kinds) emptyList(object client.Object) (client.ObjectList, error) {
	kind, err := apiutil.GVKForObject(object, k.scheme)
	if err != nil {
		return nil, err
	}
	kind.Kind += "List"
	if _, custom := object.(*unstructured.Unstructured); custom {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind)
		return list, nil
	}

	made, err := k.scheme.New(kind)
	if err != nil {
		return nil, err
	}

	list, ok := made.(client.ObjectList)
	if !ok {
		return nil, fmt.Errorf("%s is no list", kind)
	}

	return list, nil
}

// filled reports whether the cache has all objects of the kind.
func (k *Kinds) filled(kind schema.GroupKind) bool {
	k.mu.Lock()
	informer := k.followed[kind]
	k.mu.Unlock()
	return informer != nil && informer.HasSynced()
}

// below returns the UIDs of the objects of the listed kinds between a workload and its pods.
func (k *Kinds) below(
	ctx context.Context, namespace string, kinds []schema.GroupVersionKind, of types.UID,
) ([]types.UID, error) {
	parents, read := map[types.UID][]types.UID{}, map[schema.GroupKind]bool{}
	for _, kind := range kinds {
		if read[kind.GroupKind()] { // listed in another version; these are the same objects
			continue
		}
		read[kind.GroupKind()] = true

		object, err := k.empty(kind.GroupKind())
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, err
		}

		list, err := k.emptyList(object)
		if err == nil && k.filled(kind.GroupKind()) {
			err = k.caches.List(ctx, list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy)
		} else if err == nil {
			err = k.live.List(ctx, list, client.InNamespace(namespace))
		}
		if err == nil {
			err = meta.EachListItem(list, func(item runtime.Object) error {
				child, err := meta.Accessor(item)
				if err != nil {
					return err
				}
				if owner := metav1.GetControllerOfNoCopy(child); owner != nil {
					parents[owner.UID] = append(parents[owner.UID], child.GetUID())
				}
				return nil
			})
		}
		if err != nil {
			return nil, fmt.Errorf("listing %s: %w", kind.GroupKind(), err)
		}
	}

	var found []types.UID
	for open := []types.UID{of}; len(open) > 0; open = open[1:] {
		found = append(found, parents[open[0]]...)
		open = append(open, parents[open[0]]...)
	}

	return found, nil
}

// latestOf returns the hash of the ReplicaSet that has the Deployment's template. Several may seem to have
// it, since our types may not know every field. Then it is the one of the Deployment's revision, or else the
// oldest, which is the one that the Deployment controller chooses.
func latestOf(deployment *appsv1.Deployment, sets []appsv1.ReplicaSet) (string, error) {
	present := func(set *appsv1.ReplicaSet) int {
		if revision, ok := set.Annotations[slim.DeploymentRevision]; ok &&
			revision == deployment.Annotations[slim.DeploymentRevision] {
			return 0
		}
		return 1
	}
	before := func(a, b *appsv1.ReplicaSet) bool {
		return cmp.Or(cmp.Compare(present(a), present(b)),
			a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name)) < 0
	}

	var latest *appsv1.ReplicaSet
	for i := range sets {
		if sets[i].Annotations[slim.TemplateSum] != deployment.Annotations[slim.TemplateSum] {
			continue
		}
		if latest == nil || before(&sets[i], latest) {
			latest = &sets[i]
		}
	}

	if latest == nil {
		return "", errors.New("it has no ReplicaSet of its present template yet")
	}

	return latest.Labels[pub.PodTemplateHash], nil
}

func (k *Kinds) scaleReplicas(ctx context.Context, object *unstructured.Unstructured) (int32, error) {
	scale, err := apiserver.ReadScale(ctx, k.scales, object)
	if err != nil {
		return 0, err
	}
	return scale.Spec.Replicas, nil
}

func (k *Kinds) scaleSelector(
	ctx context.Context, object *unstructured.Unstructured,
) (labels.Selector, error) {
	scale, err := apiserver.ReadScale(ctx, k.scales, object)
	if apierrors.IsNotFound(err) {
		return nil, nil // the kind has no such subresource
	}
	if err != nil || scale.Status.Selector == "" {
		return nil, err
	}
	selector, err := labels.Parse(scale.Status.Selector)
	if err != nil {
		return nil, fmt.Errorf("selector of the scale of %s %s: %w", object.GetKind(), object.GetName(), err)
	}
	return selector, nil
}
