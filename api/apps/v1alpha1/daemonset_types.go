package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/afloat-project/afloat/api/apps/v1beta1"
)

// DaemonSetSpec is the wanted state of a DaemonSet. What v1beta1 has besides is in annotations.
type DaemonSetSpec struct {
	v1beta1.DaemonSetTemplate `json:",inline"`
}

// SurgingRollingUpdateType is deprecated: it stands for Standard with maxSurge, as which it is stored (ADS-014, ADS-211).
const SurgingRollingUpdateType v1beta1.RollingUpdateType = "Surging"

// DaemonSetStatus is the observed state of a DaemonSet.
type DaemonSetStatus struct {
	v1beta1.DaemonSetProgress `json:",inline"`
	// DaemonSetHash is the hash of the revision of the present template.
	// +spec:ADS-066, ADS-212
	// +optional
	DaemonSetHash string `json:"daemonSetHash,omitempty"`
}

// DaemonSet keeps one pod on every node where its template may run, and updates the pods in place, by recreation, or with a new one first.
// With annotation daemonset.kruise.io/progressive-create-pod "true" partition limits the creation of pods, too.
//
// +spec:ADS-001, ADS-010, ADS-213
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=daemon;ads
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="DESIRED",type="integer",JSONPath=".status.desiredNumberScheduled",description="Nodes that should have a pod"
// +kubebuilder:printcolumn:name="CURRENT",type="integer",JSONPath=".status.currentNumberScheduled",description="Of those, nodes that have one"
// +kubebuilder:printcolumn:name="READY",type="integer",JSONPath=".status.numberReady",description="Nodes with a ready pod"
// +kubebuilder:printcolumn:name="UP-TO-DATE",type="integer",JSONPath=".status.updatedNumberScheduled",description="Nodes with a pod of the present template"
// +kubebuilder:printcolumn:name="AVAILABLE",type="integer",JSONPath=".status.numberAvailable",description="Nodes with an available pod"
// +kubebuilder:printcolumn:name="AGE",type="date",JSONPath=".metadata.creationTimestamp",description="Time since creation"
// +kubebuilder:printcolumn:name="CONTAINERS",type="string",priority=1,JSONPath=".spec.template.spec.containers[*].name",description="Containers of the template"
// +kubebuilder:printcolumn:name="IMAGES",type="string",priority=1,JSONPath=".spec.template.spec.containers[*].image",description="Images of the template"
type DaemonSet struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is the wanted state.
	// +optional
	Spec DaemonSetSpec `json:"spec,omitzero"`
	// Status is the observed state.
	// +optional
	Status DaemonSetStatus `json:"status,omitzero"`
}

// DaemonSetList is a list of DaemonSets.
//
// +kubebuilder:object:root=true
type DaemonSetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	// Items are the DaemonSets.
	Items []DaemonSet `json:"items"`
}
