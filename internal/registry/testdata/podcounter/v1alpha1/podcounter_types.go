// Package v1alpha1 has the type of the kind that docs/develop/adding-a-kind.md shows.
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// PodCounter counts pods.
type PodCounter struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              PodCounterSpec   `json:"spec"`
	Status            PodCounterStatus `json:"status,omitempty"`
}

// PodCounterSpec says which pods are counted.
type PodCounterSpec struct {
	Selector *metav1.LabelSelector `json:"selector"`
}

// PodCounterStatus is the number of pods.
type PodCounterStatus struct {
	Pods int32 `json:"pods"`
}

// DeepCopyObject implements runtime.Object. That of a kind in api/ is generated.
func (c *PodCounter) DeepCopyObject() runtime.Object {
	copied := *c
	c.DeepCopyInto(&copied.ObjectMeta)
	copied.Spec.Selector = c.Spec.Selector.DeepCopy()
	return &copied
}

// PodCounterList is a list of them.
type PodCounterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []PodCounter `json:"items"`
}

// DeepCopyObject implements runtime.Object.
func (l *PodCounterList) DeepCopyObject() runtime.Object {
	copied := PodCounterList{TypeMeta: l.TypeMeta, ListMeta: l.ListMeta}
	for i := range l.Items {
		copied.Items = append(copied.Items, *l.Items[i].DeepCopyObject().(*PodCounter))
	}
	return &copied
}
