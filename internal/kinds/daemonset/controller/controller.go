// Package controller wires the planner of Advanced DaemonSets to the API server.
package controller

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/daemonset"
	"github.com/afloat-project/afloat/internal/reconcile"
	"github.com/afloat-project/afloat/internal/reconcile/podapply"
)

// +kubebuilder:rbac:groups=apps.kruise.io,resources=daemonsets,verbs=get;list;watch
// +kubebuilder:rbac:groups=apps.kruise.io,resources=daemonsets/status,verbs=patch
// +kubebuilder:rbac:groups=apps.kruise.io,resources=daemonsets/finalizers,verbs=update
// +kubebuilder:rbac:groups=apps.kruise.io,resources=imagepulljobs,verbs=get;list;watch;create;delete
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",resources=pods/status,verbs=patch
// +kubebuilder:rbac:groups="",resources=pods/resize,verbs=patch
// +kubebuilder:rbac:groups="",resources=podtemplates,verbs=create
// +kubebuilder:rbac:groups=apps,resources=controllerrevisions,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch
// +kubebuilder:rbac:groups="",resources=events,verbs=create;patch

// kind is the name of the kind in references to it.
const kind = "DaemonSet"

// Options configure the controller.
type Options struct {
	reconcile.Options
	Features daemonset.Features
	// PullJobs are the ImagePullJobs that all controllers look at.
	PullJobs *podapply.PullJobs
	// CompleteTemplate completes a pod template as the API server does.
	CompleteTemplate func(ctx context.Context, namespace string, template []byte) ([]byte, error)
}

// Setup adds the controller to the manager.
func Setup(_ context.Context, mgr ctrl.Manager, options Options) error {
	api := options.API(mgr)
	kube := &Kube{Reader: podapply.Reader{API: api, Pods: options.Pods}}
	controller := New(&Kind{Kube: kube, Features: options.Features, Template: options.CompleteTemplate},
		reconcile.NewRecorder(mgr.GetEventRecorder("daemonset-controller")))
	toOwner := handler.EnqueueRequestsFromMapFunc(ownerOf)
	builder := ctrl.NewControllerManagedBy(mgr).
		For(&appsv1beta1.DaemonSet{}).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(kube.setsOf)).
		Watches(&corev1.Node{}, podapply.NodeEvents(kube.setsOfNode)).
		Watches(&appsv1.ControllerRevision{}, toOwner)
	if options.Features.PreDownload {
		jobs, known := options.PullJobs.Watch(toOwner, kube.betweenRevisions)
		kube.PullJobs = known
		builder = builder.WatchesRawSource(jobs)
	}
	return controller.Complete("daemonset", options.Options, builder)
}

// ownerOf finds the DaemonSet that controls an object (ADS-040 (part)).
var ownerOf = reconcile.OwnedBy(kind)

// setsOf finds the set that controls a pod, or those of its namespace that could adopt one that nobody
// controls (ADS-040).
func (k *Kube) setsOf(ctx context.Context, object client.Object) []ctrl.Request {
	if metav1.GetControllerOfNoCopy(object) != nil {
		return ownerOf(ctx, object)
	}
	var sets appsv1beta1.DaemonSetList
	if err := k.Client.List(ctx, &sets, client.InNamespace(object.GetNamespace()), client.UnsafeDisableDeepCopy); err != nil {
		return nil // the caches hold them
	}
	var requests []ctrl.Request
	for i := range sets.Items {
		if k.rulesOf(&sets.Items[i]).pods.Matches(labels.Set(object.GetLabels())) {
			requests = append(requests, reconcile.Request(object.GetNamespace(), sets.Items[i].Name))
		}
	}
	return requests
}
