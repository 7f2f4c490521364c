package controller

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/restart"
	"github.com/afloat-project/afloat/internal/kinds/containerrecreate"
	"github.com/afloat-project/afloat/internal/podfeatures/sidecarterminator"
	"github.com/afloat-project/afloat/internal/reconcile"
)

// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups="",resources=pods/status,verbs=patch
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch
// +kubebuilder:rbac:groups=apps.kruise.io,roleName=kruise-manager-sidecarterminator-role,resources=containerrecreaterequests,verbs=get;list;watch;create
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// ofPod indexes requests by the pod UID in their names.
const ofPod = "sidecarterminator.podUID"

// mendedAfter is the longest time that a pod waits after the cause of a rejected write, such as a quota, was
// removed: there is no event for that.
const mendedAfter = time.Minute

// Reconciler carries out plans. Its fields are exported for tests.
type Reconciler struct {
	*reconcile.API
	Events reconcile.Recorder

	terminations *prometheus.CounterVec
}

// What is kept of a pod between passes is when its requests were first seen to have ended.
type (
	controller = reconcile.Controller[*corev1.Pod, map[types.UID]time.Time]
	session    = reconcile.Session[*corev1.Pod, map[types.UID]time.Time]
)

// Setup adds the controller to the manager.
func Setup(ctx context.Context, mgr ctrl.Manager, options reconcile.Options) error {
	if err := mgr.GetFieldIndexer().IndexField(ctx, &appsv1beta1.ContainerRecreateRequest{}, ofPod,
		index); err != nil {
		return fmt.Errorf("indexing ContainerRecreateRequests of sidecars: %w", err)
	}

	r := &Reconciler{
		API:    options.API(mgr),
		Events: reconcile.NewRecorder(mgr.GetEventRecorder("sidecarterminator-controller")),
		terminations: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "afloat_sidecar_terminations_total",
			Help: "Sidecars of pods whose main containers are done, by the way in which they are stopped (Request, Image, Phase) and its result.",
		}, []string{"way", "result"}),
	}

	return r.controller().Complete("sidecarterminator", options, ctrl.NewControllerManagedBy(mgr).
		For(&corev1.Pod{}, builder.WithPredicates(podEvents)).
		Watches(&appsv1beta1.ContainerRecreateRequest{},
			handler.Funcs{UpdateFunc: r.changed, DeleteFunc: r.deleted}), r.terminations)
}

func (r *Reconciler) controller() *controller {
	return &controller{API: r.API, Events: r.Events, Pass: r.pass, Owner: r.owner, AtMost: time.Second}
}

// owner returns the UID of a pod with sidecars. Nothing may be remembered about other pods: no event reports
// their end, and anyone who creates a request with such a name triggers a pass over them.
func (r *Reconciler) owner(ctx context.Context, name types.NamespacedName) (types.UID, error) {
	pod, err := reconcile.Find[*corev1.Pod](ctx, r.API, name)
	if err != nil || pod == nil || !sidecarterminator.Marked(pod) {
		return "", err
	}
	return pod.UID, nil
}

func index(object client.Object) []string {
	uid := sidecarterminator.PodUID(object.GetName())
	if uid == "" {
		return nil
	}
	return []string{string(uid)}
}

// podEvents selects pods for which there is something to do, and those for which there no longer is, so that
// they are forgotten.
var podEvents = predicate.Funcs{
	CreateFunc: func(e event.CreateEvent) bool { return concerns(e.Object) },
	UpdateFunc: func(e event.UpdateEvent) bool { return concerns(e.ObjectNew) || concerns(e.ObjectOld) },
	DeleteFunc: func(e event.DeleteEvent) bool {
		pod, ok := e.Object.(*corev1.Pod)
		return ok && sidecarterminator.Marked(pod)
	},
}

func concerns(object client.Object) bool {
	pod, ok := object.(*corev1.Pod)
	return ok && sidecarterminator.Concerns(pod)
}

type queue = reconcile.Queue

// changed requests a pass when a request ends, and counts its result.
func (r *Reconciler) changed(_ context.Context, e event.UpdateEvent, q queue) {
	before, ok := e.ObjectOld.(*appsv1beta1.ContainerRecreateRequest)
	after, same := e.ObjectNew.(*appsv1beta1.ContainerRecreateRequest)
	if !ok || !same || restart.Completed(before) || !restart.Completed(after) {
		return
	}

	name := sidecarterminator.OwnerOf(after)
	if name == "" {
		return
	}

	q.Add(reconcile.Request(after.Namespace, name))
	for i := range after.Spec.Containers {
		result := string(containerrecreate.ResultOf(after))
		for j := range after.Status.ContainerRecreateStates {
			if state := &after.Status.ContainerRecreateStates[j]; state.Name ==
				after.Spec.Containers[i].Name && state.Phase == appsv1beta1.ContainerRecreateRequestSucceeded {
				result = string(containerrecreate.Succeeded)
			}
		}
		r.count(sidecarterminator.ByRequest, result, 1)
	}
}

func (r *Reconciler) deleted(_ context.Context, e event.DeleteEvent, q queue) {
	request, ok := e.Object.(*appsv1beta1.ContainerRecreateRequest)
	if !ok {
		return
	}
	if name := sidecarterminator.OwnerOf(request); name != "" {
		q.Add(reconcile.Request(request.Namespace, name))
	}
}

func (r *Reconciler) count(way sidecarterminator.Way, result string, sidecars int) {
	if r.terminations != nil {
		r.terminations.WithLabelValues(string(way), result).Add(float64(sidecars))
	}
}

func (r *Reconciler) pass(ctx context.Context, s *session) (reconcile.Outcome, error) {
	if !sidecarterminator.Concerns(s.Object) {
		if s.Again() == 0 { // later events of the pod are ignored
			r.Own.Forget(s.Object.UID)
			s.Forget()
		}
		return reconcile.Outcome{}, nil
	}

	snapshot, err := r.snapshot(ctx, s)
	if err != nil {
		return reconcile.Outcome{}, err
	}

	plan := sidecarterminator.NewPlan(snapshot)
	for _, w := range plan.Warnings {
		if s.News(w.Reason, w.About) {
			s.Event(corev1.EventTypeWarning, w.Reason, w.Message)
		}
	}

	done := reconcile.Outcome{
		After:    plan.After,
		Headline: plan.Why,
		Record:   func() []any { return []any{"plan", plan.String()} },
	}
	err = r.apply(ctx, s, plan)
	switch {
	case reconcile.IsStalePlan(err) || apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err):
		done.After, err = reconcile.RetrySoon, nil
	case reconcile.IsNamespaceTerminating(err): // the pod will be deleted too
		return done, nil
	case err != nil:
		if reconcile.Refused(err) {
			s.Once(corev1.EventTypeWarning, failed, err.Error())
		}
		done.After = mendedAfter
	default:
		s.News(failed, "")
	}

	reconcile.MinRequeue(&done.After, s.Again())
	return done, err
}

// failed is the reason of the event about a write that was rejected, for example by a quota or a policy.
const failed = "SidecarTerminatorFailed"

func (r *Reconciler) snapshot(ctx context.Context, of *session) (sidecarterminator.Snapshot, error) {
	pod := of.Object
	s := sidecarterminator.Snapshot{Pod: pod, Now: r.Now()}
	node := &corev1.Node{}
	switch err := r.Client.Get(ctx, types.NamespacedName{Name: pod.Spec.NodeName}, node,
		client.UnsafeDisableDeepCopy); {
	case err == nil:
		s.Node = sidecarterminator.NodeOf(node.Labels)
	case !apierrors.IsNotFound(err): // a node that is not found is looked for again
		return s, fmt.Errorf("reading node %s: %w", pod.Spec.NodeName, err)
	}

	var list appsv1beta1.ContainerRecreateRequestList
	if err := r.Client.List(ctx, &list, client.InNamespace(pod.Namespace),
		client.MatchingFields{ofPod: string(pod.UID)}, client.UnsafeDisableDeepCopy); err != nil {
		return s, fmt.Errorf("listing ContainerRecreateRequests of the pod: %w", err)
	}

	requests := make([]*appsv1beta1.ContainerRecreateRequest, len(list.Items))
	for i := range list.Items {
		requests[i] = &list.Items[i]
	}

	s.Requests = reconcile.Overlay(r.Own, pod.UID, requests,
		func(request *appsv1beta1.ContainerRecreateRequest) bool {
			return request.Namespace == pod.Namespace && sidecarterminator.PodUID(request.Name) == pod.UID
		})
	ended := map[types.UID]time.Time{}
	for _, request := range s.Requests {
		if !sidecarterminator.Over(request) {
			continue
		}
		seen, ok := (*of.Kept)[request.UID]
		if !ok {
			seen = s.Now
		}
		ended[request.UID] = seen
	}

	*of.Kept, s.Ended = ended, ended
	return s, nil
}

// apply makes the writes of the plan, and records an event for each.
func (r *Reconciler) apply(ctx context.Context, s *session, plan *sidecarterminator.Plan) error {
	told := func(way sidecarterminator.Way, sidecars int, result string, err error) error {
		switch {
		case err == nil:
			s.Event(corev1.EventTypeNormal, sidecarterminator.Done, sidecarterminator.Event(way, plan))
		case reconcile.Refused(err) && !apierrors.IsAlreadyExists(err) &&
			!reconcile.IsNamespaceTerminating(err):
			result = "Refused"
		default:
			return err
		}

		if result != "" {
			r.count(way, result, sidecars)
		}

		return err
	}
	if !plan.Images.Empty() {
		patched, err := patch(ctx, s, plan.Images.JSON, "")
		if err := told(sidecarterminator.ByImage, len(plan.Replaced), "Replaced", err); err != nil {
			return fmt.Errorf("replacing images: %w", err)
		}
		s.Object = patched
	}

	if plan.Request != nil {
		err := s.CreateTyped(ctx, plan.Request)
		// The cache is stale: an earlier manager created the request, or somebody else did.
		if apierrors.IsAlreadyExists(err) {
			if err := s.Read(ctx, client.ObjectKeyFromObject(plan.Request),
				&appsv1beta1.ContainerRecreateRequest{}); client.IgnoreNotFound(err) != nil {
				return fmt.Errorf("reading ContainerRecreateRequest %s: %w", plan.Request.Name, err)
			}
		}
		if err := told(sidecarterminator.ByRequest, len(plan.Request.Spec.Containers), "", err); err != nil {
			return fmt.Errorf("creating ContainerRecreateRequest %s: %w", plan.Request.Name, err)
		}
	}

	if !plan.Status.Empty() {
		_, err := patch(ctx, s, plan.Status.JSON, "status")
		if err := told(sidecarterminator.ByPhase, len(plan.Freed), "Set", err); err != nil {
			return fmt.Errorf("setting the phase ahead: %w", err)
		}
	}

	return nil
}

func patch(
	ctx context.Context, s *session, encode func(*corev1.Pod) ([]byte, error), subresource string,
) (*corev1.Pod, error) {
	body, err := encode(s.Object)
	if err != nil {
		return nil, err
	}
	return reconcile.Patch(ctx, s.Writer, s.Object, body, subresource)
}
