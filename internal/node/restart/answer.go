package restart

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
)

// answerAfter is how long a new request waits for its first phase before the answerer writes it. Usually its
// turn has come by then.
const answerAfter = 5 * time.Second

// answerer sets the phase Pending of requests whose turn has not come, because another request of their pod is
// under way, a container takes long to end or the runtime does not respond. The manager fails a request that
// has no phase after one minute.
type answerer struct{ *reconciler }

// answers returns the answerer of a reconciler. live is of its own, because the workers of the reconciler may use up
// the requests per second that a client may send.
func answers(r *reconciler, live client.Client) answerer {
	return answerer{&reconciler{requests: r.requests, live: live, clock: r.clock}}
}

func (a answerer) setup(mgr ctrl.Manager) error {
	err := ctrl.NewControllerManagedBy(mgr).Named("crr-answer").
		Watches(&appsv1beta1.ContainerRecreateRequest{}, a.later()).
		WithOptions(options(1)).
		Complete(a)
	if err != nil {
		return fmt.Errorf("building the controller that answers requests: %w", err)
	}
	return nil
}

// later enqueues requests without a phase, by their own names, after answerAfter.
func (answerer) later() handler.EventHandler {
	queue := func(object client.Object, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
		if request, ok := object.(*appsv1beta1.ContainerRecreateRequest); ok && unanswered(request) {
			q.AddAfter(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(request)}, answerAfter)
		}
	}

	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent,
			q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			queue(e.Object, q)
		},
		UpdateFunc: func(_ context.Context, e event.UpdateEvent,
			q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			queue(e.ObjectNew, q)
		},
	}
}

// unanswered reports whether the request still needs its first phase.
func unanswered(request *appsv1beta1.ContainerRecreateRequest) bool {
	return request.Status.Phase == "" && closed(request) == ""
}

// Reconcile sets the first phase of one request. The key is the name of the request. The cache may be stale,
// so it checks the object from the API server again and guards its write by the resourceVersion.
func (a answerer) Reconcile(ctx context.Context, key reconcile.Request) (reconcile.Result, error) {
	cached := &appsv1beta1.ContainerRecreateRequest{}
	if err := a.requests.Get(ctx, key.NamespacedName, cached); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if !unanswered(cached) {
		return reconcile.Result{}, nil
	}

	request, err := a.read(ctx, key.NamespacedName)
	if err != nil || request == nil || !unanswered(request) {
		return reconcile.Result{}, err
	}
	if err := a.write(ctx, request, &Plan{Phase: pending}); !apierrors.IsConflict(err) {
		return reconcile.Result{}, err
	}

	return reconcile.Result{RequeueAfter: again}, nil
}
