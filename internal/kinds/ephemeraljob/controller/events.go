package controller

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	"github.com/afloat-project/afloat/internal/kinds/ephemeraljob"
	"github.com/afloat-project/afloat/internal/reconcile"
)

// unfinished indexes the jobs that events of pods may concern.
const unfinished = "ephemeraljob.unfinished"

func indexUnfinished(object client.Object) []string {
	job, ok := object.(*appsv1alpha1.EphemeralJob)
	if !ok || ephemeraljob.Finished(job) || job.DeletionTimestamp != nil {
		return nil
	}
	return []string{"true"}
}

// jobEvents selects the changes of jobs that others than the controller may make.
var jobEvents = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, after := e.ObjectOld, e.ObjectNew
		return before.GetUID() != after.GetUID() || before.GetGeneration() != after.GetGeneration() ||
			(before.GetDeletionTimestamp() == nil) != (after.GetDeletionTimestamp() == nil) ||
			!slices.Equal(before.GetFinalizers(), after.GetFinalizers())
	},
}

// podEvents returns the handler of events of pods. They concern the unfinished jobs that select the pod, or
// have treated it.
func podEvents(a *reconcile.API) handler.EventHandler {
	list := func() client.ObjectList { return &appsv1alpha1.EphemeralJobList{} }
	selectors := &reconcile.Selectors{}
	concerns := func(job *appsv1alpha1.EphemeralJob, pod *corev1.Pod) bool {
		selector, err := selectors.Of(job, "selector", job.Spec.Selector)
		return err == nil && !selector.Empty() && selector.Matches(labels.Set(pod.Labels)) || ephemeraljob.Treated(pod, job.UID)
	}
	return reconcile.SelectedPods(a, list, matters, concerns, client.MatchingFields{unfinished: "true"})
}

// matters reports whether the change of a pod may matter to a job.
func matters(before, after *corev1.Pod) bool {
	return before.UID != after.UID || before.Spec.NodeName != after.Spec.NodeName ||
		before.Status.Phase != after.Status.Phase ||
		(before.DeletionTimestamp == nil) != (after.DeletionTimestamp == nil) ||
		!maps.Equal(before.Labels, after.Labels) ||
		len(before.Spec.EphemeralContainers) != len(after.Spec.EphemeralContainers) ||
		!equality.Semantic.DeepEqual(before.Status.EphemeralContainerStatuses,
			after.Status.EphemeralContainerStatuses)
}
