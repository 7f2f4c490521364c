// Package controller records where pods of workloads with stable names are ready, and follows these records
// for the webhooks.
package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/workloadkind"
	"github.com/afloat-project/afloat/internal/kinds/persistentpodstate"
	"github.com/afloat-project/afloat/internal/kinds/statefulset"
	"github.com/afloat-project/afloat/internal/kinds/workloadspread"
	"github.com/afloat-project/afloat/internal/platform/apiserver"
	"github.com/afloat-project/afloat/internal/reconcile"
)

// Custom kinds need additional RBAC rules (PPS-017).
//
// +kubebuilder:rbac:groups=apps,resources=statefulsets,verbs=get;list;watch
// +kubebuilder:rbac:groups=apps.kruise.io,resources=statefulsets,verbs=get;list;watch

// errUnknown means that workloads of a kind cannot be read, because the kind is neither supported nor listed,
// or not served.
var errUnknown = errors.New("the kind is neither supported nor listed, or not served")

// Workloads reads workloads.
type Workloads interface {
	// Read returns a workload, or nil if it does not exist. live reads from the API server instead of the
	// caches. The error is errUnknown if workloads of the kind cannot be read.
	Read(ctx context.Context, namespace string, of persistentpodstate.Reference,
		live bool) (*persistentpodstate.Workload, error)
	// All returns the kinds that are supported or listed.
	All() []schema.GroupKind
}

// Kinds reads workloads from the caches, and follows the kinds that an administrator lists.
type Kinds struct {
	caches client.Reader
	live   client.Reader
	scales client.SubResourceReader
	mapper meta.RESTMapper
	listed func() workloadspread.AllowList
	ready  func() bool
	// startOrdinal is the gate StatefulSetStartOrdinal for Advanced StatefulSets.
	startOrdinal bool
	informers    func(ctx context.Context, object client.Object) (cache.Informer, error)

	mu       sync.Mutex
	followed map[schema.GroupKind]cache.Informer
	// told holds the watchers that receive the objects of a kind, relisted the functions to call when the
	// list was read.
	told     map[string]bool
	relisted []func()
}

// NewKinds returns a reader of workloads; listed returns the kinds that an administrator lists, and is valid
// once ready returns true.
func NewKinds(
	mgr manager.Manager, listed func() workloadspread.AllowList, ready func() bool, startOrdinal bool,
) *Kinds {
	return &Kinds{
		caches:       mgr.GetCache(),
		live:         mgr.GetAPIReader(),
		scales:       mgr.GetClient().SubResource("scale"),
		mapper:       mgr.GetRESTMapper(),
		listed:       listed,
		ready:        ready,
		startOrdinal: startOrdinal,
		followed:     map[schema.GroupKind]cache.Informer{},
		told:         map[string]bool{},
		informers: func(ctx context.Context, object client.Object) (cache.Informer, error) {
			return mgr.GetCache().GetInformer(ctx, object, cache.BlockUntilSynced(false))
		},
	}
}

// All implements Workloads.
func (k *Kinds) All() []schema.GroupKind {
	kinds := []schema.GroupKind{workloadkind.StatefulSet, workloadkind.AdvancedStatefulSet}
	for _, custom := range k.listed().Workloads {
		if kind := custom.GroupKind(); kind.Kind != "" && !slices.Contains(kinds, kind) {
			kinds = append(kinds, kind)
		}
	}
	return kinds
}

// empty returns an empty object of the kind, to read into.
func (k *Kinds) empty(kind schema.GroupKind) (client.Object, error) {
	if persistentpodstate.BuiltIn(kind) {
		return workloadkind.Of(kind).New(), nil
	}
	if !k.ready() {
		return nil, errors.New("it is not known yet which kinds are listed")
	}

	custom, ok := k.listed().Workload(kind)
	if !ok {
		return nil, errUnknown
	}

	document, err := apiserver.Document(k.mapper, custom.GroupVersionKind)
	if meta.IsNoMatchError(err) {
		err = errUnknown
	}
	if err != nil {
		return nil, err
	}

	return document, nil
}

// Read implements Workloads.
func (k *Kinds) Read(
	ctx context.Context, namespace string, of persistentpodstate.Reference, live bool,
) (*persistentpodstate.Workload, error) {
	object, err := k.empty(of.GroupKind)
	if err != nil {
		return nil, err
	}

	from := k.caches
	if live || !persistentpodstate.BuiltIn(of.GroupKind) && !k.filled(of.GroupKind) {
		from = k.live
	}

	key := types.NamespacedName{Namespace: namespace, Name: of.Name}
	switch err := from.Get(ctx, key, object); {
	case meta.IsNoMatchError(err), reconcile.IsNotServed(err): // the version may no longer be served
		return nil, errUnknown
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading %s %s: %w", of.Kind, key, err)
	}

	return k.workload(ctx, of, object)
}

// workload converts an object.
func (k *Kinds) workload(
	ctx context.Context, of persistentpodstate.Reference, object client.Object,
) (*persistentpodstate.Workload, error) {
	w := &persistentpodstate.Workload{
		Reference:   of,
		UID:         object.GetUID(),
		Created:     object.GetCreationTimestamp().Time,
		Terminating: object.GetDeletionTimestamp() != nil,
		Annotations: object.GetAnnotations(),
	}
	w.Orphans = w.Terminating && slices.Contains(object.GetFinalizers(), metav1.FinalizerOrphanDependents)
	spec, desired, known := &appsv1beta1.StatefulSetSpec{}, workloadkind.Desired{}, true

	if state, typed := workloadkind.StateOf(object); typed {
		w.APIVersion = workloadkind.Of(state.Kind).GroupVersionKind().GroupVersion().String()
		desired = state.Desired
	}
	switch o := object.(type) {
	case *appsv1beta1.StatefulSet:
		spec.ReserveOrdinals = o.Spec.ReserveOrdinals
	case *unstructured.Unstructured:
		w.APIVersion, desired = o.GetAPIVersion(), workloadkind.DesiredOf(o.Object)
		if spec.ReserveOrdinals, known = reservedOf(o.Object); desired.Replicas == nil && known {
			found, err := apiserver.ReadScale(ctx, k.scales, o)
			if known = err == nil; known {
				desired.Replicas = &found.Spec.Replicas
			} else if !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) {
				return nil, err
			}
		}
	}

	if !known {
		return w, nil
	}

	spec.Replicas, spec.Ordinals = desired.Replicas, &appsv1beta1.StatefulSetOrdinals{Start: desired.Start}
	startOrdinal := k.startOrdinal || of.GroupKind != workloadkind.AdvancedStatefulSet
	if slots, err := statefulset.SlotsOf(spec, startOrdinal); err == nil {
		w.Slots = &slots
	}

	return w, nil
}

// reservedOf reads the reserved ordinals of a custom kind, which may have the same fields as a StatefulSet.
// It returns false if they have another form.
func reservedOf(object map[string]any) (reserved []intstr.IntOrString, ok bool) {
	entries, _, err := unstructured.NestedSlice(object, "spec", "reserveOrdinals")
	for _, entry := range entries {
		switch value := entry.(type) {
		case int64:
			reserved = append(reserved, intstr.FromInt32(int32(value)))
		case string:
			reserved = append(reserved, intstr.FromString(value))
		default:
			return nil, false
		}
	}

	return reserved, err == nil
}

// filled reports whether the cache has all objects of a listed kind.
func (k *Kinds) filled(kind schema.GroupKind) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	informer := k.followed[kind]
	return informer != nil && informer.HasSynced()
}

// Tell receives objects of listed kinds, before and after a change. An object that does not exist is nil.
type Tell func(kind schema.GroupKind, before, after client.Object)

// Follow watches the listed kinds for the watcher of that name, whose tell receives all objects. Kinds that
// it already watches stay watched (PPS-014).
func (k *Kinds) Follow(ctx context.Context, name string, tell Tell) (err error) {
	for _, kind := range k.All() {
		if !persistentpodstate.BuiltIn(kind) {
			err = errors.Join(err, k.follow(ctx, kind, name, tell))
		}
	}
	return err
}

func (k *Kinds) follow(ctx context.Context, kind schema.GroupKind, name string, tell Tell) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if key := name + "/" + kind.String(); k.told[key] {
		return nil
	} else if object, err := k.empty(kind); errors.Is(err, errUnknown) {
		return nil // it may be served later
	} else if err != nil {
		return err
	} else if err := k.watch(ctx, kind, object, tell); err != nil {
		return fmt.Errorf("watching %s: %w", kind, err)
	} else {
		k.told[key] = true
	}

	return nil
}

func (k *Kinds) watch(ctx context.Context, kind schema.GroupKind, object client.Object, tell Tell) error {
	informer, err := k.informers(ctx, object)
	if err != nil {
		return err
	}

	as := func(object any) client.Object {
		if last, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
			object = last.Obj
		}
		of, _ := object.(client.Object)
		return of
	}
	if _, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { tell(kind, nil, as(object)) },
		UpdateFunc: func(old, object any) { tell(kind, as(old), as(object)) },
		DeleteFunc: func(object any) { tell(kind, as(object), nil) },
	}); err == nil {
		k.followed[kind] = informer
	}
	return err
}

// WhenListed registers a function to call whenever the list was read.
func (k *Kinds) WhenListed(do func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.relisted = append(k.relisted, do)
}

// Relisted calls the functions of WhenListed.
func (k *Kinds) Relisted() {
	k.mu.Lock()
	all := slices.Clone(k.relisted)
	k.mu.Unlock()
	for _, do := range all {
		do()
	}
}
