package controller

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	lru "k8s.io/apimachinery/pkg/util/cache"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/afloat-project/afloat/internal/engine/workloadkind"
	"github.com/afloat-project/afloat/internal/kinds/podunavailablebudget"
	"github.com/afloat-project/afloat/internal/platform/apiserver"
)

// The scale subresource says how many pods a workload should have, regardless of its kind. Other
// kinds need additional permissions, which users grant.
//
// +kubebuilder:rbac:groups=apps,roleName=kruise-manager-budget-role,resources=deployments/scale;replicasets/scale;statefulsets/scale,verbs=get
// +kubebuilder:rbac:groups="",roleName=kruise-manager-budget-role,resources=replicationcontrollers/scale,verbs=get
// +kubebuilder:rbac:groups=apps.kruise.io,roleName=kruise-manager-budget-role,resources=clonesets/scale;statefulsets/scale;uniteddeployments/scale,verbs=get

// followed are the kinds that are watched, as metadata only, once a budget depends on one of them. Objects of
// other kinds are read from time to time.
var followed = []schema.GroupKind{workloadkind.Deployment, workloadkind.ReplicaSet, workloadkind.StatefulSet,
	workloadkind.ReplicationController, workloadkind.CloneSet, workloadkind.AdvancedStatefulSet}

// counted reports whether workloads of the kind only have pods whose chain of controllers leads to them.
func counted(kind schema.GroupKind) bool { return slices.Contains(followed, kind) }

const (
	// replicasKept bounds how many workloads are remembered. What is read of a watched object is valid for
	// its generation, and what is read of others for otherFor.
	replicasKept    = 8192
	replicasKeptFor = time.Hour
	otherFor        = 10 * time.Second
	// unansweredFor is how long reading a workload from the API server is retried before budgets count
	// without an answer.
	unansweredFor = 10 * time.Second
)

// Workload is what a budget needs to know of a workload.
type Workload struct {
	// UID is empty if the workload may not be read.
	UID types.UID
	// Replicas is how many pods the workload should have, or nil if it does not say.
	Replicas *int32
	// Selector is the selector of its scale subresource, or nil if that has none.
	Selector labels.Selector
	// Doubt is why this may be out of date, or lack the replicas, because the API server did not answer. It
	// is empty if it did.
	Doubt string
}

// Workloads reads workloads of any kind.
type Workloads struct {
	caches cache.Cache
	live   client.Reader
	scales client.SubResourceReader
	mapper meta.RESTMapper
	known  *lru.LRUExpireCache

	mu        sync.Mutex
	informers map[schema.GroupKind]cache.Informer
	told      []func(namespace string, changed podunavailablebudget.Reference, moved bool)
}

// NewWorkloads returns a reader of workloads. caches has the metadata of watched kinds.
func NewWorkloads(
	caches cache.Cache, live client.Reader, scales client.SubResourceReader, mapper meta.RESTMapper,
) *Workloads {
	return &Workloads{caches: caches, live: live, scales: scales, mapper: mapper,
		known:     lru.NewLRUExpireCacheWithClock(replicasKept, clock.RealClock{}),
		informers: map[schema.GroupKind]cache.Informer{}}
}

// Tell registers a function that is called with each watched workload that appears, is deleted, or changes
// its spec or controller (PUB-105). moved reports that it is gone, or has another controller.
func (w *Workloads) Tell(do func(namespace string, changed podunavailablebudget.Reference, moved bool)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.told = append(w.told, do)
}

// Get returns a workload, or nil if it does not exist or is being deleted (PUB-036).
func (w *Workloads) Get(
	ctx context.Context, namespace string, of podunavailablebudget.Reference,
) (*Workload, error) {
	key := types.NamespacedName{Namespace: namespace, Name: of.Name}
	mapping, err := w.mapper.RESTMapping(of.GroupKind)
	if meta.IsNoMatchError(err) ||
		err == nil && (mapping.Scope.Name() != meta.RESTScopeNameNamespace || !exists(of.Name)) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("looking up %s: %w", of.GroupKind, err)
	}
	if !counted(of.GroupKind) {
		return w.other(ctx, mapping.GroupVersionKind, key)
	}

	found, err := w.metadata(ctx, of.GroupKind, key, "")
	if err != nil || found == nil || found.DeletionTimestamp != nil {
		return nil, err
	}

	kept := fmt.Sprintf("%s %d", found.UID, found.Generation)
	if known, ok := w.known.Get(kept); ok {
		if workload, ok := known.(*Workload); ok {
			return workload, nil
		}
	}

	workload, err := w.scale(ctx, mapping.GroupVersionKind, key)
	switch {
	case apierrors.IsForbidden(err): // it is unknown how many pods it should have
		return &Workload{UID: found.UID}, nil
	case err != nil:
		return w.unanswered(ctx, whole(of.GroupKind, key), found.UID, err)
	case workload != nil && workload.UID == found.UID:
		w.known.Add(kept, workload, replicasKeptFor)
		w.answered(whole(of.GroupKind, key), workload)
	}

	return workload, nil
}

// whole returns kind, namespace and name of a workload as one string.
func whole(kind schema.GroupKind, key types.NamespacedName) string {
	return kind.String() + " " + key.String()
}

// answered remembers what was read of a workload.
func (w *Workloads) answered(name string, workload *Workload) {
	w.known.Add("last "+name, workload, replicasKeptFor)
	w.known.Remove("unanswered " + name)
}

// unanswered returns what counts for a workload that cannot be read. At first it returns an error, which may
// be temporary. But a scale subresource, or the conversion webhook of a kind, may never answer, and one such
// workload must not keep a budget from counting all others. Then the last known state counts, or else the
// number of replicas is unknown.
func (w *Workloads) unanswered(
	ctx context.Context, name string, uid types.UID, err error,
) (*Workload, error) {
	if ctx.Err() != nil {
		return nil, err
	}
	if _, since := w.known.Get("unanswered " + name); !since {
		w.known.Add("unanswered "+name, true, replicasKeptFor)
		w.known.Add("asked "+name, true, unansweredFor)
	}
	if _, recently := w.known.Get("asked " + name); recently {
		return nil, err
	}

	workload := &Workload{UID: uid}
	if kept, ok := w.known.Get("last " + name); ok {
		if last, ok := kept.(*Workload); ok && (uid == "" || last.UID == uid) {
			*workload = *last
		}
	}
	workload.Doubt = err.Error()
	return workload, nil
}

// other reads a workload of a kind that is not watched.
func (w *Workloads) other(
	ctx context.Context, kind schema.GroupVersionKind, key types.NamespacedName,
) (*Workload, error) {
	kept := whole(kind.GroupKind(), key)
	if known, ok := w.known.Get(kept); ok {
		workload, _ := known.(*Workload)
		return workload, nil
	}

	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(kind)
	err := w.live.Get(ctx, key, object)
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) {
		return w.unanswered(ctx, kept, "", fmt.Errorf("reading %s %s: %w", kind.Kind, key, err))
	}

	var workload *Workload
	if !apierrors.IsNotFound(err) && object.GetDeletionTimestamp() == nil {
		scaled, errScale := w.scale(ctx, kind, key)
		switch {
		case errScale != nil && !apierrors.IsForbidden(errScale):
			return w.unanswered(ctx, kept, object.GetUID(), errScale)
		case scaled != nil:
			workload = scaled
		default:
			workload = &Workload{UID: object.GetUID(), Replicas: desiredByNodes(object)}
		}
	}
	if workload != nil { // that there is none is not remembered, since one that appears must not be missed
		w.known.Add(kept, workload, otherFor)
		w.answered(kept, workload)
	}

	return workload, nil
}

// desiredByNodes returns the desired number of pods from the status of a workload with one pod for each node,
// such as a DaemonSet, which has no scale. It returns nil if no controller has set it.
func desiredByNodes(object *unstructured.Unstructured) *int32 {
	status, _, _ := unstructured.NestedMap(object.Object, "status")
	observed, _, _ := unstructured.NestedInt64(status, "observedGeneration")
	desired, found, _ := unstructured.NestedInt64(status, "desiredNumberScheduled")
	if !found || observed == 0 {
		return nil
	}
	return new(int32(max(min(desired, math.MaxInt32), 0)))
}

// metadata reads a watched workload from the cache, or from the API server if the cache does not have it: an
// object that is not in the cache yet must not count as gone. uid is the expected UID, or empty for any.
func (w *Workloads) metadata(
	ctx context.Context, kind schema.GroupKind, key types.NamespacedName, uid types.UID,
) (*metav1.PartialObjectMetadata, error) {
	object := metadataOf(kind)
	if w.filled(ctx, kind) {
		if err := w.caches.Get(ctx, key, object, client.UnsafeDisableDeepCopy); err == nil &&
			(uid == "" || object.UID == uid) {
			return object, nil
		}
		object = metadataOf(kind)
	}

	switch err := w.live.Get(ctx, key, object); {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading %s %s: %w", kind.Kind, key, err)
	}

	return object, nil
}

// metadataOf returns an empty object of a watched kind.
func metadataOf(kind schema.GroupKind) *metav1.PartialObjectMetadata {
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(workloadkind.Of(kind).GroupVersionKind())
	return object
}

// filled starts to watch a kind, and reports whether the cache has all its objects.
func (w *Workloads) filled(ctx context.Context, kind schema.GroupKind) bool {
	if w.caches == nil {
		return false
	}

	w.mu.Lock()
	defer w.mu.Unlock()
	if informer := w.informers[kind]; informer != nil {
		return informer.HasSynced()
	}

	informer, err := w.caches.GetInformer(ctx, metadataOf(kind), cache.BlockUntilSynced(false))
	if err != nil {
		return false
	}
	if _, err := informer.AddEventHandler(w.handler(kind)); err != nil {
		return false
	}

	w.informers[kind] = informer
	return informer.HasSynced()
}

func (w *Workloads) handler(kind schema.GroupKind) toolscache.ResourceEventHandler {
	tell := func(object any, moved bool) {
		if last, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
			object = last.Obj
		}
		of, ok := object.(client.Object)
		if !ok {
			return
		}

		w.mu.Lock()
		told := w.told
		w.mu.Unlock()

		for _, do := range told {
			do(of.GetNamespace(), podunavailablebudget.Reference{GroupKind: kind, Name: of.GetName()}, moved)
		}
	}

	return toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) {
			tell(object, false)
		},
		DeleteFunc: func(object any) { tell(object, true) },
		UpdateFunc: func(old, object any) {
			before, ok := old.(client.Object)
			after, ok2 := object.(client.Object)
			if !ok || !ok2 {
				return
			}
			moved := controllerOf(before) != controllerOf(after) || before.GetUID() != after.GetUID()
			if moved || before.GetGeneration() != after.GetGeneration() ||
				(before.GetDeletionTimestamp() == nil) != (after.GetDeletionTimestamp() == nil) {
				tell(object, moved)
			}
		}}
}

// scale reads the scale subresource. It returns nil if the object does not exist or has no scale.
func (w *Workloads) scale(
	ctx context.Context, kind schema.GroupVersionKind, key types.NamespacedName,
) (*Workload, error) {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(kind)
	object.SetNamespace(key.Namespace)
	object.SetName(key.Name)
	scale, err := apiserver.ReadScale(ctx, w.scales, object)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}

	workload := &Workload{UID: scale.UID, Replicas: &scale.Spec.Replicas}
	if scale.Status.Selector != "" {
		if selector, err := labels.Parse(scale.Status.Selector); err == nil && !selector.Empty() {
			workload.Selector = selector
		}
	}

	return workload, nil
}
