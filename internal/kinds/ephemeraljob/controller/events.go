package controller

import (
	"context"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	"github.com/afloat-project/afloat/internal/kinds/ephemeraljob"
	"github.com/afloat-project/afloat/internal/reconcile"
)

// unfinished indexes the jobs that events of pods concern.
const unfinished = "ephemeraljob.unfinished"

func indexUnfinished(object client.Object) []string {
	job, ok := object.(*appsv1alpha1.EphemeralJob)
	if !ok || ephemeraljob.Finished(job) || job.DeletionTimestamp != nil {
		return nil
	}
	return []string{"true"}
}

// jobEvents are the changes of jobs that somebody else than the controller makes.
var jobEvents = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, after := e.ObjectOld, e.ObjectNew
		return before.GetUID() != after.GetUID() || before.GetGeneration() != after.GetGeneration() ||
			(before.GetDeletionTimestamp() == nil) != (after.GetDeletionTimestamp() == nil) ||
			!slices.Equal(before.GetFinalizers(), after.GetFinalizers())
	},
}

// podEvents finds the jobs that an event of a pod concerns.
type podEvents struct{ reader client.Reader }

type queue = workqueue.TypedRateLimitingInterface[ctrl.Request]

func (p *podEvents) handler() handler.EventHandler {
	notify := func(ctx context.Context, q queue, pods ...client.Object) {
		for _, request := range p.concerned(ctx, pods...) {
			q.Add(request)
		}
	}

	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) { notify(ctx, q, e.Object) },
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) { notify(ctx, q, e.Object) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			before, isPod := e.ObjectOld.(*corev1.Pod)
			after, same := e.ObjectNew.(*corev1.Pod)
			if isPod && same && matters(before, after) {
				notify(ctx, q, before, after)
			}
		},
	}
}

// matters tells whether a job may see the change of a pod.
func matters(before, after *corev1.Pod) bool {
	return before.UID != after.UID || before.Spec.NodeName != after.Spec.NodeName ||
		before.Status.Phase != after.Status.Phase ||
		(before.DeletionTimestamp == nil) != (after.DeletionTimestamp == nil) ||
		!maps.Equal(before.Labels, after.Labels) ||
		len(before.Spec.EphemeralContainers) != len(after.Spec.EphemeralContainers) ||
		!equality.Semantic.DeepEqual(before.Status.EphemeralContainerStatuses,
			after.Status.EphemeralContainerStatuses)
}

// concerned are the unfinished jobs that select one of the states of a pod, or have treated it.
func (p *podEvents) concerned(ctx context.Context, pods ...client.Object) []ctrl.Request {
	var list appsv1alpha1.EphemeralJobList
	if err := p.reader.List(ctx, &list, client.InNamespace(pods[0].GetNamespace()),
		client.MatchingFields{unfinished: "true"},
		client.UnsafeDisableDeepCopy); err != nil {
		log.FromContext(ctx).Error(err, "Listing EphemeralJobs")
		return nil
	}
	if len(list.Items) == 0 {
		return nil
	}

	treated := map[string]bool{}
	for _, object := range pods {
		if pod, ok := object.(*corev1.Pod); ok {
			for i := range pod.Spec.EphemeralContainers {
				treated[ephemeraljob.Mark(&pod.Spec.EphemeralContainers[i])] = true
			}
		}
	}

	var requests []ctrl.Request
	for i := range list.Items {
		job := &list.Items[i]
		selector, err := ephemeraljob.SelectorOf(job)
		if treated[string(job.UID)] || err == nil && slices.ContainsFunc(pods, func(pod client.Object) bool {
			return selector.Matches(labels.Set(pod.GetLabels()))
		}) {
			requests = append(requests, reconcile.Request(job.Namespace, job.Name))
		}
	}

	return requests
}
