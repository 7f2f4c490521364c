package reconcile

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// When to come back if the world changed under a plan.
const (
	// RetryAfter is for those whose events are usually faster.
	RetryAfter = time.Second
	// RetrySoon is for those that nothing else may bring back.
	RetrySoon = 200 * time.Millisecond
)

type pointer[T any] interface {
	*T
	client.Object
}

// UIDs returns a function that tells the UID of an object in the cache, empty if there is none.
func UIDs[T any, P pointer[T]](a *API) func(context.Context, types.NamespacedName) (types.UID, error) {
	return func(ctx context.Context, name types.NamespacedName) (types.UID, error) {
		found, err := cached[T, P](ctx, a, name)
		if err != nil || found == nil {
			return "", err
		}
		return found.GetUID(), nil
	}
}

// Find returns an object that is the owner of own writes, from the cache, over which they are laid; nil if
// there is none. It must not be changed.
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

// Begin begins a pass over an owner: it finds out what became of own writes, and returns the owner as [Find]
// does; nil if it is gone, or another of its name has come. What was read before the writes were found
// settled may be older than they are, and is not to be used.
func Begin[T any, P pointer[T]](ctx context.Context, a *API, name types.NamespacedName, owner types.UID) (P, error) {
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
