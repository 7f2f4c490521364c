// Package controller carries out the decisions about the copies of ResourceDistributions.
package controller

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/resourcedistribution"
	"github.com/afloat-project/afloat/internal/reconcile"
)

// The permission to create cannot be limited to names. Limiting the others by resourceNames limits what can
// be distributed.
//
// +kubebuilder:rbac:groups=apps.kruise.io,roleName=kruise-manager-resourcedistribution-role,resources=resourcedistributions,verbs=get;list;watch
// +kubebuilder:rbac:groups=apps.kruise.io,roleName=kruise-manager-resourcedistribution-role,resources=resourcedistributions/status,verbs=patch
// +kubebuilder:rbac:groups=apps.kruise.io,roleName=kruise-manager-resourcedistribution-role,resources=resourcedistributions/finalizers,verbs=update
// +kubebuilder:rbac:groups="",roleName=kruise-manager-resourcedistribution-role,resources=namespaces,verbs=get;list;watch
// +kubebuilder:rbac:groups="",roleName=kruise-manager-resourcedistribution-role,resources=secrets;configmaps,verbs=create
// +kubebuilder:rbac:groups="",roleName=kruise-manager-resourcedistribution-role,resources=secrets,verbs=get;list;watch;patch;delete
// +kubebuilder:rbac:groups="",roleName=kruise-manager-resourcedistribution-role,resources=configmaps,verbs=get;list;watch;patch;delete

const controllerName = "resourcedistribution-controller"

// Reconciler keeps copies up to date. Its fields are exported for tests.
type Reconciler struct {
	*reconcile.API
	Events reconcile.Recorder

	watches watches
	meters  *meters
	// own are the namespaces of the manager.
	own []string

	mu sync.Mutex
	// asked enqueues the ResourceDistribution of that name.
	asked         func(name string)
	distributions map[types.UID]*distribution
}

type (
	controller = reconcile.Controller[*appsv1beta1.ResourceDistribution, struct{}]
	session    = reconcile.Session[*appsv1beta1.ResourceDistribution, struct{}]
)

// newReconciler returns a Reconciler. follow runs the watch of copies.
func newReconciler(
	api *reconcile.API, events reconcile.Recorder, follow func(context.Context, *copies),
) *Reconciler {
	r := &Reconciler{API: api, Events: events, distributions: map[types.UID]*distribution{},
		asked: func(string) {}}
	r.watches.follow, r.watches.changed = follow, r.copyChanged
	return r
}

// Setup adds the controller to the manager. The manager's own namespaces get no copies.
func Setup(mgr ctrl.Manager, options reconcile.Options, own ...string) error {
	kube, err := typedcorev1.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return fmt.Errorf("making a client that follows copies: %w", err)
	}

	r := newReconciler(options.API(mgr), reconcile.NewRecorder(mgr.GetEventRecorder(controllerName)),
		follower(kube))
	r.own = own
	r.meters = newMeters(&r.watches)
	b := ctrl.NewControllerManagedBy(mgr).
		For(&appsv1beta1.ResourceDistribution{},
			builder.WithPredicates(predicate.Funcs{UpdateFunc: changed})).
		WatchesRawSource(source.Func(func(ctx context.Context,
			queue workqueue.TypedRateLimitingInterface[ctrl.Request]) error {
			r.watches.start(ctx)
			r.ask(func(name string) { queue.Add(reconcile.Request("", name)) })
			return nil
		})).
		Watches(emptyNamespace(), handler.Funcs{
			CreateFunc: func(_ context.Context, e event.CreateEvent,
				_ workqueue.TypedRateLimitingInterface[ctrl.Request]) {
				r.namespaceChanged(nil, e.Object)
			},
			UpdateFunc: func(_ context.Context, e event.UpdateEvent,
				_ workqueue.TypedRateLimitingInterface[ctrl.Request]) {
				r.namespaceChanged(e.ObjectOld, e.ObjectNew)
			},
			DeleteFunc: func(_ context.Context, e event.DeleteEvent,
				_ workqueue.TypedRateLimitingInterface[ctrl.Request]) {
				r.namespaceChanged(e.Object, nil)
			},
		})
	return r.controller().Complete(controllerName, options, b, r.meters.all()...)
}

// changed ignores changes of the status and of metadata.
func changed(e event.UpdateEvent) bool {
	return e.ObjectOld.GetGeneration() != e.ObjectNew.GetGeneration() ||
		e.ObjectOld.GetUID() != e.ObjectNew.GetUID() ||
		(e.ObjectOld.GetDeletionTimestamp() == nil) != (e.ObjectNew.GetDeletionTimestamp() == nil)
}

// controller returns what makes the passes. The distributions are kept here, because events look for theirs
// among all of them.
func (r *Reconciler) controller() *controller {
	return &controller{API: r.API, Events: r.Events, Pass: r.pass,
		Forgotten: func(name types.NamespacedName, owner types.UID) {
			r.stop(owner)
			r.meters.forget(name.Name)
		}}
}

// ask sets the function that enqueues ResourceDistributions.
func (r *Reconciler) ask(by func(name string)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked = by
}

// wake enqueues the ResourceDistribution of that name.
func (r *Reconciler) wake(name string) {
	r.mu.Lock()
	ask := r.asked
	r.mu.Unlock()
	ask(name)
}

// emptyNamespace returns empty metadata of a namespace, to read into.
func emptyNamespace() *metav1.PartialObjectMetadata {
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	return object
}

// namespaceOf returns what decisions need to know of a namespace. A nil object means that it does not exist.
func namespaceOf(name string, object client.Object) resourcedistribution.Namespace {
	if object == nil {
		return resourcedistribution.Namespace{Name: name}
	}
	return resourcedistribution.Namespace{Name: name, Exists: true,
		Terminating: object.GetDeletionTimestamp() != nil, Labels: object.GetLabels()}
}

// namespaceChanged lets the distributions for which a namespace is or was a target look at it. A nil object
// means that the namespace does not exist.
func (r *Reconciler) namespaceChanged(before, after client.Object) {
	if before != nil && after != nil && before.GetUID() == after.GetUID() &&
		maps.Equal(before.GetLabels(), after.GetLabels()) &&
		(before.GetDeletionTimestamp() == nil) == (after.GetDeletionTimestamp() == nil) {
		return
	}

	name := ""
	for _, object := range []client.Object{before, after} {
		if object != nil {
			name = object.GetName()
		}
	}

	// An object in a new namespace may have been seen before the namespace itself. Once a namespace
	// terminates, its copies are no longer reported as held by finalizers.
	for _, c := range r.watches.all() {
		if copied, _ := c.in(name); copied != nil {
			r.copyChanged(c, name)
		}
	}

	was, is := namespaceOf(name, before), namespaceOf(name, after)
	for _, d := range r.all() {
		if d.concerns(was, is) {
			d.mark(name)
			r.wake(d.name)
		}
	}
}

// copyChanged lets the distributions of copies look at a namespace, or at all of them if it is empty.
func (r *Reconciler) copyChanged(of *copies, namespace string) {
	for _, d := range r.watches.users(of) {
		d.mark(namespace)
		r.wake(d.name)
	}
}

// all returns the distributions, sorted by name.
func (r *Reconciler) all() []*distribution {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.SortedFunc(maps.Values(r.distributions),
		func(a, b *distribution) int { return strings.Compare(a.name, b.name) })
}

// of returns what is kept of a distribution.
func (r *Reconciler) of(name string, owner types.UID) *distribution {
	r.mu.Lock()
	defer r.mu.Unlock()
	d := r.distributions[owner]
	if d == nil {
		d = &distribution{name: name}
		r.distributions[owner] = d
	}
	return d
}

// stop ends the work on a distribution. What it has written stays, or is garbage collected with it.
func (r *Reconciler) stop(owner types.UID) {
	r.mu.Lock()
	d := r.distributions[owner]
	delete(r.distributions, owner)
	r.mu.Unlock()
	if d != nil {
		r.watches.leave(d.copies, owner)
	}
}
