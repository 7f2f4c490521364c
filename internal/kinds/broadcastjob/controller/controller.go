// Package controller wires the planner of BroadcastJobs to the API server.
package controller

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/broadcastjob"
	"github.com/afloat-project/afloat/internal/reconcile"
	"github.com/afloat-project/afloat/internal/reconcile/podapply"
)

// +kubebuilder:rbac:groups=apps.kruise.io,resources=broadcastjobs,verbs=get;list;watch;patch;delete
// +kubebuilder:rbac:groups=apps.kruise.io,resources=broadcastjobs/status,verbs=patch
// +kubebuilder:rbac:groups=apps.kruise.io,resources=broadcastjobs/finalizers,verbs=update
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;create;delete
// +kubebuilder:rbac:groups="",resources=podtemplates,verbs=create
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch
// +kubebuilder:rbac:groups="",resources=events,verbs=create;patch

// kind is the name of the kind in references to it.
const kind = "BroadcastJob"

// Options configure the controller.
type Options struct {
	reconcile.Options
	// Binds: pods are bound to their nodes here, not by the scheduler (BJ-041).
	Binds bool
}

// Setup adds the controller to the manager.
func Setup(ctx context.Context, mgr ctrl.Manager, options Options) error {
	if err := mgr.GetFieldIndexer().IndexField(ctx, &appsv1beta1.BroadcastJob{}, unfinishedIndex, indexUnfinished); err != nil {
		return fmt.Errorf("indexing BroadcastJobs that have not ended: %w", err)
	}
	api := options.API(mgr)
	kube := &Kube{Reader: podapply.Reader{API: api, Pods: options.Pods}}
	controller := New(&Kind{Kube: kube, Binds: options.Binds},
		reconcile.NewRecorder(mgr.GetEventRecorder("broadcastjob-controller")))
	return controller.Complete("broadcastjob", options.Options, ctrl.NewControllerManagedBy(mgr).
		For(&appsv1beta1.BroadcastJob{}).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(jobOf)).
		Watches(&corev1.Node{}, podapply.NodeEvents(kube.jobsOfNode)))
}

// jobOf finds the BroadcastJob that controls a pod.
var jobOf = reconcile.OwnedBy(kind)

// unfinishedIndex finds the jobs that have not ended: those that have are no matter of nodes any more
// (BJ-061, BJ-130).
const unfinishedIndex, unfinished = "broadcastjob.unfinished", "true"

func indexUnfinished(object client.Object) []string {
	job, ok := object.(*appsv1beta1.BroadcastJob)
	if !ok || job.DeletionTimestamp != nil {
		return nil
	}
	if ended, counted := broadcastjob.Ended(job); ended && !counted {
		return nil
	}
	return []string{unfinished}
}
