package main

import (
	"context"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/afloat-project/afloat/internal/kinds/workloadspread"
	"github.com/afloat-project/afloat/internal/registry"
)

// creations is the manager's client, which tells of pods that the API server refuses to create: they have had a place booked in a subset.
type creations struct {
	client.Client
	refused atomic.Pointer[func(ctx context.Context, pod client.Object)]
}

// newClient is a manager's NewClient.
func (c *creations) newClient(cfg *rest.Config, options client.Options) (client.Client, error) {
	var err error
	c.Client, err = client.New(cfg, options)
	return c, err
}

// Create implements client.Client.
func (c *creations) Create(ctx context.Context, object client.Object, options ...client.CreateOption) error {
	err := c.Client.Create(ctx, object, options...)
	if told := c.refused.Load(); told != nil && isPod(object) && workloadspread.Refuses(err) {
		(*told)(ctx, object)
	}
	return err
}

func isPod(object client.Object) bool {
	_, typed := object.(*corev1.Pod)
	return typed || object.GetObjectKind().GroupVersionKind() == corev1.SchemeGroupVersion.WithKind("Pod")
}

// releaseTime is for how long a controller that is refused a pod may wait until its place is given back.
const releaseTime = 2 * time.Second

// release gives back the places of pods that the controllers of this manager are refused (WS-152).
func (c *creations) release(e *registry.Environment) {
	if e.Spreads == nil {
		return
	}
	told := func(ctx context.Context, pod client.Object) {
		ctx, cancel := context.WithTimeout(ctx, releaseTime)
		defer cancel()
		if err := e.Spreads.Refused(ctx, pod, e.Versioned); err != nil { // it expires
			log.FromContext(ctx).Error(err, "The place of a pod that was refused is not given back yet", "pod",
				client.ObjectKeyFromObject(pod))
		}
	}
	c.refused.Store(&told)
}
