// Package controller carries out the plans of UnitedDeployments.
package controller

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/readiness"
	"github.com/afloat-project/afloat/internal/kinds/uniteddeployment"
	"github.com/afloat-project/afloat/internal/platform/podindex"
	"github.com/afloat-project/afloat/internal/reconcile"
)

// +kubebuilder:rbac:groups=apps.kruise.io,resources=uniteddeployments,verbs=get;list;watch
// +kubebuilder:rbac:groups=apps.kruise.io,resources=uniteddeployments/status,verbs=patch
// +kubebuilder:rbac:groups=apps.kruise.io,resources=uniteddeployments/finalizers,verbs=update
// +kubebuilder:rbac:groups=apps.kruise.io,resources=clonesets;statefulsets,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=apps,resources=deployments;statefulsets,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=apps,resources=replicasets,verbs=get;list;watch
// +kubebuilder:rbac:groups=apps,resources=controllerrevisions,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;patch;delete

const (
	controllerName = "uniteddeployment-controller"
	// byOwner indexes children by the UID of the UnitedDeployment that controls them, and workloads that
	// could be adopted by nobody. byDeployment indexes ReplicaSets by the UID of their Deployment.
	byOwner, byDeployment = "uniteddeployment.owner", "uniteddeployment.deployment"
	nobody                = "-"
)

// Reconciler carries out plans of UnitedDeployments. Its fields are exported for tests.
type Reconciler struct {
	*reconcile.API
	Events reconcile.Recorder
	// Pods finds pods in the caches.
	Pods *podindex.Index

	served reconcile.ServedKinds[uniteddeployment.Kind]
	meters *meters
	// selectors are those of UnitedDeployments that may adopt a workload.
	selectors reconcile.Selectors
}

type (
	controller = reconcile.Controller[*appsv1beta1.UnitedDeployment, memory]
	session    = reconcile.Session[*appsv1beta1.UnitedDeployment, memory]
)

// memory is what is kept of a UnitedDeployment between passes.
type memory struct {
	known uniteddeployment.Knowledge
	// verified holds fingerprints of children that were found to have their template, by UID.
	verified map[types.UID]string
	// failed are the subsets whose last creation or update failed.
	failed map[string]bool
}

// Setup adds the controller to the manager. A kind of children that is not served yet is watched as soon as
// it is.
func Setup(ctx context.Context, mgr ctrl.Manager, options reconcile.Options) error {
	r := &Reconciler{API: options.API(mgr),
		Events: reconcile.NewRecorder(mgr.GetEventRecorder(controllerName)), Pods: options.Pods,
		meters: newMeters()}
	if err := mgr.GetFieldIndexer().IndexField(ctx, &appsv1.ReplicaSet{}, byDeployment,
		indexDeployment); err != nil {
		return fmt.Errorf("indexing ReplicaSets: %w", err)
	}

	b := ctrl.NewControllerManagedBy(mgr).For(&appsv1beta1.UnitedDeployment{}).
		Watches(&appsv1.ControllerRevision{},
			handler.EnqueueRequestsFromMapFunc(reconcile.OwnedBy(uniteddeployment.Name))).
		Watches(&appsv1.ReplicaSet{}, handler.EnqueueRequestsFromMapFunc(r.ofPod),
			builder.WithPredicates(setChanges)).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(r.ofPod),
			builder.WithPredicates(podChanges))

	for _, kind := range uniteddeployment.Kinds {
		if err := r.follow(mgr, options.Current, kind).AddTo(ctx, b); err != nil {
			return err
		}
	}

	return r.controller().Complete(controllerName, options, b, r.meters.all()...)
}

func (r *Reconciler) controller() *controller {
	return &controller{API: r.API, Events: r.Events, Pass: r.pass, AtMost: 10 * time.Second,
		Forgotten: func(name types.NamespacedName, _ types.UID) { r.meters.forget(name) }}
}

// follow returns what watches the children of a kind.
func (r *Reconciler) follow(mgr ctrl.Manager, current func(context.Context) error, kind uniteddeployment.Kind) *reconcile.LateKind {
	return &reconcile.LateKind{
		Cache:      mgr.GetCache(),
		Mapper:     mgr.GetRESTMapper(),
		Kind:       schema.FromAPIVersionAndKind(kind.APIVersion(), kind.Name()),
		Name:       kind.String(),
		Object:     object(kind),
		Indexes:    []*reconcile.Index{{Object: object(kind), Field: byOwner, Of: indexOwner}},
		Handler:    handler.EnqueueRequestsFromMapFunc(r.ofChild),
		Predicates: []predicate.Predicate{predicate.Funcs{UpdateFunc: changed}},
		Current:    current,
		Served:     func() { r.served.Add(kind) },
		Waiting: func(ctx context.Context) ([]ctrl.Request, error) {
			return reconcile.Due(ctx, r.API, &appsv1beta1.UnitedDeploymentList{},
				func(*appsv1beta1.UnitedDeployment) bool { return true })
		},
		Without: "UnitedDeployments of it wait",
		With:    "UnitedDeployments create it",
	}
}

// object returns an empty object of the kind.
func object(kind uniteddeployment.Kind) client.Object { return kind.New() }

// indexOwner returns the owner of a child for the index byOwner, or nobody for a workload that could be
// adopted.
func indexOwner(object client.Object) []string {
	if owner := uniteddeployment.OwnerOf(object); owner != "" {
		return []string{string(owner)}
	}
	if orphan(object) {
		return []string{nobody}
	}
	return nil
}

func orphan(object client.Object) bool {
	return metav1.GetControllerOfNoCopy(object) == nil &&
		object.GetLabels()[uniteddeployment.SubsetName] != "" && object.GetDeletionTimestamp() == nil
}

func indexDeployment(object client.Object) []string {
	if owner := metav1.GetControllerOfNoCopy(object); owner != nil && owner.Kind == "Deployment" {
		return []string{string(owner.UID)}
	}
	return nil
}

// ofChild returns requests for the UnitedDeployment of a child, or for those that may adopt it.
func (r *Reconciler) ofChild(ctx context.Context, child client.Object) []ctrl.Request {
	if owner := uniteddeployment.OwnerOf(child); owner != "" {
		return []ctrl.Request{
			reconcile.Request(child.GetNamespace(), metav1.GetControllerOfNoCopy(child).Name)}
	}
	if !orphan(child) {
		return nil
	}

	var all appsv1beta1.UnitedDeploymentList
	if err := r.Client.List(ctx, &all, client.InNamespace(child.GetNamespace()),
		client.UnsafeDisableDeepCopy); err != nil {
		return nil // the caches have stopped
	}

	var requests []ctrl.Request
	for i := range all.Items {
		matches, err := r.selectors.Of(&all.Items[i], "selector", all.Items[i].Spec.Selector)
		if err == nil && !matches.Empty() && matches.Matches(labels.Set(child.GetLabels())) {
			requests = append(requests, reconcile.Request(child.GetNamespace(), all.Items[i].Name))
		}
	}

	return requests
}

// changed reports whether an update of a child changes what plans read.
func changed(e event.UpdateEvent) bool {
	a, b := e.ObjectOld, e.ObjectNew
	x, y := *uniteddeployment.ChildOf(a), *uniteddeployment.ChildOf(b)
	x.Object, y.Object = nil, nil
	return !equality.Semantic.DeepEqual(x, y) || a.GetUID() != b.GetUID() ||
		a.GetGeneration() != b.GetGeneration() || !maps.Equal(a.GetLabels(), b.GetLabels()) ||
		(a.GetDeletionTimestamp() == nil) != (b.GetDeletionTimestamp() == nil) ||
		uniteddeployment.OwnerOf(a) != uniteddeployment.OwnerOf(b)
}

// podChanges selects the changes of children's pods that plans read.
var podChanges = predicate.Funcs{
	CreateFunc: func(e event.CreateEvent) bool { return labelled(e.Object) },
	DeleteFunc: func(e event.DeleteEvent) bool { return labelled(e.Object) },
	UpdateFunc: func(e event.UpdateEvent) bool {
		a, isPod := e.ObjectOld.(*corev1.Pod)
		b, _ := e.ObjectNew.(*corev1.Pod)
		return isPod && (labelled(a) || labelled(b)) &&
			(a.UID != b.UID || a.Status.Phase != b.Status.Phase || readiness.Ready(a) != readiness.Ready(b) ||
				readiness.Active(a) != readiness.Active(b) || a.Spec.NodeName != b.Spec.NodeName ||
				!maps.Equal(a.Labels, b.Labels) ||
				!equality.Semantic.DeepEqual(readiness.Condition(a, corev1.PodScheduled),
					readiness.Condition(b, corev1.PodScheduled)))
	},
}

// setChanges selects new ReplicaSets. Their pods may have been in the caches before them, but are only found
// once the ReplicaSet is there, too.
var setChanges = predicate.Funcs{
	CreateFunc: func(e event.CreateEvent) bool { return labelled(e.Object) },
	UpdateFunc: func(event.UpdateEvent) bool { return false },
	DeleteFunc: func(event.DeleteEvent) bool { return false },
}

func labelled(pod client.Object) bool { return pod.GetLabels()[uniteddeployment.SubsetName] != "" }

// ofPod returns a request for the UnitedDeployment of a pod or of a ReplicaSet. The pods of a Deployment are
// found through their ReplicaSet.
func (r *Reconciler) ofPod(ctx context.Context, pod client.Object) []ctrl.Request {
	controller := metav1.GetControllerOfNoCopy(pod)
	if controller != nil && controller.Kind == "ReplicaSet" {
		set := &appsv1.ReplicaSet{}
		if !r.cached(ctx, pod.GetNamespace(), controller, set) {
			return nil
		}
		controller = metav1.GetControllerOfNoCopy(set)
	}
	if controller == nil {
		return nil
	}

	present, _ := r.served.Of(uniteddeployment.Kinds)
	i := slices.IndexFunc(present, func(k uniteddeployment.Kind) bool {
		return k.GroupVersionKind().GroupKind() ==
			schema.FromAPIVersionAndKind(controller.APIVersion, controller.Kind).GroupKind()
	})
	if i < 0 {
		return nil
	}

	child := present[i].New()
	if !r.cached(ctx, pod.GetNamespace(), controller, child) || uniteddeployment.OwnerOf(child) == "" {
		return nil
	}

	return []ctrl.Request{reconcile.Request(pod.GetNamespace(), metav1.GetControllerOfNoCopy(child).Name)}
}

// cached reads an owner from the caches, and reports whether it is there.
func (r *Reconciler) cached(
	ctx context.Context, namespace string, owner *metav1.OwnerReference, into client.Object,
) bool {
	err := r.Client.Get(ctx, types.NamespacedName{Namespace: namespace, Name: owner.Name}, into,
		client.UnsafeDisableDeepCopy)
	return err == nil && into.GetUID() == owner.UID
}
