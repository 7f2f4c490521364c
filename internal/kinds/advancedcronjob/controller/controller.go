// Package controller applies the plans of AdvancedCronJobs.
package controller

import (
	"context"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/advancedcronjob"
	"github.com/afloat-project/afloat/internal/reconcile"
)

// +kubebuilder:rbac:groups=apps.kruise.io,resources=advancedcronjobs,verbs=get;list;watch
// +kubebuilder:rbac:groups=apps.kruise.io,resources=advancedcronjobs/status,verbs=patch
// +kubebuilder:rbac:groups=apps.kruise.io,resources=advancedcronjobs/finalizers,verbs=update
// +kubebuilder:rbac:groups=apps.kruise.io,resources=broadcastjobs;imagelistpulljobs,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=batch,resources=jobs,verbs=get;list;watch;create;patch;delete

const (
	controllerName = "advancedcronjob-controller"
	// byOwner is the index of children by the UID of the AdvancedCronJob that controls them. byUnrecorded is
	// the index of children whose run is not recorded, by the name of the AdvancedCronJob.
	byOwner, byUnrecorded = "advancedcronjob.owner", "advancedcronjob.unrecorded"
)

// Reconciler applies plans of AdvancedCronJobs. Tests set its fields.
type Reconciler struct {
	*reconcile.API
	Events reconcile.Recorder
	// Zone is the time zone of schedules that do not name one.
	Zone *time.Location

	served reconcile.ServedKinds[advancedcronjob.Kind]
	meters *meters
}

type (
	controller = reconcile.Controller[*appsv1beta1.AdvancedCronJob, memory]
	session    = reconcile.Session[*appsv1beta1.AdvancedCronJob, memory]
)

// memory is what is kept about an AdvancedCronJob between passes.
type memory struct {
	// counted is the time up to which left out runs have been counted.
	counted time.Time
}

// Setup adds the controller to the manager. Kinds of children that are not served yet are watched as soon as
// they are (ACJ-122).
func Setup(ctx context.Context, mgr ctrl.Manager, options reconcile.Options) error {
	r := &Reconciler{API: options.API(mgr),
		Events: reconcile.NewRecorder(mgr.GetEventRecorder(controllerName)), Zone: time.Local,
		meters: newMeters()}
	b := ctrl.NewControllerManagedBy(mgr).For(&appsv1beta1.AdvancedCronJob{})
	for _, kind := range advancedcronjob.Kinds {
		if err := r.follow(mgr, options.Current, kind).AddTo(ctx, b); err != nil {
			return err
		}
	}

	return r.controller().Complete(controllerName, options, b, r.meters.all()...)
}

func (r *Reconciler) controller() *controller {
	return &controller{API: r.API, Events: r.Events, Pass: r.pass,
		Absent: func(ctx context.Context, name types.NamespacedName) (reconcile.Outcome, error) {
			return reconcile.Outcome{}, r.releaseOrphans(ctx, name, "")
		},
		Forgotten: func(name types.NamespacedName, _ types.UID) { r.meters.forget(name) }}
}

// follow returns what watches the children of a kind.
func (r *Reconciler) follow(mgr ctrl.Manager, current func(context.Context) error, kind advancedcronjob.Kind) *reconcile.LateKind {
	return &reconcile.LateKind{
		Cache:      mgr.GetCache(),
		Mapper:     mgr.GetRESTMapper(),
		Kind:       schema.FromAPIVersionAndKind(kind.APIVersion(), string(kind)),
		Name:       string(kind),
		Object:     empty(kind),
		Indexes:    indexes(kind),
		Handler:    handler.EnqueueRequestsFromMapFunc(requests),
		Predicates: []predicate.Predicate{predicate.Funcs{UpdateFunc: changed}},
		Current:    current,
		Served:     func() { r.served.Add(kind) },
		Waiting: func(ctx context.Context) ([]ctrl.Request, error) {
			return reconcile.Due(ctx, r.API, &appsv1beta1.AdvancedCronJobList{},
				func(cronJob *appsv1beta1.AdvancedCronJob) bool {
					return slices.Contains(advancedcronjob.Templates(&cronJob.Spec.Template), kind)
				})
		},
		Without: "AdvancedCronJobs that create it wait",
		With:    "AdvancedCronJobs create it",
	}
}

// empty returns an empty object of the kind.
func empty(kind advancedcronjob.Kind) client.Object {
	switch kind {
	case advancedcronjob.Job:
		return &batchv1.Job{}
	case advancedcronjob.BroadcastJob:
		return &appsv1beta1.BroadcastJob{}
	}
	return &appsv1beta1.ImageListPullJob{}
}

// indexes returns the indexes of the children of a kind.
func indexes(kind advancedcronjob.Kind) []*reconcile.Index {
	return []*reconcile.Index{
		{Object: empty(kind), Field: byOwner, Of: indexOwner},
		{Object: empty(kind), Field: byUnrecorded, Of: indexUnrecorded},
	}
}

func indexOwner(object client.Object) []string {
	if owner := advancedcronjob.OwnerOf(object); owner != "" {
		return []string{string(owner)}
	}
	return nil
}

// nobody stands for the name of the owner if there is none.
const nobody = "-"

// indexUnrecorded indexes children whose run is not recorded yet by the name of their owner.
func indexUnrecorded(object client.Object) []string {
	if !advancedcronjob.ChildOf(object).Held() {
		return nil
	}
	if advancedcronjob.OwnerOf(object) == "" {
		return []string{nobody}
	}
	return []string{metav1.GetControllerOfNoCopy(object).Name}
}

// requests returns a request for the AdvancedCronJob that controls an object. A child that has lost its
// owner, but not the finalizer, is released by a pass over an AdvancedCronJob that cannot exist.
func requests(_ context.Context, object client.Object) []ctrl.Request {
	switch {
	case advancedcronjob.OwnerOf(object) != "":
		return []ctrl.Request{reconcile.Request(object.GetNamespace(),
			metav1.GetControllerOfNoCopy(object).Name)}
	case advancedcronjob.ChildOf(object).Held():
		return []ctrl.Request{reconcile.Request(object.GetNamespace(), nobody)}
	}
	return nil
}

// changed filters out updates that plans do not depend on, such as each pod that ends.
func changed(e event.UpdateEvent) bool {
	return !advancedcronjob.ChildOf(e.ObjectOld).Same(advancedcronjob.ChildOf(e.ObjectNew))
}
