package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NodeImageSpec lists the images to be present on a node.
type NodeImageSpec struct {
	// Images by their names without tag, in familiar form. At most 1024.
	// +spec:IMG-011, IMG-023
	// +optional
	Images map[string]ImageSpec `json:"images,omitzero"`
}

// ImageSpec holds the tags of one image.
type ImageSpec struct {
	// PullSecrets are the secrets to pull the image with.
	// +optional
	PullSecrets []ReferenceObject `json:"pullSecrets,omitempty"`
	// Tags to pull.
	// +required
	Tags []ImageTagSpec `json:"tags"`
	// SandboxConfig is passed to the runtime with each pull.
	// +spec:IMG-018
	// +optional
	SandboxConfig *SandboxConfig `json:"sandboxConfig,omitempty"`
}

// ReferenceObject names a pull secret.
type ReferenceObject struct {
	// Namespace of the secret.
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// Name of the secret.
	// +optional
	Name string `json:"name,omitempty"`
	// Mode is batch for copies of secrets that jobs share, else empty.
	// +spec:IMG-118
	// +optional
	Mode string `json:"mode,omitempty"`
}

// SandboxConfig is the metadata of the sandbox that a pull request names.
//
// +spec:IMG-018
type SandboxConfig struct {
	// Labels of the sandbox.
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
	// Annotations of the sandbox.
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`
}

// ImagePullPolicy says when an image is pulled.
//
// +spec:IMG-014
type ImagePullPolicy string

// Image pull policies (IMG-014).
const (
	// PullAlways contacts the registry each time.
	PullAlways ImagePullPolicy = "Always"
	// PullIfNotPresent does nothing when the runtime has the image. It is the default (IMG-015).
	PullIfNotPresent ImagePullPolicy = "IfNotPresent"
)

// ImageTagSpec is one tag, or digest, of an image.
type ImageTagSpec struct {
	// Tag, or a digest.
	// +spec:IMG-012
	// +required
	Tag string `json:"tag"`
	// CreatedAt is when the tag was asked for.
	// +spec:IMG-021
	// +optional
	CreatedAt *metav1.Time `json:"createdAt,omitempty"`
	// PullPolicy holds limits of the pull.
	// +optional
	PullPolicy *ImageTagPullPolicy `json:"pullPolicy,omitempty"`
	// OwnerReferences are the jobs that ask for the tag. A tag without is kept until its TTL ends.
	// +spec:IMG-087, IMG-055
	// +optional
	OwnerReferences []corev1.ObjectReference `json:"ownerReferences,omitempty"`
	// Version grows when the tag is to be pulled again.
	// +spec:IMG-086, IMG-131
	// +optional
	Version int64 `json:"version,omitempty"`
	// ImagePullPolicy is Always: the registry is asked each time; or IfNotPresent: nothing is pulled if the node has the image. Default
	// IfNotPresent.
	// +spec:IMG-015
	// +optional
	ImagePullPolicy ImagePullPolicy `json:"imagePullPolicy,omitempty"`
}

// ImageTagPullPolicy holds the limits of a pull.
type ImageTagPullPolicy struct {
	// TimeoutSeconds limits each attempt, in seconds. Default 600.
	// +spec:IMG-021, IMG-135
	// +optional
	TimeoutSeconds *int32 `json:"timeoutSeconds,omitempty"`
	// BackoffLimit is the number of attempts after the first. Default 3.
	// +spec:IMG-021, IMG-135
	// +optional
	BackoffLimit *int32 `json:"backoffLimit,omitempty"`
	// TTLSecondsAfterFinished is the time after which the finished tag is removed, in seconds.
	// +spec:IMG-054
	// +optional
	TTLSecondsAfterFinished *int32 `json:"ttlSecondsAfterFinished,omitempty"`
	// ActiveDeadlineSeconds limits all attempts together, in seconds.
	// +spec:IMG-059, IMG-135
	// +optional
	ActiveDeadlineSeconds *int64 `json:"activeDeadlineSeconds,omitempty"`
}

// NodeImageStatus is the observed state of the images of a node.
type NodeImageStatus struct {
	// Desired is the number of tags in the spec.
	// +spec:IMG-061
	// +required
	Desired int32 `json:"desired"`
	// Succeeded is the number of tags that are pulled.
	// +optional
	Succeeded int32 `json:"succeeded,omitempty"`
	// Failed is the number of tags that could not be pulled.
	// +optional
	Failed int32 `json:"failed,omitempty"`
	// Pulling is the number of tags being pulled.
	// +optional
	Pulling int32 `json:"pulling,omitempty"`
	// Waiting is the number of tags that wait for others.
	// +optional
	Waiting int32 `json:"waiting,omitempty"`
	// ImageStatuses by image name.
	// +optional
	ImageStatuses map[string]ImageStatus `json:"imageStatuses,omitzero"`
	// FirstSyncStatus is what became of the tags that were there when the node began.
	// +spec:IMG-063
	// +optional
	FirstSyncStatus *SyncStatus `json:"firstSyncStatus,omitempty"`
}

// ImageStatus is the state of the tags of one image.
type ImageStatus struct {
	// Tags of the image.
	// +required
	Tags []ImageTagStatus `json:"tags"`
}

// ImagePullPhase is the phase of a pull.
//
// +spec:IMG-132
type ImagePullPhase string

// Phases of a pull (IMG-132).
const (
	// ImagePhaseWaiting waits for its turn.
	ImagePhaseWaiting ImagePullPhase = "Waiting"
	// ImagePhasePulling is being pulled.
	ImagePhasePulling ImagePullPhase = "Pulling"
	// ImagePhaseSucceeded is present on the node.
	ImagePhaseSucceeded ImagePullPhase = "Succeeded"
	// ImagePhaseFailed could not be pulled.
	ImagePhaseFailed ImagePullPhase = "Failed"
)

// ImageTagStatus is the state of one tag.
type ImageTagStatus struct {
	// Tag, or a digest.
	// +required
	Tag string `json:"tag"`
	// Phase of the pull.
	// +required
	Phase ImagePullPhase `json:"phase"`
	// Progress in percent.
	// +optional
	Progress int32 `json:"progress,omitempty"`
	// StartTime of the pull.
	// +optional
	StartTime *metav1.Time `json:"startTime,omitempty"`
	// CompletionTime of the pull.
	// +optional
	CompletionTime *metav1.Time `json:"completionTime,omitempty"`
	// Version of the spec of which this speaks.
	// +optional
	Version int64 `json:"version,omitempty"`
	// ImageID of the pulled image.
	// +spec:IMG-140
	// +optional
	ImageID string `json:"imageID,omitempty"`
	// Message tells why the pull failed.
	// +optional
	Message string `json:"message,omitempty"`
}

// SyncStatusPhase is what became of the first tags of a node.
//
// +spec:IMG-063
type SyncStatusPhase string

// Results of the first tags of a node (IMG-063).
const (
	// SyncStatusSucceeded: none failed.
	SyncStatusSucceeded SyncStatusPhase = "Succeeded"
	// SyncStatusFailed: some failed.
	SyncStatusFailed SyncStatusPhase = "Failed"
)

// SyncStatus is what became of the first tags of a node.
//
// +spec:IMG-063
type SyncStatus struct {
	// SyncAt is when all had finished.
	// +optional
	SyncAt metav1.Time `json:"syncAt,omitzero"`
	// Status is Succeeded or Failed.
	// +optional
	Status SyncStatusPhase `json:"status,omitempty"`
	// Message tells what failed.
	// +optional
	Message string `json:"message,omitempty"`
}

// NodeImage lists the images to be present on the node of its name, and what became of them.
//
// +spec:IMG-001
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:resource:scope=Cluster
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="DESIRED",type="integer",JSONPath=".status.desired",description="Tags to be present"
// +kubebuilder:printcolumn:name="PULLING",type="integer",JSONPath=".status.pulling",description="Tags being pulled"
// +kubebuilder:printcolumn:name="SUCCEED",type="integer",JSONPath=".status.succeeded",description="Tags that are present"
// +kubebuilder:printcolumn:name="FAILED",type="integer",JSONPath=".status.failed",description="Tags that could not be pulled"
// +kubebuilder:printcolumn:name="AGE",type="date",JSONPath=".metadata.creationTimestamp",description="Time since creation"
type NodeImage struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what is to be present.
	// +optional
	Spec NodeImageSpec `json:"spec,omitzero"`
	// Status is what is.
	// +optional
	Status NodeImageStatus `json:"status,omitzero"`
}

// Hub marks v1beta1 as the version that all others convert to (IMG-196).
func (*NodeImage) Hub() {}

// NodeImageList is a list of NodeImages.
//
// +kubebuilder:object:root=true
type NodeImageList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	// Items are the NodeImages.
	Items []NodeImage `json:"items"`
}
