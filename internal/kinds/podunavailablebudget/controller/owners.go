package controller

import (
	"context"
	"fmt"
	"slices"
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

// Objects of other kinds need additional permissions, which users grant (docs/kinds/podunavailablebudget.md).
//
// +kubebuilder:rbac:groups=apps,roleName=kruise-manager-budget-role,resources=deployments;replicasets;statefulsets,verbs=get;list;watch
// +kubebuilder:rbac:groups=apps,roleName=kruise-manager-budget-role,resources=daemonsets,verbs=get
// +kubebuilder:rbac:groups=batch,roleName=kruise-manager-budget-role,resources=jobs,verbs=get;list;watch
// +kubebuilder:rbac:groups="",roleName=kruise-manager-budget-role,resources=replicationcontrollers,verbs=get;list;watch
// +kubebuilder:rbac:groups=apps.kruise.io,roleName=kruise-manager-budget-role,resources=clonesets;statefulsets,verbs=get;list;watch
// +kubebuilder:rbac:groups=apps.kruise.io,roleName=kruise-manager-budget-role,resources=uniteddeployments,verbs=get

const (
	// maxOwners limits how far up a chain of controllers is followed. No workload comes near it, but a cycle
	// of references must not be followed forever.
	maxOwners = 10
	// ownersKept bounds how many controllers are remembered, and ownersKeptFor for how long.
	ownersKept    = 8192
	ownersKeptFor = 30 * time.Second
)

// Owners determines the chain of controllers of a pod: its controller, the controller of that, and so on
// (PUB-072).
type Owners struct {
	live   client.Reader
	mapper meta.RESTMapper
	// partial reports that live does not have all objects, so that an object that is not found need not be
	// gone.
	partial bool
	// watched reads an object of a watched kind that is expected to have that UID. It is nil if no kinds are
	// watched.
	watched func(ctx context.Context, kind schema.GroupKind, key types.NamespacedName,
		uid types.UID) (*metav1.PartialObjectMetadata, error)
	// parents caches a link for each parentKey. Objects of watched kinds are not cached. Replicas that do not
	// watch these kinds do not cache that such an object has no controller, since a recreated Deployment may
	// adopt its ReplicaSets at any time.
	parents *cache.LRUExpireCache
}

// NewOwners returns Owners that read controllers from the API server, and cache the result for a while.
func NewOwners(live client.Reader, mapper meta.RESTMapper, clock clock.Clock) *Owners {
	return &Owners{live: live, mapper: mapper, parents: cache.NewLRUExpireCacheWithClock(ownersKept, clock)}
}

// Chain is the controllers of a pod, from its own one upwards, with their UIDs.
type Chain struct {
	References []podunavailablebudget.Reference
	UIDs       []types.UID
	// gone reports for each of them whether it no longer exists, or is being deleted. Such a workload has no
	// pods, even if another one has its name now.
	gone []bool
}

// living returns the members of the chain that are not gone.
func (c *Chain) living() []podunavailablebudget.Reference {
	if !slices.Contains(c.gone, true) {
		return c.References
	}
	var living []podunavailablebudget.Reference
	for i, reference := range c.References {
		if !c.gone[i] {
			living = append(living, reference)
		}
	}
	return living
}

// link records what is known of a controller: its own controller, and whether it is gone.
type link struct {
	parent *metav1.OwnerReference
	gone   bool
}

// controller is a controller as an owner reference names it. Name and UID need not belong to the same object:
// whoever writes a pod may write anything there, so what is found out only holds for references that have
// both.
type controller struct {
	podunavailablebudget.Reference
	uid types.UID
}

// controllerOf returns the controller of an object, or the zero value if it has none.
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

// Above returns the chain of an object. An object that does not exist, or that may not be read for lack of
// permissions, has nothing above it. Any other error means that it is unknown what controls the last object
// of the chain. Cached results never decide that something is gone: a new Deployment of the same name may
// have adopted a ReplicaSet meanwhile.
func (o *Owners) Above(ctx context.Context, object metav1.Object) (Chain, error) {
	chain, err := o.above(ctx, object, false)
	if err == nil && slices.Contains(chain.gone, true) {
		return o.above(ctx, object, true)
	}
	return chain, err
}

// above reads the chain of an object. If fresh is true, it reads everything from the API server.
func (o *Owners) above(ctx context.Context, object metav1.Object, fresh bool) (Chain, error) {
	var chain Chain
	namespace, owner := object.GetNamespace(), metav1.GetControllerOfNoCopy(object)
	for owner != nil && len(chain.UIDs) < maxOwners {
		kind := schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind)
		key := parentKey{namespace,
			controller{podunavailablebudget.Reference{GroupKind: kind.GroupKind(), Name: owner.Name},
				owner.UID}}
		chain.References, chain.UIDs = append(chain.References, key.Reference), append(chain.UIDs, key.uid)
		watched := o.watched != nil && counted(kind.GroupKind())

		var found link
		known, remembered := o.parents.Get(key)
		if remembered && !watched && !fresh {
			found, _ = known.(link)
		} else {
			var err error
			if found, err = o.read(ctx, namespace, kind, owner, watched && !fresh); err != nil {
				chain.gone = append(chain.gone, false)
				return chain, err
			}
			if !watched && (found.parent != nil || !counted(kind.GroupKind())) {
				o.parents.Add(key, found, ownersKeptFor)
			}
		}

		chain.gone = append(chain.gone, found.gone)
		owner = found.parent
	}

	return chain, nil
}

// read reads a controller. An object that may not be read, or whose kind is not served, has nothing above it.
func (o *Owners) read(
	ctx context.Context, namespace string, kind schema.GroupVersionKind, owner *metav1.OwnerReference,
	watched bool,
) (link, error) {
	key := types.NamespacedName{Namespace: namespace, Name: owner.Name}
	if !exists(owner.Name) {
		return link{gone: true}, nil
	}
	if watched {
		found, err := o.watched(ctx, kind.GroupKind(), key, owner.UID)
		return linkOf(found, owner), err
	}

	mapping, err := o.mapper.RESTMapping(kind.GroupKind())
	if meta.IsNoMatchError(err) || err == nil && mapping.Scope.Name() != meta.RESTScopeNameNamespace {
		return link{}, nil
	}
	if err != nil {
		return link{}, fmt.Errorf("looking up %s: %w", kind.GroupKind(), err)
	}

	found := &metav1.PartialObjectMetadata{}
	found.SetGroupVersionKind(mapping.GroupVersionKind)
	switch err := o.live.Get(ctx, key, found); {
	case err == nil:
		return linkOf(found, owner), nil
	case apierrors.IsNotFound(err):
		return link{gone: !o.partial}, nil
	case apierrors.IsForbidden(err), apierrors.IsMethodNotSupported(err):
		return link{}, nil
	default:
		return link{}, fmt.Errorf("reading %s %s: %w", kind.Kind, key, err)
	}
}

// linkOf returns the link of an object that was found under the name of the owner, or nil if none was. If it
// has another UID, it has replaced the owner, or the reference was never right.
func linkOf(found *metav1.PartialObjectMetadata, owner *metav1.OwnerReference) link {
	if found == nil || found.UID != owner.UID {
		return link{gone: true}
	}
	return link{parent: metav1.GetControllerOf(found), gone: found.DeletionTimestamp != nil}
}

// exists reports whether an object can have that name. Clients reject other names, while the API server
// accepts them in owner references.
func exists(name string) bool { return len(content.IsPathSegmentName(name)) == 0 }
