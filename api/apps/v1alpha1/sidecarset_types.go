package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/afloat-project/afloat/api/apps/v1beta1"
)

// SidecarSetSpec says which containers are added to which pods, and how they are kept current.
type SidecarSetSpec struct {
	v1beta1.SidecarSetTemplate `json:",inline"`
	// Namespace limits the pods to one namespace, and wins over namespaceSelector.
	// +spec:SS-081, SS-273
	// +optional
	Namespace string `json:"namespace,omitempty"`
}

// SidecarSet adds containers to pods and keeps their images current. The custom version of v1beta1 is a label here.
//
// +spec:SS-001, SS-002, SS-272
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="MATCHED",type="integer",JSONPath=".status.matchedPods",description="Pods that have the sidecars"
// +kubebuilder:printcolumn:name="UPDATED",type="integer",JSONPath=".status.updatedPods",description="Pods that have the latest ones"
// +kubebuilder:printcolumn:name="READY",type="integer",JSONPath=".status.readyPods",description="Pods that are ready"
// +kubebuilder:printcolumn:name="AGE",type="date",JSONPath=".metadata.creationTimestamp",description="Time since creation"
type SidecarSet struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what is wanted.
	// +optional
	Spec SidecarSetSpec `json:"spec,omitzero"`
	// Status is what is.
	// +optional
	Status v1beta1.SidecarSetStatus `json:"status,omitzero"`
}

// SidecarSetList is a list of SidecarSets.
//
// +kubebuilder:object:root=true
type SidecarSetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	// Items are the SidecarSets.
	Items []SidecarSet `json:"items"`
}
