package controller

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	policyv1beta1 "github.com/afloat-project/afloat/api/policy/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/podprobemarker"
	"github.com/afloat-project/afloat/internal/reconcile"
)

// restarts requests restarts of the containers whose liveness probes failed, once for each container
// instance, and only if budgets allow it. held reports whether a budget does not: the node is planned again
// as soon as it does. It is not retried constantly until then: when a database is down, all its clients fail.
func (r *NodeReconciler) restarts(
	ctx context.Context, w *reconcile.Writer, s *snapshot, wanted []podprobemarker.Restart,
) (held bool, errs []error) {

	var open []*podprobemarker.Restart
	var pods []*corev1.Pod
	for i := range wanted {
		request, found := wanted[i].Request(), &appsv1beta1.ContainerRecreateRequest{}
		err := r.Client.Get(ctx, client.ObjectKeyFromObject(request), found, client.UnsafeDisableDeepCopy)
		if client.IgnoreNotFound(err) != nil {
			return false, []error{fmt.Errorf("reading ContainerRecreateRequest %s: %w", request.Name, err)}
		}
		found.Namespace, found.Name = request.Namespace, request.Name
		if _, exists := reconcile.Newest(r.Own, s.owner, found, err == nil); !exists {
			open, pods = append(open, &wanted[i]), append(pods, wanted[i].Pod)
		}
	}

	limits, err := r.Limits(ctx, pods)
	if err != nil {
		return false, []error{fmt.Errorf("reading budgets: %w", err)}
	}

	told := s.memory.waiting
	s.memory.waiting = map[string]bool{}

	for _, restart := range open {
		refusal := ""
		if limits != nil {
			refusal = limits.Take(restart.Pod, policyv1beta1.Update)
		}

		if refusal == "" {
			err := r.restart(ctx, w, restart)
			if !errors.Is(err, reconcile.ErrStalePlan) {
				errs = append(errs, err)
				continue
			}
			refusal = strings.TrimPrefix(err.Error(), reconcile.ErrStalePlan.Error()+": ") // the reason given by the budget
		}

		held, s.memory.waiting[restart.Name()] = true, true
		if !told[restart.Name()] {
			r.Events.Event(restart.Pod, corev1.EventTypeWarning, livenessFailed,
				fmt.Sprintf("container %s is not restarted yet, though its liveness probe failed: %s",
					restart.Container, refusal))
		}
	}
	return held, errs
}

// livenessFailed is the reason of events about failed liveness probes.
const livenessFailed = "LivenessProbeFailed"

// restart requests the restart of a container. It returns ErrStalePlan if a budget does not allow it.
func (r *NodeReconciler) restart(
	ctx context.Context, w *reconcile.Writer, restart *podprobemarker.Restart,
) error {
	// The request is about the container that exists when it is made, which may be newer than the one in the
	// caches.
	pod, err := r.whole(ctx, restart.Pod)
	if err != nil || pod == nil || !restart.Meant(pod) {
		return err
	}

	if err := r.Ask(ctx, restart.Pod, policyv1beta1.Update); err != nil {
		return err
	}

	request := restart.Request()
	if err := w.CreateTyped(ctx, request); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating ContainerRecreateRequest %s: %w", request.Name, err)
	}

	r.Events.Event(restart.Pod, corev1.EventTypeWarning, livenessFailed,
		fmt.Sprintf("container %s is restarted: its liveness probe failed", restart.Container))
	return nil
}
