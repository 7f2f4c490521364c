package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/afloat-project/afloat/api/apps/v1beta1"
)

// PersistentPodStateSpec says of which workload the places of pods are remembered, and what of them.
type PersistentPodStateSpec struct {
	v1beta1.PersistentPodStateRest `json:",inline"`
	// RequiredPersistentTopology are labels of nodes of which a pod gets the remembered values, all together, as a must.
	// +spec:PPS-022, PPS-032
	// +optional
	RequiredPersistentTopology *NodeTopologyTerm `json:"requiredPersistentTopology,omitempty"`
	// PreferredPersistentTopology are labels of nodes of which a pod prefers the remembered values.
	// +spec:PPS-022, PPS-033
	// +optional
	PreferredPersistentTopology []PreferredTopologyTerm `json:"preferredPersistentTopology,omitempty"`
	// PersistentPodStateRetentionPolicy says when a place is forgotten: WhenScaled, once the workload is scaled in below the pod, or
	// WhenDeleted, with the workload. Default WhenScaled.
	// +spec:PPS-010, PPS-025, PPS-060, PPS-063
	// +optional
	PersistentPodStateRetentionPolicy v1beta1.PersistentPodStateRetentionPolicyType `json:"persistentPodStateRetentionPolicy,omitempty"`
}

// NodeTopologyTerm are labels of nodes.
type NodeTopologyTerm struct {
	// NodeTopologyKeys are the keys of the labels, one an item.
	// +spec:PPS-023, PPS-090, PPS-109
	// +required
	NodeTopologyKeys []string `json:"nodeTopologyKeys"`
}

// PreferredTopologyTerm is one preference.
type PreferredTopologyTerm struct {
	// Weight of the preference against others of the scheduler: 1 to 100.
	// +spec:PPS-024
	// +required
	Weight int32 `json:"weight"`
	// Preference are the labels whose values must hold together for the preference to count.
	// +spec:PPS-033
	// +required
	Preference NodeTopologyTerm `json:"preference"`
}

// PersistentPodState remembers where pods of a workload with stable names ran, and brings pods of the same names back there.
//
// +spec:PPS-001
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
type PersistentPodState struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is the wanted state.
	// +optional
	Spec PersistentPodStateSpec `json:"spec,omitzero"`
	// Status is the observed state.
	// +optional
	Status v1beta1.PersistentPodStateStatus `json:"status,omitzero"`
}

// PersistentPodStateList is a list of PersistentPodStates.
//
// +kubebuilder:object:root=true
type PersistentPodStateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	// Items are the PersistentPodStates.
	Items []PersistentPodState `json:"items"`
}
