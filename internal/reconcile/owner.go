package reconcile

import (
	"context"
	"fmt"
	"reflect"
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

// Object is a pointer to the type of a kind's objects.
type Object interface {
	comparable
	client.Object
}

// UIDs returns a function that returns the UID of an object in the cache, empty if there is none.
func UIDs[O Object](a *API) func(context.Context, types.NamespacedName) (types.UID, error) {
	return func(ctx context.Context, name types.NamespacedName) (types.UID, error) {
		found, err := cached[O](ctx, a, name)
		if err != nil || found == *new(O) {
			return "", err
		}
		return found.GetUID(), nil
	}
}

// Find returns an object that owns own writes, from the cache with its own writes laid over it; nil if there
// is none. The object must not be changed.
func Find[O Object](ctx context.Context, a *API, name types.NamespacedName) (none O, err error) {
	found, err := cached[O](ctx, a, name)
	if err != nil || found == none {
		return none, err
	}
	if newest, exists := Newest(a.Own, found.GetUID(), found, true); exists {
		return newest, nil
	}
	return none, nil
}

func cached[O Object](ctx context.Context, a *API, name types.NamespacedName) (none O, err error) {
	found := reflect.New(reflect.TypeFor[O]().Elem()).Interface().(O)
	if err := a.Client.Get(ctx, name, found, client.UnsafeDisableDeepCopy); err != nil {
		if client.IgnoreNotFound(err) == nil {
			return none, nil
		}
		return none, fmt.Errorf("reading %T %s: %w", found, name, err)
	}
	return found, nil
}
