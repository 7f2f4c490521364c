package controller

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/afloat-project/afloat/internal/kinds/podunavailablebudget"
)

// Objects of other kinds need rights that users add (docs/manual/podunavailablebudget.md).
//
// +kubebuilder:rbac:groups=apps,roleName=kruise-manager-budget-role,resources=deployments;replicasets;statefulsets,verbs=get;list;watch
// +kubebuilder:rbac:groups=apps,roleName=kruise-manager-budget-role,resources=daemonsets,verbs=get
// +kubebuilder:rbac:groups=batch,roleName=kruise-manager-budget-role,resources=jobs,verbs=get;list;watch
// +kubebuilder:rbac:groups="",roleName=kruise-manager-budget-role,resources=replicationcontrollers,verbs=get;list;watch
// +kubebuilder:rbac:groups=apps.kruise.io,roleName=kruise-manager-budget-role,resources=clonesets;statefulsets,verbs=get;list;watch

const (
	// maxOwners is how far up a chain of controllers is followed. No workload comes near; a ring of references must not be endless.
	maxOwners = 10
	// ownersKept bounds what is remembered of controllers, for so long.
	ownersKept    = 8192
	ownersKeptFor = 30 * time.Second
)

// Owners tells what stands above a pod: its controller, the controller of that, and so on (PUB-072).
type Owners struct {
	live   client.Reader
	mapper meta.RESTMapper
	// watched reads an object of a kind that is watched; nil where none is.
	watched func(ctx context.Context, kind schema.GroupKind, key types.NamespacedName) (*metav1.PartialObjectMetadata, error)
	// parents are the controllers of controllers, by parentKey; nil entries have none.
	parents *cache.LRUExpireCache
}

// NewOwners returns who reads controllers from the API server, and remembers what controls them for a while.
func NewOwners(live client.Reader, mapper meta.RESTMapper, clock clock.Clock) *Owners {
	return &Owners{live: live, mapper: mapper, parents: cache.NewLRUExpireCacheWithClock(ownersKept, clock)}
}

// Chain is what stands above a pod, from its controller upwards, with their UIDs.
type Chain struct {
	References []podunavailablebudget.Reference
	UIDs       []types.UID
}

// controller is what an object says of its controller. Name and UID need not be of the same object: who writes a pod says what he likes, and
// what is found out holds only for those that say the same.
type controller struct {
	podunavailablebudget.Reference
	uid types.UID
}

// controllerOf returns the zero value for an object without controller.
func controllerOf(object metav1.Object) controller {
	owner := metav1.GetControllerOfNoCopy(object)
	if owner == nil {
		return controller{}
	}
	reference, _ := podunavailablebudget.ControllerOf(object)
	return controller{reference, owner.UID}
}

type parentKey struct {
	namespace string
	controller
}

// Above returns the chain of an object. What cannot be read for want of rights, or does not exist, has nothing above it; another error says
// that nobody knows.
func (o *Owners) Above(ctx context.Context, object metav1.Object) (Chain, error) {
	var chain Chain
	namespace, owner := object.GetNamespace(), metav1.GetControllerOfNoCopy(object)
	for owner != nil && len(chain.UIDs) < maxOwners {
		kind := schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind)
		key := parentKey{namespace, controller{podunavailablebudget.Reference{GroupKind: kind.GroupKind(), Name: owner.Name}, owner.UID}}
		chain.References, chain.UIDs = append(chain.References, key.Reference), append(chain.UIDs, key.uid)
		if known, ok := o.parents.Get(key); ok {
			owner, _ = known.(*metav1.OwnerReference)
			continue
		}
		found, err := o.read(ctx, namespace, kind, owner.Name)
		if err != nil {
			return Chain{}, err
		}
		var parent *metav1.OwnerReference
		if found != nil && found.UID == owner.UID { // else somebody wrote what he liked
			parent = metav1.GetControllerOf(found)
		}
		o.parents.Add(key, parent, ownersKeptFor)
		owner = parent
	}
	return chain, nil
}

// read returns nil for what does not exist or may not be read.
func (o *Owners) read(ctx context.Context, namespace string, kind schema.GroupVersionKind, name string) (*metav1.PartialObjectMetadata,
	error) {
	if !exists(name) {
		return nil, nil
	}
	if o.watched != nil && counted(kind.GroupKind()) {
		return o.watched(ctx, kind.GroupKind(), types.NamespacedName{Namespace: namespace, Name: name})
	}
	mapping, err := o.mapper.RESTMapping(kind.GroupKind())
	if meta.IsNoMatchError(err) || err == nil && mapping.Scope.Name() != meta.RESTScopeNameNamespace {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("looking up %s: %w", kind.GroupKind(), err)
	}
	found := &metav1.PartialObjectMetadata{}
	found.SetGroupVersionKind(mapping.GroupVersionKind)
	switch err := o.live.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, found); {
	case err == nil:
		return found, nil
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err), apierrors.IsMethodNotSupported(err):
		return nil, nil
	default:
		return nil, fmt.Errorf("reading %s %s/%s: %w", kind.Kind, namespace, name, err)
	}
}

// exists tells whether there can be an object of that name. Clients do not ask for others, and the API server takes them in references.
func exists(name string) bool { return len(content.IsPathSegmentName(name)) == 0 }
