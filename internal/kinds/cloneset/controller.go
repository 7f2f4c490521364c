package cloneset

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/source"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/platform/message"
	"github.com/afloat-project/afloat/internal/platform/podindex"
	"github.com/afloat-project/afloat/internal/platform/slim"
	"github.com/afloat-project/afloat/internal/platform/useragent"
	"github.com/afloat-project/afloat/internal/reconcile"
	"github.com/afloat-project/afloat/internal/reconcile/podapply"
)

// +kubebuilder:rbac:groups=apps.kruise.io,resources=clonesets,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=apps.kruise.io,resources=clonesets/status,verbs=patch
// +kubebuilder:rbac:groups=apps.kruise.io,resources=clonesets/finalizers,verbs=update
// +kubebuilder:rbac:groups=apps.kruise.io,resources=imagepulljobs,verbs=get;list;watch;create;delete
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",resources=pods/status,verbs=patch
// +kubebuilder:rbac:groups="",resources=pods/resize,verbs=patch
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=persistentvolumeclaims,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=apps,resources=controllerrevisions,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch
// +kubebuilder:rbac:groups="",resources=events,verbs=create;patch

// Options configure the controller.
type Options struct {
	Features Features
	// Workers is how many sets are worked on at the same time.
	Workers int
	// RateLimiter is the back-off of failing sets; nil means the library's.
	RateLimiter workqueue.TypedRateLimiter[ctrl.Request]
	// Pods finds pods in the manager's caches.
	Pods *podindex.Index
	// Flow bounds what is under way, for all controllers together.
	Flow *reconcile.Flow
}

// Setup adds the controller to the manager.
func Setup(ctx context.Context, mgr ctrl.Manager, options Options) error {
	if err := Index(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	meters := newMeters()
	for _, collector := range meters.all() {
		if err := metrics.Registry.Register(collector); err != nil {
			return fmt.Errorf("registering metrics: %w", err)
		}
	}
	api := reconcile.NewAPI(mgr.GetClient(), mgr.GetAPIReader(), slim.Any, time.Now)
	api.Flow = options.Flow
	kube := &Kube{podapply.Reader{API: api, Pods: options.Pods}}
	r := &reconciler{meters: meters, pass: &Pass{Kube: kube, Features: options.Features, Random: rand.IntN,
		Applier: podapply.Applier{API: api, Events: recorder{mgr.GetEventRecorder("cloneset-controller")}}}}
	loop := reconcile.NewLoop(reconcile.Loop{Now: time.Now, Owner: kube.Owner, Pass: r.run, Forget: r.forget}, pauseAtMost, options.RateLimiter)
	api.Own.Leaked = func(owner types.UID) {
		if name := loop.NameOf(owner); name.Name != "" {
			meters.leaked.WithLabelValues(name.Namespace, name.Name).Inc()
		}
	}
	toOwner := handler.EnqueueRequestsFromMapFunc(ownerOf)
	builder := ctrl.NewControllerManagedBy(mgr).Named("cloneset").
		For(&appsv1beta1.CloneSet{}).
		Watches(&corev1.Pod{}, toOwner).
		Watches(&corev1.PersistentVolumeClaim{}, toOwner).
		Watches(&appsv1.ControllerRevision{}, toOwner).
		WithOptions(controller.Options{MaxConcurrentReconciles: options.Workers, RateLimiter: loop.BackOff()})
	if options.Features.PreDownload {
		pulls := podapply.NewPullWatch(mgr.GetCache(), mgr.GetRESTMapper(), toOwner, kube.betweenRevisions)
		kube.PullJobs = pulls.Served
		builder = builder.WatchesRawSource(source.Func(pulls.Start))
	}
	if err := builder.Complete(useragent.Of("cloneset", loop)); err != nil {
		return fmt.Errorf("building the CloneSet controller: %w", err)
	}
	return nil
}

// Index adds the indexes that snapshots are read by.
func Index(ctx context.Context, indexer client.FieldIndexer) error {
	for _, object := range []client.Object{&corev1.PersistentVolumeClaim{}, &appsv1.ControllerRevision{}} {
		if err := indexer.IndexField(ctx, object, podapply.OwnerIndex, indexByController); err != nil {
			return fmt.Errorf("indexing %T by controller: %w", object, err)
		}
	}
	return nil
}

// ownerOf finds the CloneSet that controls an object by group and kind, whatever the version (CS-043). The library's handler asks the
// REST mapper at every event.
func ownerOf(_ context.Context, object client.Object) []ctrl.Request {
	owner := metav1.GetControllerOfNoCopy(object)
	if owner == nil || owner.Kind != kind || !strings.HasPrefix(owner.APIVersion, appsv1beta1.GroupVersion.Group+"/") {
		return nil
	}
	return []ctrl.Request{{NamespacedName: types.NamespacedName{Namespace: object.GetNamespace(), Name: owner.Name}}}
}

// recorder sends events to the API server.
type recorder struct{ events.EventRecorder }

// Event implements Recorder.
func (r recorder) Event(about client.Object, eventType, reason, note string) {
	r.Eventf(about, nil, eventType, reason, reason, "%s", message.Bound(note))
}

type reconciler struct {
	pass   *Pass
	meters *meters
}

// pauseAtMost is the longest pause between the plans of a set.
const pauseAtMost = time.Second

func (r *reconciler) run(ctx context.Context, name types.NamespacedName, owner types.UID) (reconcile.Done, error) {
	if owner == "" {
		return reconcile.Done{}, nil
	}
	outcome, err := r.pass.Run(ctx, name, owner)
	reconcile.Sooner(&outcome.After, outcome.Tell)
	done := reconcile.Done{After: outcome.After, Pods: pausing(outcome)}
	if outcome.Plan != nil {
		r.meters.observe(outcome)
		done.Headline, done.Record = outcome.Plan.Headline(), outcome.Plan.Record
	}
	return done, err
}

// pausing is how many pods make the next plan wait: none if there is more to be written or nothing was planned.
func pausing(outcome Outcome) int {
	if outcome.Plan == nil || outcome.Unfinished {
		return 0
	}
	return len(outcome.Plan.Verdicts)
}

func (r *reconciler) forget(name types.NamespacedName, uid types.UID) {
	r.pass.Forget(uid)
	r.meters.forget(name)
}
