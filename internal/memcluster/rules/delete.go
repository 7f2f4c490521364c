package rules

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Delete returns what a deletion leaves of an object: nil if it goes at once, and the object itself if
// nothing changes because it is being deleted already. Pods on nodes have their grace, and finalizers hold
// everything, also the one that the policy Orphan adds.
func Delete(object client.Object, options *metav1.DeleteOptions, now time.Time) client.Object {
	finalizers := object.GetFinalizers()
	if policy := options.PropagationPolicy; policy != nil && *policy == metav1.DeletePropagationOrphan &&
		!slices.Contains(finalizers, metav1.FinalizerOrphanDependents) {
		finalizers = append(slices.Clone(finalizers), metav1.FinalizerOrphanDependents)
	}

	grace := int64(0)
	if pod, ok := object.(*corev1.Pod); ok && pod.Spec.NodeName != "" {
		grace = corev1.DefaultTerminationGracePeriodSeconds
		if asked := pod.Spec.TerminationGracePeriodSeconds; asked != nil {
			grace = *asked
		}
	}
	if options.GracePeriodSeconds != nil {
		grace = min(grace, *options.GracePeriodSeconds)
	}

	if grace == 0 && len(finalizers) == 0 {
		return nil
	}
	if object.GetDeletionTimestamp() != nil && GraceOf(object) <= grace {
		return object
	}

	going := object.DeepCopyObject().(client.Object)
	end := metav1.NewTime(now.Add(time.Duration(grace) * time.Second).Truncate(time.Second))
	going.SetFinalizers(finalizers)
	going.SetDeletionTimestamp(&end)
	going.SetDeletionGracePeriodSeconds(&grace)
	if going.GetGeneration() > 0 {
		going.SetGeneration(going.GetGeneration() + 1)
	}
	return going
}

// Gone reports whether an object is removed when it is stored, because it is being deleted and nothing holds
// it any more.
func Gone(object client.Object) bool {
	return object.GetDeletionTimestamp() != nil && len(object.GetFinalizers()) == 0 && GraceOf(object) == 0
}

// GraceOf returns the grace that an object which is being deleted has, in seconds.
func GraceOf(object client.Object) int64 {
	if grace := object.GetDeletionGracePeriodSeconds(); grace != nil {
		return *grace
	}
	return 0
}
