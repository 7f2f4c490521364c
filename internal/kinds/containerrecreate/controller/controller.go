package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/restart"
	"github.com/afloat-project/afloat/internal/kinds/containerrecreate"
	"github.com/afloat-project/afloat/internal/reconcile"
)

// +kubebuilder:rbac:groups=apps.kruise.io,roleName=kruise-manager-nodes-role,resources=containerrecreaterequests,verbs=get;list;watch;patch;delete
// +kubebuilder:rbac:groups=apps.kruise.io,roleName=kruise-manager-nodes-role,resources=containerrecreaterequests/status,verbs=patch
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=pods/status,verbs=patch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// unfinishedByPod indexes the requests that a pod's events concern.
const unfinishedByPod = "containerrecreate.podUID"

// Reconciler carries out plans. Its fields are for tests to fill in.
type Reconciler struct {
	*reconcile.API
	Events reconcile.Recorder
	meters *meters
	// told holds the UIDs of requests, by name, whose end was told and is still to be written.
	told sync.Map
}

// Setup adds the controller to the manager.
func Setup(ctx context.Context, mgr ctrl.Manager, options reconcile.Options) error {
	if err := mgr.GetFieldIndexer().IndexField(ctx, &appsv1beta1.ContainerRecreateRequest{}, unfinishedByPod,
		indexByPod); err != nil {
		return fmt.Errorf("indexing ContainerRecreateRequests by pod: %w", err)
	}
	api := options.API(mgr)
	// a request is its daemon's, too: what was planned from a cache that lags ends in a conflict
	api.Own = nil
	r := &Reconciler{
		API:    api,
		Events: reconcile.NewRecorder(mgr.GetEventRecorder("containerrecreaterequest-controller")),
		meters: newMeters(),
	}
	if err := reconcile.Register(r.meters.all()...); err != nil {
		return err
	}
	err := options.Complete("containerrecreaterequest", r, ctrl.NewControllerManagedBy(mgr).
		For(&appsv1beta1.ContainerRecreateRequest{}).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(r.ofPod),
			builder.WithPredicates(podEvents)))
	if err != nil {
		return err
	}
	return (&filler{api}).setup(mgr,
		reconcile.Options{Workers: options.Workers, Everywhere: true, Pulse: options.Pulse})
}

func indexByPod(object client.Object) []string {
	request, ok := object.(*appsv1beta1.ContainerRecreateRequest)
	if !ok || request.DeletionTimestamp != nil || restart.Completed(request) ||
		restart.PodUID(request) == "" {
		return nil
	}
	return []string{string(restart.PodUID(request))}
}

// podEvents are what a request waits for.
var podEvents = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, isPod := e.ObjectOld.(*corev1.Pod)
		after, same := e.ObjectNew.(*corev1.Pod)
		if !isPod || !same {
			return false
		}
		// The message of a pod of others is a sum of its statuses, which the cache does not hold.
		return before.UID != after.UID || before.Status.Message != after.Status.Message ||
			(before.DeletionTimestamp == nil) != (after.DeletionTimestamp == nil) ||
			!equality.Semantic.DeepEqual(before.Status.ContainerStatuses, after.Status.ContainerStatuses) ||
			!equality.Semantic.DeepEqual(before.Status.InitContainerStatuses,
				after.Status.InitContainerStatuses)
	},
}

func (r *Reconciler) ofPod(ctx context.Context, pod client.Object) []ctrl.Request {
	var list appsv1beta1.ContainerRecreateRequestList
	err := r.Client.List(ctx, &list, client.InNamespace(pod.GetNamespace()),
		client.MatchingFields{unfinishedByPod: string(pod.GetUID())}, client.UnsafeDisableDeepCopy)
	if err != nil {
		log.FromContext(ctx).Error(err, "Listing ContainerRecreateRequests of a pod", "pod",
			client.ObjectKeyFromObject(pod))
		return nil
	}
	requests := make([]ctrl.Request, 0, len(list.Items))
	for i := range list.Items {
		requests = append(requests, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
	}
	return requests
}

// Reconcile implements the reconciler of the library.
func (r *Reconciler) Reconcile(ctx context.Context, key ctrl.Request) (ctrl.Result, error) {
	request := &appsv1beta1.ContainerRecreateRequest{}
	if err := r.Client.Get(ctx, key.NamespacedName, request); err != nil {
		if apierrors.IsNotFound(err) {
			r.told.Delete(key.NamespacedName)
			return ctrl.Result{}, nil
		}
		return ctrl.Result{}, fmt.Errorf("reading ContainerRecreateRequest: %w", err)
	}
	pod, err := r.pod(ctx, request)
	if err != nil {
		return ctrl.Result{}, err
	}
	plan := containerrecreate.NewPlan(containerrecreate.Snapshot{Request: request, Pod: pod, Now: r.Now()})
	if !plan.Idle() {
		log.FromContext(ctx).V(2).Info("Plan", "plan", plan.String())
	}
	switch err := r.apply(ctx, request, pod, plan); {
	case apierrors.IsConflict(err):
		// Somebody wrote in between, or the cache is behind: the plan is made anew, from what is there then.
		return ctrl.Result{RequeueAfter: reconcile.RetrySoon}, nil
	case err != nil:
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: plan.After}, nil
}

// pod reads the pod of the request. The cache is trusted only to say that the pod is there: it may not have
// come yet, and it does not hold all of what plans need of pods of others.
func (r *Reconciler) pod(
	ctx context.Context, request *appsv1beta1.ContainerRecreateRequest,
) (*corev1.Pod, error) {
	name := types.NamespacedName{Namespace: request.Namespace, Name: request.Spec.PodName}
	held := slices.Contains(request.Finalizers, pub.RecreateUnreadyAcquired)
	if ended := restart.Completed(request) || request.DeletionTimestamp != nil; ended && !held {
		return nil, nil // nothing is asked of it
	} else if !ended && request.Status.Phase != appsv1beta1.ContainerRecreateRequestRecreating {
		pod := &corev1.Pod{}
		err := r.Client.Get(ctx, name, pod, client.UnsafeDisableDeepCopy)
		if err == nil && pod.UID == restart.PodUID(request) {
			return pod, nil
		}
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("reading pod %s: %w", name, err)
		}
	}
	pod := &corev1.Pod{}
	if err := r.Live.Get(ctx, name, pod); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return nil, fmt.Errorf("reading pod %s: %w", name, err)
	}
	return pod, nil
}

func (r *Reconciler) apply(
	ctx context.Context, request *appsv1beta1.ContainerRecreateRequest, pod *corev1.Pod,
	plan *containerrecreate.Plan,
) error {
	var err error
	w, finalizers := r.For(request.UID), slices.Clone(request.Finalizers)
	if plan.AddFinalizer {
		finalizers = append(finalizers, pub.RecreateUnreadyAcquired)
		if request, err = reconcile.Merge(ctx, w, request, map[string]any{"finalizers": finalizers}, nil,
			""); err != nil {
			return fmt.Errorf("adding the finalizer: %w", err)
		}
	}
	if !plan.Pod.Empty() {
		if !plan.AddFinalizer { // which tells by itself whether the request is as the plan says
			if err := r.current(ctx, request, plan.RemoveFinalizer); err != nil {
				return err
			}
		}
		body, err := plan.Pod.JSON(pod)
		if err != nil {
			return err
		}
		_, err = reconcile.Patch(ctx, w, pod, body, "status")
		// a pod that is gone is released
		if err != nil && (!plan.RemoveFinalizer || !apierrors.IsNotFound(err)) {
			return fmt.Errorf("writing %s of pod %s: %w", plan.Pod, pod.Name, err)
		}
	}
	r.tell(request, plan)
	if plan.RemoveFinalizer || plan.RemoveActive {
		metadata := map[string]any{}
		if plan.RemoveFinalizer {
			metadata["finalizers"] = slices.DeleteFunc(finalizers,
				func(f string) bool { return f == pub.RecreateUnreadyAcquired })
		}
		if plan.RemoveActive {
			metadata["labels"] = map[string]any{pub.RecreateActive: nil}
		}
		if request, err = reconcile.Merge(ctx, w, request, metadata, nil, ""); err != nil {
			return client.IgnoreNotFound(err)
		}
	}
	if plan.Status != nil {
		if request, err = reconcile.Merge(ctx, w, request, nil, map[string]any{"status": plan.Status},
			"status"); err != nil {
			return client.IgnoreNotFound(err)
		}
	}
	if plan.Delete {
		if err := w.Delete(ctx, request); err != nil {
			return fmt.Errorf("deleting the finished request: %w", err)
		}
	}
	return nil
}

// tell tells of the end of the request, before the label goes that shows that it is still to be told: a
// manager that dies in between tells twice at most, and not never. One that lives remembers it for as long as
// its cache shows the label.
func (r *Reconciler) tell(request *appsv1beta1.ContainerRecreateRequest, plan *containerrecreate.Plan) {
	name := client.ObjectKeyFromObject(request)
	if plan.Ended == "" {
		r.told.Delete(name)
		return
	}
	if before, _ := r.told.Swap(name, request.UID); before == request.UID {
		return
	}
	if r.meters != nil {
		r.meters.observe(request, plan.Ended)
	}
	kind, reason, note := containerrecreate.Event(request, plan.Ended)
	r.Events.Event(request, kind, reason, note)
}

// current is a conflict if the request is not what the cache shows: the pod's version does not tell, and a
// pod that is held for a request that has let go of it is held for ever. Only who takes over from another
// manager sees that.
func (r *Reconciler) current(
	ctx context.Context, request *appsv1beta1.ContainerRecreateRequest, release bool,
) error {
	found := &metav1.PartialObjectMetadata{}
	found.SetGroupVersionKind(appsv1beta1.GroupVersion.WithKind("ContainerRecreateRequest"))
	err := r.Live.Get(ctx, client.ObjectKeyFromObject(request), found)
	switch {
	case release && apierrors.IsNotFound(err):
		return nil // it is gone without its pod having been released
	case client.IgnoreNotFound(err) != nil:
		return fmt.Errorf("reading the request again: %w", err)
	case found.UID != request.UID || found.ResourceVersion != request.ResourceVersion:
		return apierrors.NewConflict(
			appsv1beta1.GroupVersion.WithResource("containerrecreaterequests").GroupResource(), request.Name,
			errors.New("it has changed"),
		)
	}
	return nil
}
