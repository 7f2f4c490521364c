package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/afloat-project/afloat/api/apps/v1beta1"
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
	Tags []v1beta1.ImageTagSpec `json:"tags"`
	// SandboxConfig is passed to the runtime with each pull.
	// +spec:IMG-018
	// +optional
	SandboxConfig *v1beta1.SandboxConfig `json:"sandboxConfig,omitempty"`
}

// ReferenceObject names a pull secret. In v1beta1 it has a mode too.
//
// +spec:IMG-010
type ReferenceObject struct {
	// Namespace of the secret.
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// Name of the secret.
	// +optional
	Name string `json:"name,omitempty"`
}

// NodeImage lists the images to be present on the node of its name, and what became of them.
//
// +spec:IMG-001
// +kubebuilder:object:root=true
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
	Status v1beta1.NodeImageStatus `json:"status,omitzero"`
}

// NodeImageList is a list of NodeImages.
//
// +kubebuilder:object:root=true
type NodeImageList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	// Items are the NodeImages.
	Items []NodeImage `json:"items"`
}
