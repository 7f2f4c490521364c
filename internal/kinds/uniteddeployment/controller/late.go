package controller

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/source"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/uniteddeployment"
	"github.com/afloat-project/afloat/internal/reconcile"
)

// servedEvery is the pause between looks for kinds of children that are not served.
const servedEvery = 10 * time.Second

// late follows a kind of children once it is served, and has all UnitedDeployments look again.
func (r *Reconciler) late(mgr ctrl.Manager, kind uniteddeployment.Kind) source.Func {
	return func(ctx context.Context, queue workqueue.TypedRateLimitingInterface[ctrl.Request]) error {
		go func() {
			indexed := false // caches refuse an index that they have
			err := wait.PollUntilContextCancel(ctx, servedEvery, false,
				func(ctx context.Context) (bool, error) {
					if present, err := serves(mgr.GetRESTMapper(), kind); err != nil || !present {
						return false, nil //nolint:nilerr // the API server may not answer for a while
					}
					if !indexed {
						indexed = mgr.GetFieldIndexer().IndexField(ctx, object(kind), byOwner, indexOwner) == nil
					}
					return indexed && r.follow(ctx, mgr, kind, queue) == nil, nil
				})
			if err == nil {
				log.FromContext(ctx).Info("A kind is served now: UnitedDeployments create it",
					"kind", kind.String())
			}
		}()
		return nil
	}
}

// follow has the children of a kind that came late call for passes.
func (r *Reconciler) follow(
	ctx context.Context, mgr ctrl.Manager, kind uniteddeployment.Kind,
	queue workqueue.TypedRateLimitingInterface[ctrl.Request],
) error {
	informer, err := mgr.GetCache().GetInformer(ctx, object(kind))
	if err != nil {
		return fmt.Errorf("following %s: %w", kind, err)
	}

	r.served.add(kind)
	var all appsv1beta1.UnitedDeploymentList
	if err := r.Client.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing UnitedDeployments: %w", err)
	}

	for i := range all.Items {
		queue.Add(reconcile.Request(all.Items[i].Namespace, all.Items[i].Name))
	}

	// The handler comes last: it is told of all that exist, and is not added a second time if something
	// before it has failed.
	ask := func(object any) {
		if gone, ok := object.(cache.DeletedFinalStateUnknown); ok {
			object = gone.Obj
		}
		if child, ok := object.(client.Object); ok {
			for _, request := range r.ofChild(ctx, child) {
				queue.Add(request)
			}
		}
	}
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: ask, DeleteFunc: ask,
		UpdateFunc: func(before, after any) {
			a, _ := before.(client.Object)
			if b, ok := after.(client.Object); ok && changed(event.UpdateEvent{ObjectOld: a, ObjectNew: b}) {
				ask(before)
				ask(after)
			}
		}}); err != nil {
		return fmt.Errorf("following %s: %w", kind, err)
	}

	return nil
}
