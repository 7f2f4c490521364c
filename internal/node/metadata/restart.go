package metadata

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/afloat-project/afloat/internal/node/runtime"
	"github.com/afloat-project/afloat/internal/node/stop"
)

// target identifies a container to restart. The new container has another ID, so no container is stopped
// twice.
type target struct {
	Pod       types.NamespacedName
	UID       types.UID
	Container string
	ID        string
}

// errObsolete is returned if there is no longer a reason to stop the container.
var errObsolete = fmt.Errorf("%w: it need not be restarted any more", stop.ErrNotStopped)

// restarter stops the containers that must be restarted. The first attempt is 3 s after the container was
// found.
type restarter struct {
	reconciler *reconciler
	stopper    *stop.Stopper
	queue      workqueue.TypedRateLimitingInterface[target]

	mu     sync.Mutex
	wanted map[target]bool
}

// restartPauses returns the rate limiter for attempts to stop a container.
func restartPauses() workqueue.TypedRateLimiter[target] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[target](firstRetry, lastRetry)
}

func newRestarter(r *reconciler) *restarter {
	return &restarter{
		reconciler: r,
		wanted:     map[target]bool{},
		stopper: &stop.Stopper{
			Events:    r.Events,
			Clock:     r.clock,
			Stops:     r.Stops,
			Places:    r.Places,
			Requester: "containermeta",
		},
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(
			restartPauses(),
			workqueue.TypedRateLimitingQueueConfig[target]{Name: "runtime_container_meta_restarter"}),
	}
}

// want adds a container to the queue unless it is queued already.
func (q *restarter) want(ctx context.Context, t target, why string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.wanted[t] {
		return
	}
	q.wanted[t] = true
	klog.FromContext(ctx).Info("A container is to be restarted",
		"container", t.Container, "id", t.ID, "why", why)
	q.queue.AddRateLimited(t)
}

func (q *restarter) done(t target) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.wanted, t)
	q.queue.Forget(t)
}

// NeedLeaderElection implements the manager's interface.
func (q *restarter) NeedLeaderElection() bool { return false }

// Start processes the queue until the context is canceled.
func (q *restarter) Start(ctx context.Context) error {
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for q.next(ctx) {
			}
		})
	}
	<-ctx.Done()
	q.queue.ShutDown()
	all.Wait()
	return nil
}

// next begins one restart. The target stays wanted until its container has been stopped, so that it is not
// queued again meanwhile.
func (q *restarter) next(ctx context.Context) bool {
	t, shutdown := q.queue.Get()
	if shutdown {
		return false
	}
	defer q.queue.Done(t)

	logger := klog.FromContext(ctx).WithValues("pod", klog.KRef(t.Pod.Namespace, t.Pod.Name),
		"container", t.Container, "id", t.ID)
	ended := func(err error) {
		switch {
		case err == nil:
			q.done(t)
		case errors.Is(err, errObsolete), errors.Is(err, runtime.ErrNotFound):
			logger.Info("Not restarted", "why", err.Error())
			q.done(t)
		default:
			logger.Error(err, "Restarting failed and is tried again")
			q.queue.AddRateLimited(t)
		}
	}

	switch begun, err := q.restart(klog.NewContext(ctx, logger), t, ended); {
	case err != nil:
		ended(err)
	case !begun:
		logger.V(2).Info("A restart waits: as many containers of its namespace are being stopped as may be",
			"most", stop.Most)
		q.queue.AddAfter(t, firstRetry)
	}

	return true
}

// restart begins to stop the container if the pod, read from the API server, and the runtime still show that
// it must be restarted. It returns false if it has to wait for other stops in the namespace.
func (q *restarter) restart(ctx context.Context, t target, ended func(error)) (begun bool, err error) {
	// Check this before any request to the API server, because requests are limited and shared by all
	// tenants.
	if q.stopper.Full(t.Pod.Namespace) {
		return false, nil
	}

	found, pod, err := q.look(ctx, t)
	if err != nil {
		return false, err
	}

	rt, err := q.reconciler.Runtimes.ForContainer(t.ID)
	if err != nil {
		return false, err
	}

	return q.stopper.Start(ctx, rt, stop.Request{
		Container: found.Container,
		By:        "the metadata restarter",
		Grace:     stop.GraceOf(found.Container.Annotations),
		Hook:      hook(found.Container.Annotations),
		Ports:     ports(found.Container.Annotations),
		PodIP:     pod.Status.PodIP,
		Init:      found.Init,
		Check: func(ctx context.Context) error {
			_, _, err := q.look(ctx, t)
			return err
		},
	}, ended), nil
}

// look makes the plan from the current pod in the API server.
func (q *restarter) look(ctx context.Context, t target) (Restart, *corev1.Pod, error) {
	pod := &corev1.Pod{}
	if err := q.reconciler.live.Get(ctx, t.Pod, pod); err != nil {
		if apierrors.IsNotFound(err) {
			return Restart{}, nil, fmt.Errorf("%w: the pod is gone", errObsolete)
		}
		return Restart{}, nil, fmt.Errorf("reading the pod: %w", err)
	}
	if pod.UID != t.UID {
		return Restart{}, nil, fmt.Errorf("%w: the pod is another one", errObsolete)
	}

	plan, err := q.reconciler.observe(ctx, pod)
	if err != nil {
		return Restart{}, nil, err
	}

	for _, restart := range plan.Restarts {
		c := restart.Container
		// The container must still belong to this pod.
		if c.ID == t.ID && c.PodUID == string(pod.UID) && c.PodName == pod.Name &&
			c.PodNamespace == pod.Namespace {
			return restart, pod, nil
		}
	}

	return Restart{}, nil, errObsolete
}

// hook returns the preStop hook that kubelet recorded when it started the container. It may differ from the
// hook in the current pod.
func hook(annotations map[string]string) *corev1.LifecycleHandler {
	var h corev1.LifecycleHandler
	if text := annotations[runtime.AnnotationPreStop]; text == "" || json.Unmarshal([]byte(text), &h) != nil {
		return nil
	}
	return &h
}

func ports(annotations map[string]string) []corev1.ContainerPort {
	var list []corev1.ContainerPort
	if json.Unmarshal([]byte(annotations[runtime.AnnotationPorts]), &list) != nil {
		return nil
	}
	return list
}
