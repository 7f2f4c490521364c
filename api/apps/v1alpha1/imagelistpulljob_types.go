package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/afloat-project/afloat/api/apps/v1beta1"
)

// ImageListPullJob pulls several images on a set of nodes. It has the fields of v1beta1, so the API server converts it by itself.
//
// +spec:IMG-003, IMG-010, IMG-195
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="TOTAL",type="integer",JSONPath=".status.desired",description="Images"
// +kubebuilder:printcolumn:name="SUCCEEDED",type="integer",JSONPath=".status.succeeded",description="Images on all nodes"
// +kubebuilder:printcolumn:name="COMPLETED",type="integer",JSONPath=".status.completed",description="Images with a result on all nodes"
// +kubebuilder:printcolumn:name="AGE",type="date",JSONPath=".metadata.creationTimestamp",description="Time since creation"
type ImageListPullJob struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what is asked for.
	// +optional
	Spec v1beta1.ImageListPullJobSpec `json:"spec,omitzero"`
	// Status is the observed state.
	// +optional
	Status v1beta1.ImageListPullJobStatus `json:"status,omitzero"`
}

// ImageListPullJobList is a list of ImageListPullJobs.
//
// +kubebuilder:object:root=true
type ImageListPullJobList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	// Items are the lists.
	Items []ImageListPullJob `json:"items"`
}
