package controller

import (
	"cmp"
	"context"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/source"

	policyv1beta1 "github.com/afloat-project/afloat/api/policy/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/readiness"
	"github.com/afloat-project/afloat/internal/kinds/podunavailablebudget"
	"github.com/afloat-project/afloat/internal/reconcile"
)

// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

const (
	controllerName = "podunavailablebudget-controller"
	// pauseAtMost is the longest pause between the passes of a budget, and passEvery the shortest: the pods
	// of a rollout change faster than anybody needs to know.
	pauseAtMost = time.Second
	passEvery   = 100 * time.Millisecond
	// deletedAgain is when a budget is looked at again after the deletion of one of its pods began.
	deletedAgain = 5 * time.Second
)

type reconciler struct {
	pass   *Pass
	watch  *Watch
	meters *meters
}

// Setup adds the controller to the manager.
func Setup(mgr ctrl.Manager, watch *Watch, options reconcile.Options) error {
	r := &reconciler{watch: watch, meters: newMeters(), pass: &Pass{
		budgetController: budgetController{API: options.API(mgr),
			Events: reconcile.NewRecorder(mgr.GetEventRecorder(controllerName))},
		Guard: watch.Guard,
		Workloads: NewWorkloads(mgr.GetCache(), mgr.GetAPIReader(), mgr.GetClient().SubResource("scale"),
			mgr.GetRESTMapper())}}
	watch.Guard.owners.watched = r.pass.Workloads.metadata

	options.Guard = nil // the controller of budgets is not limited by them
	return r.controller().Complete(controllerName, options, ctrl.NewControllerManagedBy(mgr).
		Watches(&policyv1beta1.PodUnavailableBudget{}, budgets()).
		Watches(&corev1.Pod{}, r.pods()).
		WatchesRawSource(source.Func(func(_ context.Context, q queue) error {
			r.pass.Workloads.Tell(func(namespace string, changed podunavailablebudget.Reference, moved bool) {
				r.ofWorkload(q, namespace, changed, moved)
			})
			return nil
		})), r.meters.all()...)
}

func (r *reconciler) controller() *budgetController {
	c := &r.pass.budgetController
	c.Every, c.AtMost = passEvery, pauseAtMost
	c.RetryAtMost = lookAgain // nothing may tell that the cause is gone, and the back-off may be long by then
	c.Pass = func(ctx context.Context, s *session) (reconcile.Outcome, error) {
		after, plan, err := r.pass.run(ctx, s)
		if plan != nil {
			r.meters.observe(s.Name, plan)
		}
		return reconcile.Outcome{After: after}, err
	}
	c.Forgotten = func(name types.NamespacedName, _ types.UID) { r.meters.forget(name) }
	return c
}

type queue = reconcile.Queue

// settleAgain is when a budget is looked at again after a booking. A booking does not end earlier.
const settleAgain = 5 * time.Second

// budgets enqueues budgets at once if their rules change, and after a while if only bookings change, since
// those are known to whoever made them.
func budgets() handler.EventHandler {
	now := func(q queue, budget client.Object) {
		q.Add(ctrl.Request{NamespacedName: client.ObjectKeyFromObject(budget)})
	}

	return handler.Funcs{
		CreateFunc:  func(_ context.Context, e event.CreateEvent, q queue) { now(q, e.Object) },
		DeleteFunc:  func(_ context.Context, e event.DeleteEvent, q queue) { now(q, e.Object) },
		GenericFunc: func(_ context.Context, e event.GenericEvent, q queue) { now(q, e.Object) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) {
			old, ok := e.ObjectOld.(*policyv1beta1.PodUnavailableBudget)
			budget, ok2 := e.ObjectNew.(*policyv1beta1.PodUnavailableBudget)
			if !ok || !ok2 || !podunavailablebudget.NewRules(old).Same(budget) ||
				budget.Status.ObservedGeneration != budget.Generation ||
				budget.Status.UnavailableAllowed > old.Status.UnavailableAllowed { // possibly by hand
				now(q, e.ObjectNew)
				return
			}
			q.AddAfter(ctrl.Request{NamespacedName: client.ObjectKeyFromObject(budget)}, settleAgain)
		},
	}
}

// ofWorkload enqueues the budgets whose numbers depend on a workload.
func (r *reconciler) ofWorkload(
	q queue, namespace string, changed podunavailablebudget.Reference, moved bool,
) {
	for _, rules := range r.watch.Index.In(namespace) {
		if r.pass.Counts(rules, changed, moved) {
			q.Add(request(rules))
		}
	}
}

func request(rules *podunavailablebudget.Rules) ctrl.Request {
	return ctrl.Request{NamespacedName: types.NamespacedName{Namespace: rules.Budget.Namespace,
		Name: rules.Budget.Name}}
}

// pods enqueues the budgets that may cover a pod when the pod changes in what they count.
func (r *reconciler) pods() handler.EventHandler {
	return reconcile.Changes(true, func(_ context.Context, q queue, before, after *corev1.Pod) {
		all := r.watch.Index.In(cmp.Or(after, before).Namespace)
		if len(all) == 0 || before != nil && after != nil && !differs(before, after, r.pass.API.Now()) {
			return
		}
		for _, rules := range all {
			for _, pod := range []*corev1.Pod{after, before} {
				if pod != nil && r.concerns(rules, pod) {
					q.Add(request(rules))
					if pod.DeletionTimestamp != nil {
						q.AddAfter(request(rules), deletedAgain)
					}
					break
				}
			}
		}
	})
}

// concerns reports whether a budget may cover the pod. A pod that names no existing budget concerns all
// budgets with a targetRef.
func (r *reconciler) concerns(rules *podunavailablebudget.Rules, pod *corev1.Pod) bool {
	if rules.Target.Name == "" {
		return rules.Selects(pod)
	}
	named := podunavailablebudget.RelatedName(pod)
	return named == rules.Budget.Name || r.pass.MayLead(rules, pod) ||
		r.watch.Index.Get(types.NamespacedName{Namespace: pod.Namespace, Name: named}) == nil
}

// differs reports whether two versions of a pod differ in what budgets count.
func differs(old, pod *corev1.Pod, now time.Time) bool {
	before, _ := podunavailablebudget.Why(old, now)
	after, _ := podunavailablebudget.Why(pod, now)
	return (before == "") != (after == "") || readiness.Active(old) != readiness.Active(pod) ||
		old.Annotations[pub.RelatedBudget] != pod.Annotations[pub.RelatedBudget] ||
		old.Annotations[pub.RelatedBudgetLegacy] != pod.Annotations[pub.RelatedBudgetLegacy] ||
		!maps.Equal(old.Labels, pod.Labels) ||
		controllerOf(old) != controllerOf(pod)
}
