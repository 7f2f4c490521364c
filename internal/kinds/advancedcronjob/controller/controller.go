// Package controller carries out the plans of AdvancedCronJobs.
package controller

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

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
	// byOwner indexes children by the AdvancedCronJob that controls them, byUnrecorded those whose run is not
	// noted by its name.
	byOwner, byUnrecorded = "advancedcronjob.owner", "advancedcronjob.unrecorded"
	// servedEvery is the pause between looks for kinds of children that are not served.
	servedEvery = 10 * time.Second
)

// Reconciler carries out plans of AdvancedCronJobs. Its fields are for tests to fill in.
type Reconciler struct {
	*reconcile.API
	Events reconcile.Recorder
	// Zone is the time zone of schedules that name none.
	Zone *time.Location

	served served
	memory reconcile.Memory[memory]
	meters *meters
}

// memory is what is kept of an AdvancedCronJob between passes.
type memory struct {
	news reconcile.News
	// counted is until when runs that were left out have been counted.
	counted time.Time
}

// served are the kinds of children that the cluster serves.
type served struct {
	mu    sync.Mutex
	kinds []advancedcronjob.Kind
}

func (s *served) add(kind advancedcronjob.Kind) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kinds = append(s.kinds, kind)
}

// all are those that are served, and those that are not.
func (s *served) all() (present, absent []advancedcronjob.Kind) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, kind := range advancedcronjob.Kinds {
		if slices.Contains(s.kinds, kind) {
			present = append(present, kind)
		} else {
			absent = append(absent, kind)
		}
	}
	return present, absent
}

// Setup adds the controller to the manager. Kinds of children that are not served yet are followed as soon as
// they are (ACJ-122).
func Setup(ctx context.Context, mgr ctrl.Manager, options reconcile.Options) error {
	r := &Reconciler{API: options.API(mgr),
		Events: reconcile.NewRecorder(mgr.GetEventRecorder(controllerName)), Zone: time.Local,
		meters: newMeters()}
	if err := reconcile.Register(r.meters.all()...); err != nil {
		return err
	}

	b := ctrl.NewControllerManagedBy(mgr).For(&appsv1beta1.AdvancedCronJob{})
	for _, kind := range advancedcronjob.Kinds {
		present, err := serves(mgr.GetRESTMapper(), kind)
		switch {
		case err != nil:
			return err
		case !present:
			log.FromContext(ctx).Info(
				"A kind is not served: AdvancedCronJobs that create it wait until it is", "kind", kind)
			b = b.WatchesRawSource(r.late(mgr, kind))
			continue
		}
		if err := (indexes{}).add(ctx, mgr.GetFieldIndexer(), kind); err != nil {
			return err
		}
		b = b.Watches(empty(kind), handler.EnqueueRequestsFromMapFunc(requests),
			builder.WithPredicates(predicate.Funcs{UpdateFunc: changed}))
		r.served.add(kind)
	}

	return options.Complete(controllerName, r.loop(options.Limiter()), b)
}

func (r *Reconciler) loop(limiter workqueue.TypedRateLimiter[ctrl.Request]) *reconcile.Loop {
	return reconcile.NewLoop(reconcile.Loop{Now: r.Now,
		Owner: reconcile.UIDs[appsv1beta1.AdvancedCronJob](r.API), Pass: r.pass, Forget: r.forget}, 0,
		limiter)
}

// serves tells whether the cluster serves a kind of children.
func serves(mapper meta.RESTMapper, kind advancedcronjob.Kind) (bool, error) {
	of := schema.FromAPIVersionAndKind(kind.APIVersion(), string(kind))
	_, err := mapper.RESTMapping(of.GroupKind(), of.Version)
	if meta.IsNoMatchError(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("finding out whether %s is served: %w", kind, err)
	}
	return true, nil
}

// late follows a kind of children once it is served, and has the AdvancedCronJobs look again that create it.
func (r *Reconciler) late(mgr ctrl.Manager, kind advancedcronjob.Kind) source.Func {
	return func(ctx context.Context, queue workqueue.TypedRateLimitingInterface[ctrl.Request]) error {
		go func() {
			indexed := indexes{}
			err := wait.PollUntilContextCancel(ctx, servedEvery, false,
				func(ctx context.Context) (bool, error) {
					present, err := serves(mgr.GetRESTMapper(), kind)
					if err != nil || !present {
						return false, nil //nolint:nilerr // the API server may not answer for a while
					}
					return r.follow(ctx, mgr, kind, indexed, queue) == nil, nil
				})
			if err == nil {
				log.FromContext(ctx).Info("A kind is served now: AdvancedCronJobs create it", "kind", kind)
			}
		}()
		return nil
	}
}

// follow has the children of a kind that came late call for passes.
func (r *Reconciler) follow(ctx context.Context, mgr ctrl.Manager, kind advancedcronjob.Kind, indexed indexes,
	queue workqueue.TypedRateLimitingInterface[ctrl.Request]) error {
	if err := indexed.add(ctx, mgr.GetFieldIndexer(), kind); err != nil {
		return err
	}

	informer, err := mgr.GetCache().GetInformer(ctx, empty(kind))
	if err != nil {
		return fmt.Errorf("following %s: %w", kind, err)
	}

	ask := func(objects ...any) {
		for _, object := range objects {
			if gone, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = gone.Obj
			}
			if child, ok := object.(client.Object); ok {
				for _, request := range requests(ctx, child) {
					queue.Add(request)
				}
			}
		}
	}
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(object any) {
		ask(object)
	},
		UpdateFunc: func(before, after any) {
			ask(before, after)
		}, DeleteFunc: func(object any) { ask(object) }}); err != nil {
		return fmt.Errorf("following %s: %w", kind, err)
	}

	r.served.add(kind)
	var all appsv1beta1.AdvancedCronJobList
	if err := r.Client.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing AdvancedCronJobs: %w", err)
	}

	for i := range all.Items {
		if slices.Contains(advancedcronjob.Templates(&all.Items[i].Spec.Template), kind) {
			queue.Add(reconcile.Request(all.Items[i].Namespace, all.Items[i].Name))
		}
	}

	return nil
}

// empty is an object of the kind to be read into.
func empty(kind advancedcronjob.Kind) client.Object {
	switch kind {
	case advancedcronjob.Job:
		return &batchv1.Job{}
	case advancedcronjob.BroadcastJob:
		return &appsv1beta1.BroadcastJob{}
	}
	return &appsv1beta1.ImageListPullJob{}
}

// indexes are the fields by which the children of a kind are indexed.
type indexes map[string]bool

// add adds those that are missing: caches refuse an index that they have, also if it was added by an attempt
// to follow the kind that failed.
func (i indexes) add(ctx context.Context, indexer client.FieldIndexer, kind advancedcronjob.Kind) error {
	for field, of := range map[string]client.IndexerFunc{byOwner: indexOwner, byUnrecorded: indexUnrecorded} {
		if i[field] {
			continue
		}
		if err := indexer.IndexField(ctx, empty(kind), field, of); err != nil {
			return fmt.Errorf("indexing %s by %s: %w", kind, field, err)
		}
		i[field] = true
	}
	return nil
}

func indexOwner(object client.Object) []string {
	if owner := advancedcronjob.OwnerOf(object); owner != "" {
		return []string{string(owner)}
	}
	return nil
}

// nobody stands for the owner of what has none.
const nobody = "-"

// indexUnrecorded finds by the name of their owner what waits for its run to be noted.
func indexUnrecorded(object client.Object) []string {
	if !advancedcronjob.ChildOf(object).Held() {
		return nil
	}
	if advancedcronjob.OwnerOf(object) == "" {
		return []string{nobody}
	}
	return []string{metav1.GetControllerOfNoCopy(object).Name}
}

// requests asks for a pass over the AdvancedCronJob that controls an object. What lost its owner, but not the
// finalizer, is let go by a pass over an AdvancedCronJob that cannot be.
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

// changed leaves out what plans do not read, such as each pod that ends.
func changed(e event.UpdateEvent) bool {
	return !advancedcronjob.ChildOf(e.ObjectOld).Same(advancedcronjob.ChildOf(e.ObjectNew))
}
