package reconcile

import (
	"cmp"
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// Queue is the queue of a controller, to which handlers of events add requests.
type Queue = workqueue.TypedRateLimitingInterface[ctrl.Request]

// Changes returns a handler that calls changed for each event, with the object before and after it. An object
// that does not exist is nil. initially tells whether those count as created that exist at the start; a
// controller whose own objects are all reconciled then need not hear of them.
func Changes[O client.Object](
	initially bool, changed func(ctx context.Context, q Queue, before, after O),
) handler.Funcs {
	var none O
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q Queue) {
			if object, ok := e.Object.(O); ok && (initially || !e.IsInInitialList) {
				changed(ctx, q, none, object)
			}
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q Queue) {
			before, ok := e.ObjectOld.(O)
			if after, same := e.ObjectNew.(O); ok && same {
				changed(ctx, q, before, after)
			}
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q Queue) {
			if object, ok := e.Object.(O); ok {
				changed(ctx, q, object, none)
			}
		},
	}
}

// SelectedPods returns a handler of events of pods. It requests passes over those objects, of the pod's
// namespace in the caches, that select the pod as it was or as it is. list returns an empty list of them.
// Updates that do not matter are left out.
func SelectedPods[O client.Object](
	a *API, list func() client.ObjectList, matters func(before, after *corev1.Pod) bool,
	selects func(object O, pod *corev1.Pod) bool, options ...client.ListOption,
) handler.Funcs {
	return Changes(true, func(ctx context.Context, q Queue, before, after *corev1.Pod) {
		if before != nil && after != nil && !matters(before, after) {
			return
		}
		namespace := client.InNamespace(cmp.Or(after, before).Namespace)
		requests, err := Due(ctx, a, list(), func(object O) bool {
			return before != nil && selects(object, before) || after != nil && selects(object, after)
		}, append(options[:len(options):len(options)], namespace)...)
		if err != nil {
			log.FromContext(ctx).Error(err, "Listing what selects a pod")
		}
		for _, request := range requests {
			q.Add(request)
		}
	})
}
