package restart

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/timing"
	"github.com/afloat-project/afloat/internal/engine/wording"
	"github.com/afloat-project/afloat/internal/node/runtime"
	"github.com/afloat-project/afloat/internal/node/stop"
)

// stopping returns the UIDs of the pods of this name of which a container is being stopped, or the last stop has failed since the last
// call. The error is how.
func (r *reconciler) stopping(pod types.NamespacedName) (uids map[string]bool, err error) {
	known, _ := r.stops.Load(pod)
	outcomes, _ := known.(map[string]chan error)
	uids = map[string]bool{}
	for uid, outcome := range outcomes {
		select {
		case ended := <-outcome:
			delete(outcomes, uid)
			err = errors.Join(err, ended)
			uids[uid] = ended != nil
		default:
			uids[uid] = true
		}
	}
	if len(outcomes) == 0 {
		r.stops.Delete(pod)
	}
	return uids, err
}

// stop begins to stop one container. The pod is enqueued again when the stop has ended and its result is
// recorded. If the stop has to wait for other stops in the namespace, it is retried later.
func (r *reconciler) stop(
	ctx context.Context, request *appsv1beta1.ContainerRecreateRequest, c *runtime.Container, rt Runtime,
) error {
	pod, err := r.withHook(ctx, request, c.Name)
	if err != nil {
		return err
	}

	key := types.NamespacedName{Namespace: request.Namespace, Name: request.Spec.PodName}
	outcome := make(chan error, 1)
	known, _ := r.stops.LoadOrStore(key, map[string]chan error{})
	outcomes, _ := known.(map[string]chan error)
	uid := request.Labels[pub.RecreatePodUID]
	outcomes[uid] = outcome
	order := r.order(request, pod, c)
	// A stop may take a day, and what users wrote into the request and the pod is in memory no longer than it is needed.
	request = &appsv1beta1.ContainerRecreateRequest{
		ObjectMeta: metav1.ObjectMeta{Namespace: request.Namespace, Name: request.Name, UID: request.UID}}
	c = &runtime.Container{ID: c.ID, Name: c.Name}
	order.Check = func(ctx context.Context) error { return r.mayStop(ctx, request) }
	if !r.stopper.Start(ctx, rt, order, func(err error) {
		outcome <- r.stopped(ctx, request, c, rt, err)
		r.wake(reconcile.Request{NamespacedName: key})
	}) {
		if delete(outcomes, uid); len(outcomes) == 0 {
			r.stops.Delete(key)
		}
		log.FromContext(ctx).V(2).Info("Waiting", "request", request.Name, "for",
			fmt.Sprintf("other stops of the namespace: %d are under way on this node", stop.Most))
	}

	return nil
}

// stopped records the result of a stop.
func (r *reconciler) stopped(
	ctx context.Context, request *appsv1beta1.ContainerRecreateRequest, c *runtime.Container, rt Runtime,
	err error,
) error {
	switch {
	case err != nil && ctx.Err() != nil:
		// The daemon is shutting down. The next one will find out the result.
		return fmt.Errorf("stopping container %s: %w", c.Name, ctx.Err())
	case errors.Is(err, stop.ErrNotStopped), errors.Is(err, runtime.ErrNotFound):
		log.FromContext(ctx).Info("Not stopped", "request", request.Name, "container", c.Name,
			"why", err.Error())
		return nil // the next round decides
	case errors.Is(err, runtime.ErrUnavailable):
		return err
	case err != nil:
		over, unknown := ended(ctx, rt, c.ID)
		if unknown != nil {
			// The stop is retried.
			return fmt.Errorf("stopping container %s: %w; whether it has ended is not known: %w",
				c.Name, err, unknown)
		}
		if over {
			log.FromContext(ctx).Info("Stopped, although the runtime did not say so", "request", request.Name,
				"container", c.Name, "answer", err.Error())
			err = nil
		}
	}

	return r.recordStop(ctx, client.ObjectKeyFromObject(request), request.UID, c.Name, err)
}

// ended reports whether the container has ended, because the response to a stop may be lost or late. It
// returns an error if the runtime does not respond.
func ended(ctx context.Context, rt Runtime, id string) (bool, error) {
	inspected, err := rt.Status(ctx, id)
	switch {
	case errors.Is(err, runtime.ErrNotFound):
		return true, nil
	case err != nil:
		return false, err
	}
	return inspected.Exited, nil
}

// order returns the request for the stopper, without its Check. Values that the ContainerRecreateRequest does not have come from
// the pod. A request cannot give a container a longer grace period than the pod does.
func (r *reconciler) order(
	request *appsv1beta1.ContainerRecreateRequest, pod *corev1.Pod, c *runtime.Container,
) stop.Request {
	o := stop.Request{
		Container: *c,
		By:        "ContainerRecreateRequest " + request.Name,
		Grace:     corev1.DefaultTerminationGracePeriodSeconds * time.Second,
	}
	own := stop.GraceOf(c.Annotations)
	if pod != nil && pod.Spec.TerminationGracePeriodSeconds != nil {
		own = timing.Seconds(*pod.Spec.TerminationGracePeriodSeconds)
	}
	if s := request.Spec.Strategy; s != nil && s.TerminationGracePeriodSeconds != nil {
		o.Grace = min(own, timing.Seconds(*s.TerminationGracePeriodSeconds))
	}

	for _, asked := range request.Spec.Containers {
		// A client may have sent an empty one. Of a hook that a request cannot carry, the pod has the rest.
		if hook := asked.PreStop; asked.Name == c.Name && hook != nil && (hook.Exec != nil || hook.HTTPGet != nil || hook.TCPSocket != nil) {
			o.Hook = &corev1.LifecycleHandler{
				Exec:      hook.Exec,
				HTTPGet:   hook.HTTPGet,
				TCPSocket: hook.TCPSocket,
			}
			o.Ports = asked.Ports
		}
	}

	if pod == nil {
		return o
	}

	o.PodIP = pod.Status.PodIP
	for init, list := range map[bool][]corev1.Container{
		false: pod.Spec.Containers,
		true:  pod.Spec.InitContainers,
	} {
		for i := range list {
			if list[i].Name != c.Name {
				continue
			}
			o.Init = init
			if o.Hook == nil && list[i].Lifecycle != nil {
				o.Hook = list[i].Lifecycle.PreStop
			}
			if o.Ports == nil {
				o.Ports = list[i].Ports
			}
		}
	}

	return o
}

// mayStop reads the request again, and returns an error as [stop.Request] Check does.
func (r *reconciler) mayStop(ctx context.Context, request *appsv1beta1.ContainerRecreateRequest) error {
	now, err := r.read(ctx, client.ObjectKeyFromObject(request))
	switch {
	case err != nil:
		return err
	case now == nil || now.UID != request.UID:
		return fmt.Errorf("%w: the request is gone", stop.ErrNotStopped)
	}
	if why := finished(now, r.sighting(now).request, r.clock.Now()); why != "" {
		return fmt.Errorf("%w: %s", stop.ErrNotStopped, why)
	}
	return nil
}

// recordStop writes the state of a container after it was stopped. The manager writes its part of the status
// at the same time, so conflicts are expected. If the write fails for good, the next round finds the result
// in the runtime.
func (r *reconciler) recordStop(
	ctx context.Context, name types.NamespacedName, uid types.UID, container string, failure error,
) error {
	for range 5 {
		request, err := r.read(ctx, name)
		if err != nil || request == nil || request.UID != uid || request.Status.CompletionTime != nil {
			return err
		}
		plan := &Plan{
			Phase:  recreating,
			States: append([]State(nil), request.Status.ContainerRecreateStates...),
		}
		for i := range plan.States {
			if state := &plan.States[i]; state.Name == container && failure == nil {
				*state = State{Name: container, Phase: recreating, IsKilled: true}
			} else if state.Name == container {
				*state = State{
					Name:     container,
					Phase:    failed,
					Message:  wording.Bound(fmt.Sprintf("kill container error: %v", failure)),
					IsKilled: state.IsKilled,
				}
			}
		}
		if err = r.write(ctx, request, plan); !apierrors.IsConflict(err) {
			return err
		}
	}

	return fmt.Errorf("recording that container %s was stopped: the request keeps changing", container)
}
