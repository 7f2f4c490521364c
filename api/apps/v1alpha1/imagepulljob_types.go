package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/afloat-project/afloat/api/apps/v1beta1"
)

// ImagePullJob pulls one image on a set of nodes. It has the fields of v1beta1, so the API server converts it by itself.
//
// +spec:IMG-002, IMG-010, IMG-195
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="TOTAL",type="integer",JSONPath=".status.desired",description="Selected nodes"
// +kubebuilder:printcolumn:name="ACTIVE",type="integer",JSONPath=".status.active",description="Nodes at work"
// +kubebuilder:printcolumn:name="SUCCEED",type="integer",JSONPath=".status.succeeded",description="Nodes that have the image"
// +kubebuilder:printcolumn:name="FAILED",type="integer",JSONPath=".status.failed",description="Nodes that failed"
// +kubebuilder:printcolumn:name="AGE",type="date",JSONPath=".metadata.creationTimestamp",description="Time since creation"
// +kubebuilder:printcolumn:name="MESSAGE",type="string",JSONPath=".status.message",description="What the job is doing"
type ImagePullJob struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what is asked for.
	// +optional
	Spec v1beta1.ImagePullJobSpec `json:"spec,omitzero"`
	// Status is the observed state.
	// +optional
	Status v1beta1.ImagePullJobStatus `json:"status,omitzero"`
}

// ImagePullJobList is a list of ImagePullJobs.
//
// +kubebuilder:object:root=true
type ImagePullJobList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	// Items are the jobs.
	Items []ImagePullJob `json:"items"`
}
