package metadata

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/afloat-project/afloat/internal/engine/seconds"
	"github.com/afloat-project/afloat/internal/node/runtime"
	"github.com/afloat-project/afloat/internal/node/stop"
)

// target is one container to restart. Its successor has another ID, so none is stopped twice (ND-112).
type target struct {
	Pod       types.NamespacedName
	UID       types.UID
	Container string
	ID        string
}

// errObsolete: there is no reason any more to stop the container.
var errObsolete = errors.New("the container need not be restarted any more")

// restarter stops the containers that are wanted to restart, the first time 3 s after they were found (ND-112).
type restarter struct {
	reconciler *reconciler
	queue      workqueue.TypedRateLimitingInterface[target]

	mu     sync.Mutex
	wanted map[target]bool
}

func newRestarter(r *reconciler) *restarter {
	return &restarter{reconciler: r, wanted: map[target]bool{}, queue: workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedItemExponentialFailureRateLimiter[target](firstRetry, lastRetry),
		workqueue.TypedRateLimitingQueueConfig[target]{Name: "runtime_container_meta_restarter"})}
}

// want queues a container, once.
func (q *restarter) want(ctx context.Context, t target, why string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.wanted[t] {
		return
	}
	q.wanted[t] = true
	klog.FromContext(ctx).Info("A container is to be restarted", "container", t.Container, "id", t.ID, "why", why)
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

// Start works on the queue until the context ends.
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

func (q *restarter) next(ctx context.Context) bool {
	t, shutdown := q.queue.Get()
	if shutdown {
		return false
	}
	defer q.queue.Done(t)
	logger := klog.FromContext(ctx).WithValues("pod", klog.KRef(t.Pod.Namespace, t.Pod.Name), "container", t.Container, "id", t.ID)
	switch err := q.restart(klog.NewContext(ctx, logger), t); {
	case err == nil:
		q.done(t)
	case errors.Is(err, errObsolete), errors.Is(err, runtime.ErrNotFound):
		logger.Info("Not restarted", "why", err.Error())
		q.done(t)
	default:
		logger.Error(err, "Restarting failed and is tried again")
		q.queue.AddRateLimited(t)
	}
	return true
}

// restart stops the container if the pod, read from the API server, and the runtime still give reason to (ND-113, ND-116).
func (q *restarter) restart(ctx context.Context, t target) error {
	r := q.reconciler
	found, pod, err := q.look(ctx, t)
	if err != nil {
		return err
	}
	rt, err := r.Runtimes.ForContainer(t.ID)
	if err != nil {
		return err
	}
	stopper := &stop.Stopper{Events: r.Events, Clock: r.clock, Stops: r.Stops, Requester: "containermeta"}
	return stopper.Stop(ctx, rt, stop.Request{
		Container: found.Container,
		By:        "the metadata restarter",
		Grace:     grace(found.Container.Annotations),
		Hook:      hook(found.Container.Annotations),
		Ports:     ports(found.Container.Annotations),
		PodIP:     pod.Status.PodIP,
		Init:      found.Init,
		Check: func(ctx context.Context) error {
			_, _, err := q.look(ctx, t)
			return err
		},
	})
}

// look makes the plan from the pod as it is in the API server now.
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
		if c.ID == t.ID && c.PodUID == string(pod.UID) && c.PodName == pod.Name && c.PodNamespace == pod.Namespace { // ND-071
			return restart, pod, nil
		}
	}
	return Restart{}, nil, errObsolete
}

// grace is the time that the container has to end (ND-114).
func grace(annotations map[string]string) time.Duration {
	for _, key := range []string{runtime.AnnotationDeletionGracePeriod, runtime.AnnotationTerminationGracePeriod} {
		if n, err := strconv.ParseInt(annotations[key], 10, 64); err == nil && n >= 0 {
			return seconds.Duration(n)
		}
	}
	return corev1.DefaultTerminationGracePeriodSeconds * time.Second
}

// hook and ports are what kubelet recorded when it started the container, which may differ from the pod's today (ND-114).
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
