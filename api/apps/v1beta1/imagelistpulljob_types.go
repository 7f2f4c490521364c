package v1beta1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ImageListPullJobSpec says which images are to be pulled, where and how.
type ImageListPullJobSpec struct {
	// Images to pull; one ImagePullJob is made for each. At most 255, none twice.
	// +spec:IMG-150, IMG-045
	// +required
	Images               []string `json:"images"`
	ImagePullJobTemplate `json:",inline"`
}

// ImageListPullJobStatus is the observed state of a list of jobs.
//
// +spec:IMG-154
type ImageListPullJobStatus struct {
	// StartTime is when the controller saw the list first.
	// +optional
	StartTime *metav1.Time `json:"startTime,omitempty"`
	// CompletionTime is when all jobs had ended.
	// +optional
	CompletionTime *metav1.Time `json:"completionTime,omitempty"`
	// Desired is the number of images.
	// +required
	Desired int32 `json:"desired"`
	// Active is the number of jobs with nodes at work.
	// +optional
	Active int32 `json:"active,omitempty"`
	// Completed is the number of jobs all whose nodes have a result.
	// +optional
	Completed int32 `json:"completed,omitempty"`
	// Succeeded is the number of jobs all whose nodes have the image.
	// +optional
	Succeeded int32 `json:"succeeded,omitempty"`
	// FailedImageStatuses are the jobs with failed nodes, in the order of the images.
	// +optional
	FailedImageStatuses []*FailedImageStatus `json:"failedImageStatuses,omitempty"`
}

// FailedImageStatus names a job with failed nodes.
type FailedImageStatus struct {
	// ImagePullJob is the job.
	// +optional
	ImagePullJob string `json:"imagePullJob,omitempty"`
	// Name of the image.
	// +optional
	Name string `json:"name,omitempty"`
	// Message tells where to look.
	// +optional
	Message string `json:"message,omitempty"`
}

// ImageListPullJob pulls several images on a set of nodes.
//
// +spec:IMG-003
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
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
	Spec ImageListPullJobSpec `json:"spec,omitzero"`
	// Status is the observed state.
	// +optional
	Status ImageListPullJobStatus `json:"status,omitzero"`
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
