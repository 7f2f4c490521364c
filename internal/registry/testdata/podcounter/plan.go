// Package podcounter decides for PodCounters, which docs/develop/adding-a-kind.md shows.
package podcounter

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/afloat-project/afloat/internal/engine/readiness"
	"github.com/afloat-project/afloat/internal/registry/testdata/podcounter/v1alpha1"
)

// Make returns the status of a PodCounter with these pods in its namespace.
func Make(counter *v1alpha1.PodCounter, pods []corev1.Pod) (status v1alpha1.PodCounterStatus) {
	for i := range pods {
		if readiness.Active(&pods[i]) && Selects(counter, &pods[i]) {
			status.Pods++
		}
	}
	return status
}

// Selects reports whether a PodCounter selects a pod.
func Selects(counter *v1alpha1.PodCounter, pod *corev1.Pod) bool {
	selector, err := metav1.LabelSelectorAsSelector(counter.Spec.Selector)
	return err == nil && selector.Matches(labels.Set(pod.Labels))
}

// Matters reports whether the change of a pod changes plans.
func Matters(before, after *corev1.Pod) bool {
	return readiness.Active(before) != readiness.Active(after) ||
		!labels.Equals(before.Labels, after.Labels)
}
