package controller

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/source"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/readiness"
	"github.com/afloat-project/afloat/internal/kinds/workloadspread"
	"github.com/afloat-project/afloat/internal/reconcile"
)

// +kubebuilder:rbac:groups=apps.kruise.io,roleName=kruise-manager-workloadspread-role,resources=workloadspreads,verbs=get;list;watch
// +kubebuilder:rbac:groups=apps.kruise.io,roleName=kruise-manager-workloadspread-role,resources=workloadspreads/status,verbs=patch
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;patch;delete
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Options configure the controller.
type Options struct {
	reconcile.Options
	// Workloads reads targets and reports their changes.
	Workloads Followed
	// Booker is the one that the webhooks of this process use. The status is written with it, too (WS-110).
	Booker *Booker
	// Versioned are the kinds whose pods are counted by version (WS-184).
	Versioned workloadspread.Versioned
	// Window is how long a subset is passed over after pods could not be scheduled in it. The default is
	// UnschedulableWindow (WS-199).
	Window time.Duration
}

// controllerName is the name in the metrics of the queue and in events.
const controllerName = "workloadspread-controller"

// byTarget is the index of WorkloadSpreads by their target.
const byTarget = "workloadspread-target"

type reconciler struct {
	pass   *Pass
	kube   *kubeReader
	meters *meters
}

// Setup adds the controller to the manager.
func Setup(ctx context.Context, mgr ctrl.Manager, options Options) error {
	if err := mgr.GetFieldIndexer().IndexField(ctx, &appsv1beta1.WorkloadSpread{}, byTarget,
		func(object client.Object) []string {
			spread, ok := object.(*appsv1beta1.WorkloadSpread)
			if !ok {
				return nil
			}
			return []string{targetKey(workloadspread.TargetOf(spread))}
		}); err != nil {
		return fmt.Errorf("indexing WorkloadSpreads by target: %w", err)
	}

	api := options.API(mgr)
	kube := &Kube{API: api, Pods: options.Pods, Workloads: options.Workloads}
	if options.Window == 0 {
		options.Window = workloadspread.UnschedulableWindow
	}

	r := &reconciler{kube: &kubeReader{kube}, meters: newMeters()}
	r.pass = &Pass{
		controller: controller{API: api, Events: reconcile.NewRecorder(mgr.GetEventRecorder(controllerName))},
		Reader:     r.kube, Versioned: options.Versioned, Window: options.Window,
		Applier: Applier{API: api, Booker: options.Booker}}

	return r.controller().Complete(controllerName, options.Options, ctrl.NewControllerManagedBy(mgr).
		For(&appsv1beta1.WorkloadSpread{}). // its status too, since the webhooks book there
		Watches(&appsv1beta1.WorkloadSpread{}, handler.Funcs{DeleteFunc: r.rivals}).
		Watches(&corev1.Pod{}, &podEvents{r: r, versioned: options.Versioned}).
		WatchesRawSource(source.Func(func(ctx context.Context, q queue) error {
			options.Workloads.Tell(func(namespace string, changed workloadspread.Reference) {
				r.ofTarget(ctx, q, namespace, changed)
			})
			return nil
		})), r.meters.all()...)
}

func (r *reconciler) controller() *controller {
	c := &r.pass.controller
	c.AtMost = time.Second
	c.Pass = func(ctx context.Context, s *session) (reconcile.Outcome, error) {
		outcome, err := r.pass.run(ctx, s)
		done := reconcile.Outcome{After: outcome.After, Planning: outcome.Planning}
		if plan := outcome.Plan; plan != nil {
			r.meters.observe(s.Name, outcome)
			done.Headline = plan.Headline()
			done.Record = func() []any { return []any{"summary", []string{done.Headline}} }
		}
		return done, err
	}
	c.Forgotten = func(name types.NamespacedName, _ types.UID) { r.meters.forget(name) }
	return c
}

type queue = reconcile.Queue

func targetKey(target workloadspread.Reference) string { return target.String() + "/" + target.Name }

// ofTarget enqueues the WorkloadSpreads of a workload.
func (r *reconciler) ofTarget(
	ctx context.Context, q queue, namespace string, changed workloadspread.Reference,
) {
	var list appsv1beta1.WorkloadSpreadList
	if err := r.kube.Client.List(ctx, &list, client.InNamespace(namespace),
		client.MatchingFields{byTarget: targetKey(changed)}, client.UnsafeDisableDeepCopy); err != nil {
		log.FromContext(ctx).Error(err, "Listing WorkloadSpreads of a workload")
		return
	}

	for i := range list.Items {
		q.Add(requestFor(namespace, list.Items[i].Name))
	}
}

// rivals enqueues the other WorkloadSpreads of a namespace, since they may have left pods to the one that is
// gone.
func (r *reconciler) rivals(ctx context.Context, e event.DeleteEvent, q queue) {
	var list appsv1beta1.WorkloadSpreadList
	if err := r.kube.Client.List(ctx, &list, client.InNamespace(e.Object.GetNamespace()),
		client.UnsafeDisableDeepCopy); err != nil {
		log.FromContext(ctx).Error(err, "Listing WorkloadSpreads beside one that is gone")
		return
	}

	for i := range list.Items {
		if list.Items[i].Name != e.Object.GetName() {
			q.Add(requestFor(list.Items[i].Namespace, list.Items[i].Name))
		}
	}
}

func requestFor(namespace, name string) ctrl.Request {
	return ctrl.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}
}

// podEvents maps pods to WorkloadSpreads: by their annotation, or by their controller if they are in no
// subset.
type podEvents struct {
	r         *reconciler
	versioned workloadspread.Versioned
	filters   reconcile.Selectors
}

var _ handler.EventHandler = &podEvents{}

// Create implements handler.EventHandler. Pods of the initial list are skipped, since every WorkloadSpread is
// reconciled at the start.
func (h *podEvents) Create(ctx context.Context, e event.CreateEvent, q queue) {
	if !e.IsInInitialList {
		h.enqueue(ctx, q, e.Object, true)
	}
}

// Delete implements handler.EventHandler. A pod in no subset may have been the last one of its version, whose
// list goes with it.
func (h *podEvents) Delete(ctx context.Context, e event.DeleteEvent, q queue) {
	h.enqueue(ctx, q, e.Object, true)
}

// Generic implements handler.EventHandler.
func (h *podEvents) Generic(context.Context, event.GenericEvent, queue) {}

// Update implements handler.EventHandler.
func (h *podEvents) Update(ctx context.Context, e event.UpdateEvent, q queue) {
	before, isPod := e.ObjectOld.(*corev1.Pod)
	after, same := e.ObjectNew.(*corev1.Pod)
	if !isPod || !same {
		return
	}

	placed := before.Annotations[pub.MatchedWorkloadSpread]
	if placed != after.Annotations[pub.MatchedWorkloadSpread] || before.UID != after.UID {
		h.enqueue(ctx, q, before, false)
		h.enqueue(ctx, q, after, false)
		return
	}
	if placed == "" {
		if before.Spec.NodeName != after.Spec.NodeName && readiness.Active(after) {
			h.enqueue(ctx, q, after, true)
		}
		return
	}

	if readiness.Active(before) != readiness.Active(after) ||
		h.versioned.Of(before) != h.versioned.Of(after) ||
		scheduling(before) != scheduling(after) ||
		controllerUID(before) != controllerUID(after) {
		h.enqueue(ctx, q, after, before.Spec.NodeName != after.Spec.NodeName && readiness.Active(after))
	}
}

// scheduling returns what is read of the condition PodScheduled, and the pod's node.
func scheduling(pod *corev1.Pod) [3]string {
	state := [3]string{pod.Spec.NodeName}
	if c := readiness.Condition(pod, corev1.PodScheduled); c != nil {
		state[1], state[2] = string(c.Status), c.Reason
	}
	return state
}

// controllerUID returns the UID of the pod's controller, or an empty one. It changes when a workload releases
// a pod that it no longer matches, or adopts one.
func controllerUID(pod *corev1.Pod) types.UID {
	if owner := metav1.GetControllerOfNoCopy(pod); owner != nil {
		return owner.UID
	}
	return ""
}

// enqueue enqueues the WorkloadSpread of the pod. If it has none, and strangers is true, it enqueues all that
// the pod may belong to. They are found by names, since a request for each pod of the cluster would cost more
// than a pass that finds nothing.
func (h *podEvents) enqueue(ctx context.Context, q queue, pod client.Object, strangers bool) {
	if p, ok := pub.ParsePlacement(pod.GetAnnotations()); ok {
		request := requestFor(pod.GetNamespace(), p.Name)
		q.Add(request)
		full, isPod := pod.(*corev1.Pod)
		if spread, err := reconcile.Find[*appsv1beta1.WorkloadSpread](ctx, h.r.kube.API,
			request.NamespacedName); err != nil || !isPod ||
			Claims(&h.filters, spread, full) {
			return
		} // otherwise it belongs to nobody, and others may take it
	}

	owner, ok := workloadspread.ControllerOf(pod)
	if !strangers || !ok {
		return
	}

	var list appsv1beta1.WorkloadSpreadList
	if err := h.r.kube.Client.List(ctx, &list, client.InNamespace(pod.GetNamespace()),
		client.UnsafeDisableDeepCopy); err != nil {
		log.FromContext(ctx).Error(err, "Listing WorkloadSpreads for a pod")
		return
	}

	for i := range list.Items {
		if mayLead(workloadspread.TargetOf(&list.Items[i]), owner) {
			q.Add(requestFor(pod.GetNamespace(), list.Items[i].Name))
		}
	}
}

// mayLead reports whether a pod with that controller may be a pod of the target.
func mayLead(target, controller workloadspread.Reference) bool {
	switch {
	case target == controller:
		return true
	case target.GroupKind == controller.GroupKind:
		return false
	case !workloadspread.BuiltIn(target.GroupKind):
		return true
	}
	return controller.GroupKind == workloadspread.ControllerKind(target.GroupKind) &&
		strings.HasPrefix(controller.Name, target.Name+"-")
}
