package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/afloat-project/afloat/api/apps/v1beta1"
)

// WorkloadSpreadSpec says over which groups of nodes the pods of a workload are spread.
type WorkloadSpreadSpec struct {
	v1beta1.WorkloadSpreadTarget `json:",inline"`
	// Subsets in the order of their priority.
	// +spec:WS-002
	// +required
	Subsets []WorkloadSpreadSubset `json:"subsets,omitempty"`
}

// WorkloadSpreadSubset is one group of nodes, and what pods there get.
type WorkloadSpreadSubset struct {
	// Name of the subset, unique.
	// +spec:WS-034
	// +required
	Name string `json:"name"`
	// RequiredNodeSelectorTerm is requiredNodeSelector of v1beta1.
	// +spec:WS-180
	// +optional
	RequiredNodeSelectorTerm *corev1.NodeSelectorTerm `json:"requiredNodeSelectorTerm,omitempty"`
	// PreferredNodeSelectorTerms is preferredNodeSelector of v1beta1.
	// +spec:WS-180
	// +optional
	PreferredNodeSelectorTerms       []corev1.PreferredSchedulingTerm `json:"preferredNodeSelectorTerms,omitempty"`
	v1beta1.WorkloadSpreadSubsetRest `json:",inline"`
}

// WorkloadSpreadSubsetCondition tells something of a subset.
type WorkloadSpreadSubsetCondition struct {
	// Type of the condition.
	// +spec:WS-179
	// +required
	Type v1beta1.WorkloadSpreadSubsetConditionType `json:"type"`
	// Status is True, False or Unknown.
	// +required
	Status corev1.ConditionStatus `json:"status"`
	// LastTransitionTime is when the status changed.
	// +optional
	LastTransitionTime metav1.Time `json:"lastTransitionTime,omitzero"`
	// Reason of the status.
	// +optional
	Reason string `json:"reason,omitempty"`
	// Message says it in words.
	// +optional
	Message string `json:"message,omitempty"`
}

// WorkloadSpreadSubsetStatus is what one subset has, and what is booked for it.
//
// +spec:WS-150
type WorkloadSpreadSubsetStatus struct {
	// Name of the subset.
	// +required
	Name                                 string `json:"name"`
	v1beta1.WorkloadSpreadSubsetCounters `json:",inline"`
	// Conditions of the subset.
	// +optional
	Conditions []WorkloadSpreadSubsetCondition `json:"conditions,omitempty"`
}

// WorkloadSpreadStatus says how the pods are spread.
type WorkloadSpreadStatus struct {
	// ObservedGeneration is the generation that the numbers are of.
	// +spec:WS-177
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// SubsetStatuses are over all pods.
	// +spec:WS-154
	// +optional
	SubsetStatuses []WorkloadSpreadSubsetStatus `json:"subsetStatuses,omitempty"`
	// VersionedSubsetStatuses are by version of the workload; in them pods are booked.
	// +spec:WS-070, WS-080
	// +optional
	VersionedSubsetStatuses map[string][]WorkloadSpreadSubsetStatus `json:"versionedSubsetStatuses,omitempty"`
}

// WorkloadSpread spreads the pods of one workload over groups of nodes, without changing the workload.
//
// +spec:WS-001
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=ws
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="WorkloadName",type="string",JSONPath=".spec.targetRef.name"
// +kubebuilder:printcolumn:name="WorkloadKind",type="string",JSONPath=".spec.targetRef.kind"
// +kubebuilder:printcolumn:name="Adaptive",type="boolean",JSONPath=".spec.scheduleStrategy.type[?(@ == \"Adaptive\")]",description="Whether the strategy is Adaptive"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
type WorkloadSpread struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what is wanted.
	// +optional
	Spec WorkloadSpreadSpec `json:"spec,omitzero"`
	// Status is what is.
	// +optional
	Status WorkloadSpreadStatus `json:"status,omitzero"`
}

// WorkloadSpreadList is a list of WorkloadSpreads.
//
// +kubebuilder:object:root=true
type WorkloadSpreadList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	// Items are the WorkloadSpreads.
	Items []WorkloadSpread `json:"items"`
}
