// Package slim keeps the caches small: what no decision reads is dropped before an object is stored. Writes are patches of what
// is meant, so that nothing dropped here can be lost in the cluster (design rule 1).
package slim

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
)

var _ toolscache.TransformFunc = Pod

// Metadata drops managedFields, which nothing reads.
func Metadata(object any) (any, error) {
	if meta, ok := object.(metav1.Object); ok {
		meta.SetManagedFields(nil)
	}
	return object, nil
}

// Claim keeps of a claim what decisions read: its metadata.
func Claim(object any) (any, error) {
	claim, ok := object.(*corev1.PersistentVolumeClaim)
	if !ok {
		return object, nil
	}
	claim.ManagedFields, claim.Annotations = nil, nil
	claim.Spec, claim.Status = corev1.PersistentVolumeClaimSpec{}, corev1.PersistentVolumeClaimStatus{}
	return claim, nil
}

// Pod keeps of a pod of ours what decisions read, and of any other pod the metadata that finds its owner.
func Pod(object any) (any, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil
	}
	pod.ManagedFields = nil
	if !ours(pod) {
		pod.Annotations = nil
		pod.Spec, pod.Status = corev1.PodSpec{NodeName: pod.Spec.NodeName}, corev1.PodStatus{Phase: pod.Status.Phase}
		return pod, nil
	}
	spec := corev1.PodSpec{NodeName: pod.Spec.NodeName, ReadinessGates: pod.Spec.ReadinessGates,
		Containers: make([]corev1.Container, len(pod.Spec.Containers))}
	for i := range pod.Spec.Containers {
		spec.Containers[i] = corev1.Container{Name: pod.Spec.Containers[i].Name, Image: pod.Spec.Containers[i].Image}
	}
	status := pod.Status
	pod.Spec = spec
	pod.Status = corev1.PodStatus{Phase: status.Phase, Conditions: status.Conditions, ContainerStatuses: status.ContainerStatuses,
		ObservedGeneration: status.ObservedGeneration}
	return pod, nil
}

func ours(pod *corev1.Pod) bool {
	owner := metav1.GetControllerOfNoCopy(pod)
	if owner == nil {
		return false
	}
	gv, err := schema.ParseGroupVersion(owner.APIVersion)
	return err == nil && gv.Group == appsv1beta1.GroupVersion.Group
}
