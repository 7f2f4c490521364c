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

// Objects of other kinds need rights that users add (docs/kinds/podunavailablebudget.md).
//
// +kubebuilder:rbac:groups=apps,roleName=kruise-manager-budget-role,resources=deployments;replicasets;statefulsets,verbs=get;list;watch
// +kubebuilder:rbac:groups=apps,roleName=kruise-manager-budget-role,resources=daemonsets,verbs=get
// +kubebuilder:rbac:groups=batch,roleName=kruise-manager-budget-role,resources=jobs,verbs=get;list;watch
// +kubebuilder:rbac:groups="",roleName=kruise-manager-budget-role,resources=replicationcontrollers,verbs=get;list;watch
// +kubebuilder:rbac:groups=apps.kruise.io,roleName=kruise-manager-budget-role,resources=clonesets;statefulsets,verbs=get;list;watch
// +kubebuilder:rbac:groups=apps.kruise.io,roleName=kruise-manager-budget-role,resources=uniteddeployments,verbs=get

const (
	// maxOwners is how far up a chain of controllers is followed. No workload comes near; a ring of
	// references must not be endless.
	maxOwners = 10
	// ownersKept bounds what is remembered of controllers, for so long.
	ownersKept    = 8192
	ownersKeptFor = 30 * time.Second
)

// Owners tells what stands above a pod: its controller, the controller of that, and so on (PUB-072).
type Owners struct {
	live   client.Reader
	mapper meta.RESTMapper
	// partial: live does not have all that there is, so that what is not found is not gone.
	partial bool
	// watched reads an object of a kind that is watched, which is to have that UID; nil where none is.
	watched func(ctx context.Context, kind schema.GroupKind, key types.NamespacedName,
		uid types.UID) (*metav1.PartialObjectMetadata, error)
	// parents has what was found out about controllers, a link for each parentKey. Of watched kinds nothing
	// is remembered, and on replicas that do not watch them not that one has no controller: a Deployment that
	// is made again takes its ReplicaSets over at any time.
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
	// gone tells of each whether it is no more, or is being deleted: such a workload has no pods, whoever has
	// its name now.
	gone []bool
}

// living are those of the chain that are not gone.
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

// link is what was found out about a controller: what controls it, and whether it is gone.
type link struct {
	parent *metav1.OwnerReference
	gone   bool
}

// controller is what an object says of its controller. Name and UID need not be of the same object: who
// writes a pod says what he likes, and what is found out holds only for those that say the same.
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

// Above returns the chain of an object. What cannot be read for want of rights, or does not exist, has
// nothing above it; another error says that nobody knows what stands above the last of the chain. That
// something is gone is never taken from what was known before: a ReplicaSet may have been taken over by a
// Deployment of the same name meanwhile.
func (o *Owners) Above(ctx context.Context, object metav1.Object) (Chain, error) {
	chain, err := o.above(ctx, object, false)
	if err == nil && slices.Contains(chain.gone, true) {
		return o.above(ctx, object, true)
	}
	return chain, err
}

// above reads the chain of an object; fresh has all of it read from the API server.
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

// read finds out about a controller. One that may not be read, or of a kind that is not served, has nothing
// above it.
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

// linkOf is what an object of that name says, nil for none. One with another UID has taken the place of the
// one that is meant, or somebody wrote what he liked.
func linkOf(found *metav1.PartialObjectMetadata, owner *metav1.OwnerReference) link {
	if found == nil || found.UID != owner.UID {
		return link{gone: true}
	}
	return link{parent: metav1.GetControllerOf(found), gone: found.DeletionTimestamp != nil}
}

// exists tells whether there can be an object of that name. Clients do not ask for others, and the API server
// takes them in references.
func exists(name string) bool { return len(content.IsPathSegmentName(name)) == 0 }
