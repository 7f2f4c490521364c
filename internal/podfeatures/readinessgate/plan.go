// Package readinessgate opens the readiness gate KruisePodReady of new pods (CRR-087). Controllers close it
// again through the entries in the condition's message, see internal/engine/readiness.
package readinessgate

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/podpatch"
	"github.com/afloat-project/afloat/internal/engine/readiness"
	"github.com/afloat-project/afloat/internal/engine/workloadkind"
)

// Plan returns the patch that opens the gate, or nil if there is nothing to do. The controllers of this
// project's workloads open the gates of their own pods.
func Plan(pod *corev1.Pod, now time.Time) *podpatch.Patch {
	finished := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	if finished || pod.DeletionTimestamp != nil || readiness.Condition(pod, pub.KruisePodReady) != nil {
		return nil
	}

	if owner := metav1.GetControllerOfNoCopy(pod); owner != nil && workloadkind.Of(
		schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind).GroupKind()).InPlace {
		return nil
	}

	patch := &podpatch.Patch{}
	if readiness.Share(patch, pod, nil, nil, now); patch.Empty() {
		return nil
	}
	return patch
}
