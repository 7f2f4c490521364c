package controller

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/readiness"
	"github.com/afloat-project/afloat/internal/kinds/sidecarset"
	"github.com/afloat-project/afloat/internal/reconcile"
)

// The rights on ControllerRevisions are those of CloneSets, because the namespace of an installation is not
// known when roles are generated.
//
// +kubebuilder:rbac:groups=apps.kruise.io,resources=sidecarsets,verbs=get;list;watch
// +kubebuilder:rbac:groups=apps.kruise.io,resources=sidecarsets/status,verbs=patch
// +kubebuilder:rbac:groups=apps.kruise.io,resources=sidecarsets/finalizers,verbs=update
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups="",resources=pods/status,verbs=patch
// +kubebuilder:rbac:groups="",resources=pods/resize,verbs=patch
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get;list;watch
// +kubebuilder:rbac:groups=apps,resources=controllerrevisions,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Options configure the controller.
type Options struct {
	reconcile.Options
	Features sidecarset.Features
	// Namespace is the namespace of revisions, which is the manager's own (SS-183).
	Namespace string
}

// controllerName is the name in metrics of the queue and in events.
const controllerName = "sidecarset-controller"

type reconciler struct {
	pass   *Pass
	meters *meters
}

// pauseAtMost is the longest pause between two plans of a SidecarSet, which may have many pods.
const pauseAtMost = 2 * time.Second

// Setup adds the controller to the manager.
func Setup(mgr ctrl.Manager, options Options) error {
	kube := &Kube{API: options.API(mgr), Pods: options.Pods, Namespace: options.Namespace}
	r := &reconciler{meters: newMeters(),
		pass: New(kube, options.Features, reconcile.NewRecorder(mgr.GetEventRecorder(controllerName)))}
	err := r.controller().Complete(controllerName, options.Options,
		ctrl.NewControllerManagedBy(mgr).
			For(&appsv1beta1.SidecarSet{}, builder.WithPredicates(setEvents)).
			Watches(&corev1.Pod{}, r.podEvents()).
			WatchesMetadata(namespaceMetadata(), handler.EnqueueRequestsFromMapFunc(r.ofNamespace),
				builder.WithPredicates(namespaceEvents)), r.meters.all()...)
	if err != nil {
		return err
	}
	if err := mgr.Add(manager.RunnableFunc(r.watchMissing)); err != nil {
		return fmt.Errorf("adding the count of pods that were never injected: %w", err)
	}

	return nil
}

// setEvents are changes of what a plan reads from a SidecarSet. They do not include the status, which this
// controller writes itself.
var setEvents = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool {
		return e.ObjectOld.GetUID() != e.ObjectNew.GetUID() ||
			e.ObjectOld.GetGeneration() != e.ObjectNew.GetGeneration() ||
			!maps.Equal(e.ObjectOld.GetAnnotations(), e.ObjectNew.GetAnnotations()) ||
			(e.ObjectOld.GetDeletionTimestamp() == nil) != (e.ObjectNew.GetDeletionTimestamp() == nil)
	},
}

// namespaceEvents are changes of labels, and new namespaces, whose pods may have been seen earlier.
var namespaceEvents = predicate.Funcs{
	DeleteFunc: func(event.DeleteEvent) bool { return false }, // its pods are gone already
	UpdateFunc: func(e event.UpdateEvent) bool {
		return !maps.Equal(e.ObjectOld.GetLabels(), e.ObjectNew.GetLabels())
	},
}

// ofNamespace returns requests for the SidecarSets that select namespaces.
func (r *reconciler) ofNamespace(ctx context.Context, _ client.Object) []ctrl.Request {
	var list appsv1beta1.SidecarSetList
	if err := r.pass.Kube.Client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		log.FromContext(ctx).Error(err, "Listing SidecarSets for a namespace")
		return nil
	}

	var requests []ctrl.Request
	for i := range list.Items {
		if list.Items[i].Spec.NamespaceSelector != nil {
			requests = append(requests,
				ctrl.Request{NamespacedName: types.NamespacedName{Name: list.Items[i].Name}})
		}
	}

	return requests
}

type queue = reconcile.Queue

// podEvents returns a handler that enqueues the SidecarSets that a pod lists.
func (r *reconciler) podEvents() handler.Funcs {
	return reconcile.Changes(true, func(ctx context.Context, q queue, before, after *corev1.Pod) {
		if before != nil && after != nil && !concerns(before, after) {
			return
		}
		for _, pod := range []*corev1.Pod{before, after} {
			if pod != nil {
				r.enqueue(ctx, q, pod)
			}
		}
	})
}

// enqueue adds the SidecarSets that a pod lists. SidecarSets that are gone are left out unless the pod's
// condition names them, because pods list them as long as they live, and each pass would look at all these
// pods in vain.
func (r *reconciler) enqueue(ctx context.Context, q queue, pod client.Object) {
	list := pod.GetAnnotations()[pub.SidecarSetInjectedList]
	if list == "" {
		return
	}

	for _, name := range sidecarset.ReadInjectedList(list) {
		request := ctrl.Request{NamespacedName: types.NamespacedName{Name: name}}
		if set, err := reconcile.Find[*appsv1beta1.SidecarSet](ctx, r.pass.Kube.API,
			request.NamespacedName); err == nil && set == nil {
			if full, isPod := pod.(*corev1.Pod); !isPod || !sidecarset.Lists(full, name) {
				continue
			}
		}
		q.Add(request)
	}
}

// concerns reports whether an update of a pod changes what a plan reads from it.
func concerns(before, after *corev1.Pod) bool {
	if before.Annotations[pub.SidecarSetInjectedList] == "" &&
		after.Annotations[pub.SidecarSetInjectedList] == "" {
		return false
	}
	if before.UID != after.UID || readiness.Active(before) != readiness.Active(after) ||
		before.Status.Phase != after.Status.Phase ||
		!maps.Equal(before.Labels, after.Labels) || before.Generation != after.Generation {
		return true
	}

	for _, key := range []string{pub.SidecarSetInjectedList, pub.SidecarSetHash,
		pub.SidecarSetHashWithoutImage, pub.SidecarSetInPlaceUpdateState,
		pub.SidecarSetWorkingHotUpgradeContainer, pub.RuntimeContainersMeta} {
		if before.Annotations[key] != after.Annotations[key] {
			return true
		}
	}

	for _, conditionType := range []corev1.PodConditionType{corev1.PodReady, pub.SidecarSetUpgradable,
		corev1.PodResizePending} {
		a, b := readiness.Condition(before, conditionType), readiness.Condition(after, conditionType)
		if (a == nil) != (b == nil) ||
			a != nil && (a.Status != b.Status || a.Reason != b.Reason || a.Message != b.Message) {
			return true
		}
	}

	image := func(a, b corev1.Container) bool { return a.Name == b.Name && a.Image == b.Image }
	return before.Status.ObservedGeneration != after.Status.ObservedGeneration ||
		!slices.EqualFunc(before.Spec.Containers, after.Spec.Containers, image) ||
		!slices.EqualFunc(before.Spec.InitContainers, after.Spec.InitContainers, image) ||
		!equality.Semantic.DeepEqual(before.Status.ContainerStatuses, after.Status.ContainerStatuses) ||
		!equality.Semantic.DeepEqual(before.Status.InitContainerStatuses, after.Status.InitContainerStatuses)
}

func (r *reconciler) controller() *controller {
	c := &r.pass.controller
	c.Pass = func(ctx context.Context, s *session) (reconcile.Outcome, error) {
		return r.passed(r.pass.run(ctx, s))
	}
	c.Absent = func(ctx context.Context, name types.NamespacedName) (reconcile.Outcome, error) {
		return r.passed(r.pass.absent(ctx, name))
	}
	c.Forgotten = func(name types.NamespacedName, _ types.UID) { r.meters.forget(name.Name) }
	return c
}

// passed meters the outcome of a pass, and returns it as the controller expects it.
func (r *reconciler) passed(outcome Outcome, err error) (reconcile.Outcome, error) {
	reconcile.MinRequeue(&outcome.After, outcome.Tell)
	done := reconcile.Outcome{After: outcome.After, Planning: outcome.Planning}
	if plan := outcome.Plan; plan != nil {
		r.meters.observe(plan, outcome.Done)
		done.Headline, done.Record, done.HeldByBudget = plan.Headline(), plan.Record, plan.HeldByBudget
	}
	return done, err
}

func namespaceList() *metav1.PartialObjectMetadataList {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NamespaceList"))
	return list
}
