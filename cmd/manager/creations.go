package main

import (
	"context"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	workloadspreadcontroller "github.com/afloat-project/afloat/internal/kinds/workloadspread/controller"
	"github.com/afloat-project/afloat/internal/registry"
)

// creations is the manager's client. It calls a function for pods that the API server refuses to create,
// because they may have a booking in a subset.
type creations struct {
	client.Client
	refused atomic.Pointer[func(ctx context.Context, pod client.Object)]
}

// newClient is for NewClient of the manager's options.
func (c *creations) newClient(cfg *rest.Config, options client.Options) (client.Client, error) {
	var err error
	c.Client, err = client.New(cfg, options)
	return c, err
}

// Create implements client.Client.
func (c *creations) Create(ctx context.Context, object client.Object, options ...client.CreateOption) error {
	err := c.Client.Create(ctx, object, options...)
	if told := c.refused.Load(); told != nil && isPod(object) && workloadspreadcontroller.Refuses(err) {
		(*told)(ctx, object)
	}
	return err
}

func isPod(object client.Object) bool {
	_, typed := object.(*corev1.Pod)
	return typed || object.GetObjectKind().GroupVersionKind() == corev1.SchemeGroupVersion.WithKind("Pod")
}

// releaseTime is how long a controller waits at most for the release of the booking when the creation of a
// pod is refused.
const releaseTime = 2 * time.Second

// release gives back the bookings of pods whose creation by a controller of this manager was refused
// (WS-152).
func (c *creations) release(e *registry.Environment) {
	if e.Spreads == nil {
		return
	}

	told := func(ctx context.Context, pod client.Object) {
		ctx, cancel := context.WithTimeout(ctx, releaseTime)
		defer cancel()
		if err := e.Spreads.Refused(ctx, pod, e.Versioned); err != nil { // the booking expires by itself
			log.FromContext(ctx).Error(err,
				"The place of a pod that was refused is not given back yet", "pod",
				client.ObjectKeyFromObject(pod))
		}
	}
	c.refused.Store(&told)
}
