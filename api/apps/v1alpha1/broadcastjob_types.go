package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/afloat-project/afloat/api/apps/v1beta1"
)

// BroadcastJob runs one pod to completion on every eligible node. It has the fields of v1beta1, so the API server converts it by itself.
//
// +spec:BJ-001, BJ-150
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=bcj
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Desired",type="integer",JSONPath=".status.desired",description="Nodes that have, or should get, a pod"
// +kubebuilder:printcolumn:name="Active",type="integer",JSONPath=".status.active",description="Pods that have not finished"
// +kubebuilder:printcolumn:name="Succeeded",type="integer",JSONPath=".status.succeeded",description="Pods that succeeded"
// +kubebuilder:printcolumn:name="Failed",type="integer",JSONPath=".status.failed",description="Pods that failed"
// +kubebuilder:printcolumn:name="AGE",type="date",JSONPath=".metadata.creationTimestamp",description="Time since creation"
type BroadcastJob struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what is asked for.
	// +optional
	Spec v1beta1.BroadcastJobSpec `json:"spec,omitzero"`
	// Status is the observed state.
	// +optional
	Status v1beta1.BroadcastJobStatus `json:"status,omitzero"`
}

// BroadcastJobList is a list of BroadcastJobs.
//
// +kubebuilder:object:root=true
type BroadcastJobList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	// Items are the jobs.
	Items []BroadcastJob `json:"items"`
}
