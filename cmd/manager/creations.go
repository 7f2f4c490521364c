package main

import (
	"context"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/afloat-project/afloat/internal/framework"
	workloadspreadcontroller "github.com/afloat-project/afloat/internal/kinds/workloadspread/controller"
)

// creations is the manager's client. It calls a function for pods whose creation the API server rejects,
// because they may have a booking in a subset.
type creations struct {
	client.Client
	refused atomic.Pointer[func(ctx context.Context, pod client.Object)]
}

// newClient is a function for NewClient of the manager's options.
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

// releaseTime limits how long a controller waits for the release of a booking after the creation of a pod was
// rejected.
const releaseTime = 2 * time.Second

// release makes the client release the bookings of pods whose creation by a controller of this manager was
// rejected.
func (c *creations) release(e *framework.Environment) {
	spreads := workloadspreadcontroller.Watching.In(e)
	if spreads == nil {
		return
	}

	told := func(ctx context.Context, pod client.Object) {
		ctx, cancel := context.WithTimeout(ctx, releaseTime)
		defer cancel()
		if err := spreads.Refused(ctx, pod, workloadspreadcontroller.Versioned(e)); err != nil { // the booking expires anyway
			log.FromContext(ctx).Error(err, "The place of a pod that was refused is not given back yet",
				"pod", client.ObjectKeyFromObject(pod))
		}
	}
	c.refused.Store(&told)
}
