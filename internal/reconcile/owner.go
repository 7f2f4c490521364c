package reconcile

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// These are the delays after which a pass is repeated if the state changed under its plan.
const (
	// RetryAfter is for objects whose events usually come sooner.
	RetryAfter = time.Second
	// RetrySoon is for objects that no event may requeue.
	RetrySoon = 200 * time.Millisecond
)

type pointer[T any] interface {
	*T
	client.Object
}

// UIDs returns a function that returns the UID of an object in the cache, empty if there is none.
func UIDs[T any, P pointer[T]](a *API) func(context.Context, types.NamespacedName) (types.UID, error) {
	return func(ctx context.Context, name types.NamespacedName) (types.UID, error) {
		found, err := cached[T, P](ctx, a, name)
		if err != nil || found == nil {
			return "", err
		}
		return found.GetUID(), nil
	}
}

// Find returns an object that owns own writes, from the cache with its own writes laid over it; nil if there
// is none. The object must not be changed.
func Find[T any, P pointer[T]](ctx context.Context, a *API, name types.NamespacedName) (P, error) {
	found, err := cached[T, P](ctx, a, name)
	if err != nil || found == nil {
		return nil, err
	}
	if newest, exists := Newest(a.Own, found.GetUID(), found, true); exists {
		return newest, nil
	}
	return nil, nil
}

// Begin begins a pass over an owner: it settles own writes, and returns the owner as [Find] does, or nil if
// it is gone or was replaced by another of its name. Anything read before the writes were settled may be
// older than they are and must not be used.
func Begin[T any, P pointer[T]](
	ctx context.Context, a *API, name types.NamespacedName, owner types.UID,
) (P, error) {
	if err := a.Own.Settle(ctx, owner, a.Now()); err != nil {
		return nil, err
	}
	found, err := Find[T, P](ctx, a, name)
	if err != nil || found == nil || found.GetUID() != owner {
		return nil, err
	}
	return found, nil
}

func cached[T any, P pointer[T]](ctx context.Context, a *API, name types.NamespacedName) (P, error) {
	found := P(new(T))
	if err := a.Client.Get(ctx, name, found, client.UnsafeDisableDeepCopy); err != nil {
		if client.IgnoreNotFound(err) == nil {
			return nil, nil
		}
		return nil, fmt.Errorf("reading %T %s: %w", found, name, err)
	}
	return found, nil
}
