package controller

import (
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/cloneset"
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
	reconcile.Options
	Features cloneset.Features
	// PullJobs are the ImagePullJobs that all controllers look at.
	PullJobs *podapply.PullJobs
}

// Setup adds the controller to the manager.
func Setup(ctx context.Context, mgr ctrl.Manager, options Options) error {
	if err := Index(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	leaked := newLeaked()
	if err := reconcile.Register(leaked); err != nil {
		return err
	}
	api := options.API(mgr)
	kube := &Kube{podapply.Reader{API: api, Pods: options.Pods}}
	controller := New(&Kind{Kube: kube, Features: options.Features, Random: rand.IntN},
		reconcile.NewRecorder(mgr.GetEventRecorder("cloneset-controller")))
	api.Own.Leaked = func(owner types.UID) {
		if name := controller.NameOf(owner); name.Name != "" {
			leaked.WithLabelValues(name.Namespace, name.Name).Inc()
		}
	}
	toOwner := handler.EnqueueRequestsFromMapFunc(ownerOf)
	builder := ctrl.NewControllerManagedBy(mgr).
		For(&appsv1beta1.CloneSet{}).
		Watches(&corev1.Pod{}, toOwner).
		Watches(&corev1.PersistentVolumeClaim{}, toOwner).
		Watches(&appsv1.ControllerRevision{}, toOwner)
	if options.Features.PreDownload {
		jobs, known := options.PullJobs.Watch(toOwner, kube.betweenRevisions)
		kube.PullJobs = known
		builder = builder.WatchesRawSource(jobs)
	}
	return controller.Complete("cloneset", options.Options, builder)
}

// newLeaked counts what dashboards for OpenKruise show (OPS-092).
func newLeaked() *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "cloneset_scale_expectation_leakage",
		Help: "Creations that the cache never showed and a live read had to settle."}, []string{"namespace", "name"})
}

// Index adds the index that PVCs are found by; [podapply.IndexRevisions] adds that of revisions.
func Index(ctx context.Context, indexer client.FieldIndexer) error {
	if err := indexer.IndexField(ctx, &corev1.PersistentVolumeClaim{}, podapply.OwnerIndex, indexByController); err != nil {
		return fmt.Errorf("indexing PersistentVolumeClaims by controller: %w", err)
	}
	return nil
}

// ownerOf finds the CloneSet that controls an object (CS-043).
var ownerOf = reconcile.OwnedBy(cloneset.Kind)
