package v1beta1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// PersistentPodStateSpec says of which workload the places of pods are remembered, and what of them.
type PersistentPodStateSpec struct {
	PersistentPodStateRest `json:",inline"`
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
	// +kubebuilder:validation:Enum=WhenScaled;WhenDeleted
	// +optional
	PersistentPodStateRetentionPolicy PersistentPodStateRetentionPolicyType `json:"persistentPodStateRetentionPolicy,omitempty"`
}

// PersistentPodStateRest is what both versions have in common of the spec.
//
// +spec:PPS-090
type PersistentPodStateRest struct {
	// TargetRef is the workload: a StatefulSet of group apps or apps.kruise.io, or a kind that an administrator has listed. It cannot be changed.
	// +spec:PPS-011, PPS-012, PPS-027
	// +required
	TargetRef PersistentPodStateTarget `json:"targetRef"`
	// PersistentPodAnnotations are annotations of pods that are remembered, too.
	// +spec:PPS-051, PPS-104
	// +optional
	PersistentPodAnnotations []PersistentPodAnnotation `json:"persistentPodAnnotations,omitempty"`
}

// PersistentPodStateTarget refers to a workload of the same namespace.
type PersistentPodStateTarget struct {
	// APIVersion of the workload. Its group counts, its version does not.
	// +spec:PPS-011, PPS-020
	// +required
	APIVersion string `json:"apiVersion"`
	// Kind of the workload.
	// +spec:PPS-020, PPS-021
	// +required
	Kind string `json:"kind"`
	// Name of the workload.
	// +spec:PPS-020
	// +required
	Name string `json:"name"`
}

// PersistentPodAnnotation is one annotation of pods.
type PersistentPodAnnotation struct {
	// Key of the annotation.
	// +required
	Key string `json:"key"`
}

// NodeTopologyTerm are labels of nodes.
type NodeTopologyTerm struct {
	// Keys of the labels, one an item.
	// +spec:PPS-023, PPS-109
	// +required
	Keys []string `json:"keys"`
}

// PreferredTopologyTerm is one preference.
type PreferredTopologyTerm struct {
	// Weight of the preference against others of the scheduler: 1 to 100.
	// +spec:PPS-024
	// +kubebuilder:validation:Minimum=0
	// +required
	Weight int32 `json:"weight"`
	// Preference are the labels whose values must hold together for the preference to count.
	// +spec:PPS-033
	// +required
	Preference NodeTopologyTerm `json:"preference"`
}

// PersistentPodStateRetentionPolicyType says when places are forgotten.
type PersistentPodStateRetentionPolicyType string

// Retention policies.
const (
	// RetainWhenScaled forgets a pod's place once the workload is scaled in below it (PPS-060).
	RetainWhenScaled PersistentPodStateRetentionPolicyType = "WhenScaled"
	// RetainWhenDeleted forgets all places with the workload (PPS-063).
	RetainWhenDeleted PersistentPodStateRetentionPolicyType = "WhenDeleted"
)

// PersistentPodStateStatus is what is remembered.
type PersistentPodStateStatus struct {
	// ObservedGeneration is the generation that the status is of.
	// +spec:PPS-080
	// +required
	ObservedGeneration int64 `json:"observedGeneration"`
	// PodStates are the places by the names of pods.
	// +spec:PPS-080, PPS-083
	// +optional
	PodStates map[string]PodState `json:"podStates,omitempty"`
}

// PodState is where a pod was ready last.
type PodState struct {
	// NodeName is the node.
	// +spec:PPS-051
	// +optional
	NodeName string `json:"nodeName,omitempty"`
	// NodeTopologyLabels are the labels of the node that the spec names, as far as it had them.
	// +spec:PPS-051
	// +optional
	NodeTopologyLabels map[string]string `json:"nodeTopologyLabels,omitempty"`
	// Annotations are those of the pod that the spec names, as far as it had them.
	// +spec:PPS-051
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`
}

// PersistentPodState remembers where pods of a workload with stable names ran, and brings pods of the same names back there.
//
// +spec:PPS-001
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
type PersistentPodState struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is the wanted state.
	// +optional
	Spec PersistentPodStateSpec `json:"spec,omitzero"`
	// Status is the observed state.
	// +optional
	Status PersistentPodStateStatus `json:"status,omitzero"`
}

// Hub marks v1beta1 as the version that all others convert to.
func (*PersistentPodState) Hub() {}

// PersistentPodStateList is a list of PersistentPodStates.
//
// +kubebuilder:object:root=true
type PersistentPodStateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	// Items are the PersistentPodStates.
	Items []PersistentPodState `json:"items"`
}
