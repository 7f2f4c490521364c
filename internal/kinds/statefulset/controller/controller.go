// Package controller wires the planner of Advanced StatefulSets to the API server.
package controller

import (
	"context"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/template"
	"github.com/afloat-project/afloat/internal/kinds/statefulset"
	"github.com/afloat-project/afloat/internal/reconcile"
	"github.com/afloat-project/afloat/internal/reconcile/podapply"
)

// +kubebuilder:rbac:groups=apps.kruise.io,resources=statefulsets,verbs=get;list;watch
// +kubebuilder:rbac:groups=apps.kruise.io,resources=statefulsets/status,verbs=patch
// +kubebuilder:rbac:groups=apps.kruise.io,resources=statefulsets/finalizers,verbs=update
// +kubebuilder:rbac:groups=apps.kruise.io,resources=imagepulljobs,verbs=get;list;watch;create;delete
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",resources=pods/status,verbs=patch
// +kubebuilder:rbac:groups="",resources=pods/resize,verbs=patch
// +kubebuilder:rbac:groups="",resources=persistentvolumeclaims,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups=apps,resources=controllerrevisions,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch
// +kubebuilder:rbac:groups="",resources=events,verbs=create;patch

// kind is the name of the kind in references to it.
const kind = "StatefulSet"

// Options configure the controller.
type Options struct {
	reconcile.Options
	Features statefulset.Features
	// PullJobs are the ImagePullJobs that all controllers look at.
	PullJobs *podapply.PullJobs
}

// Setup adds the controller to the manager.
func Setup(_ context.Context, mgr ctrl.Manager, options Options) error {
	api := options.API(mgr)
	kube := &Kube{podapply.Reader{API: api, Pods: options.Pods}}
	controller := New(&Kind{Kube: kube, Features: options.Features},
		reconcile.NewRecorder(mgr.GetEventRecorder("statefulset-controller")))
	toOwner := handler.EnqueueRequestsFromMapFunc(ownerOf)
	builder := ctrl.NewControllerManagedBy(mgr).
		For(&appsv1beta1.StatefulSet{}).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(kube.setsOf)).
		Watches(&corev1.PersistentVolumeClaim{}, handler.EnqueueRequestsFromMapFunc(kube.setsOfClaim)).
		Watches(&appsv1.ControllerRevision{}, toOwner)
	if options.Features.PreDownload {
		jobs, known := options.PullJobs.Watch(toOwner, kube.betweenRevisions)
		kube.PullJobs = known
		builder = builder.WatchesRawSource(jobs)
	}
	return controller.Complete("statefulset", options.Options, builder)
}

// ownerOf finds the StatefulSet that controls an object (ASTS-072 (part)).
var ownerOf = reconcile.OwnedBy(kind)

// setsOf finds the set that controls a pod, or else the one that waits for its name or could adopt it, if it
// exists (ASTS-072).
func (k *Kube) setsOf(ctx context.Context, object client.Object) []ctrl.Request {
	if requests := ownerOf(ctx, object); requests != nil {
		return requests
	}
	name := types.NamespacedName{Namespace: object.GetNamespace(), Name: statefulset.SetOf(object.GetName())}
	if name.Name == "" {
		return nil
	}
	if uid, err := reconcile.UIDs[*appsv1beta1.StatefulSet](k.API)(ctx, name); err != nil || uid == "" {
		return nil
	}
	return []ctrl.Request{reconcile.Request(name.Namespace, name.Name)}
}

// setsOfClaim finds the sets that may have a PVC, by its name alone: what the retention policy gives no owner
// says nothing else of whose it is (ASTS-075).
func (k *Kube) setsOfClaim(ctx context.Context, object client.Object) (requests []ctrl.Request) {
	for of, set := range statefulset.ClaimsOf(object.GetName()) {
		name := types.NamespacedName{Namespace: object.GetNamespace(), Name: set}
		found, err := reconcile.Find[*appsv1beta1.StatefulSet](ctx, k.API, name)
		if err == nil && found != nil && slices.ContainsFunc(found.Spec.VolumeClaimTemplates,
			func(claim template.VolumeClaimTemplate) bool { return claim.Name == of }) {
			requests = append(requests, reconcile.Request(name.Namespace, name.Name))
		}
	}
	return requests
}
