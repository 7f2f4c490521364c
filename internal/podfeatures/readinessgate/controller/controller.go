// Package controller carries out the plans of package readinessgate.
package controller

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/platform/pacing"
	"github.com/afloat-project/afloat/internal/podfeatures/readinessgate"
	"github.com/afloat-project/afloat/internal/reconcile"
)

// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=pods/status,verbs=patch

const workers = 3

// Reconciler opens the readiness gates of pods.
type Reconciler struct {
	Client client.Client
	Now    func() time.Time

	backOff *pacing.BackOff
}

// retryAfter is the longest time that a pod stays out of service after a failed write becomes possible again.
const retryAfter = time.Minute

// Setup adds the controller to the manager; pulse reports that the controller works.
func Setup(mgr ctrl.Manager, pulse *reconcile.Pulse) error {
	r := &Reconciler{Client: mgr.GetClient(), Now: time.Now, backOff: pacing.NewBackOff(nil, time.Now)}
	return reconcile.Options{Workers: workers, Pulse: pulse}.Complete("podreadiness", r,
		ctrl.NewControllerManagedBy(mgr).
			For(&corev1.Pod{},
				builder.WithPredicates(predicate.NewPredicateFuncs(func(object client.Object) bool {
					pod, ok := object.(*corev1.Pod)
					return ok && readinessgate.Plan(pod, time.Time{}) != nil
				}))))
}

// BackOff returns the rate limiter that the controller must use.
func (r *Reconciler) BackOff() workqueue.TypedRateLimiter[ctrl.Request] { return r.backOff }

// Reconcile implements reconcile.Reconciler.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	err := r.open(ctx, request)
	if err != nil && r.backOff != nil {
		return r.backOff.Answer(request, retryAfter, err)
	}
	return ctrl.Result{}, err
}

func (r *Reconciler) open(ctx context.Context, request ctrl.Request) error {
	pod := &corev1.Pod{}
	if err := r.Client.Get(ctx, request.NamespacedName, pod); err != nil {
		return client.IgnoreNotFound(err)
	}

	patch := readinessgate.Plan(pod, r.Now())
	if patch == nil {
		return nil
	}

	body, err := patch.JSON(pod)
	if err != nil {
		return err
	}

	err = r.Client.Status().Patch(ctx, pod, client.RawPatch(types.StrategicMergePatchType, body))
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil // another event of the pod will follow, or it is gone
	}
	if err != nil {
		return fmt.Errorf("opening readiness gate %s: %w", pub.KruisePodReady, err)
	}

	return nil
}
