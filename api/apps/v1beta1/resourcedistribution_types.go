package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// ResourceDistributionSpec says what is distributed, and to which namespaces.
type ResourceDistributionSpec struct {
	// Resource is the Secret or ConfigMap, complete but for its namespace. Its apiVersion, kind and name cannot be changed.
	// +spec:RD-001, RD-011, RD-031, RD-032, RD-033
	// +required
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:EmbeddedResource
	// +kubebuilder:validation:Type=object
	Resource runtime.RawExtension `json:"resource,omitzero"`
	// Targets are the namespaces that get a copy.
	// +required
	Targets ResourceDistributionTargets `json:"targets"`
}

// ResourceDistributionTargets says which namespaces get a copy. kube-system and kube-public never do.
type ResourceDistributionTargets struct {
	ResourceDistributionTargetLists `json:",inline"`
	// NamespaceSelector selects namespaces by their labels. Absent or empty selects none.
	// +spec:RD-036, RD-041
	// +optional
	NamespaceSelector metav1.LabelSelector `json:"namespaceSelector,omitzero"`
}

// ResourceDistributionTargetLists is what both versions have in common: all but the selector.
//
// +spec:RD-110
type ResourceDistributionTargetLists struct {
	// AllNamespaces selects all namespaces. Default false.
	// +spec:RD-040
	// +optional
	AllNamespaces bool `json:"allNamespaces,omitempty"`
	// ExcludedNamespaces get no copy, whatever else selects them.
	// +spec:RD-042, RD-045
	// +optional
	ExcludedNamespaces ResourceDistributionTargetNamespaces `json:"excludedNamespaces,omitzero"`
	// IncludedNamespaces get a copy, as soon as they exist.
	// +spec:RD-038, RD-041
	// +optional
	IncludedNamespaces ResourceDistributionTargetNamespaces `json:"includedNamespaces,omitzero"`
}

// ResourceDistributionTargetNamespaces is a list of namespaces.
type ResourceDistributionTargetNamespaces struct {
	// List of the namespaces.
	// +optional
	List []ResourceDistributionNamespace `json:"list,omitempty"`
}

// ResourceDistributionNamespace is one namespace.
type ResourceDistributionNamespace struct {
	// Name of the namespace.
	// +spec:RD-035
	// +optional
	Name string `json:"name,omitempty"`
}

// ResourceDistributionConditionType is the type of a condition of a ResourceDistribution.
type ResourceDistributionConditionType string

// Conditions of a ResourceDistribution, in their order (RD-091).
const (
	// ResourceDistributionGetResourceFailed names the namespaces in which the object could not be read.
	ResourceDistributionGetResourceFailed ResourceDistributionConditionType = "GetResourceFailed"
	// ResourceDistributionCreateResourceFailed names those in which the copy could not be created.
	ResourceDistributionCreateResourceFailed ResourceDistributionConditionType = "CreateResourceFailed"
	// ResourceDistributionUpdateResourceFailed names those in which the copy could not be updated.
	ResourceDistributionUpdateResourceFailed ResourceDistributionConditionType = "UpdateResourceFailed"
	// ResourceDistributionDeleteResourceFailed names those in which the copy could not be deleted.
	ResourceDistributionDeleteResourceFailed ResourceDistributionConditionType = "DeleteResourceFailed"
	// ResourceDistributionConflictOccurred names those in which there is such an object of somebody else.
	ResourceDistributionConflictOccurred ResourceDistributionConditionType = "ConflictOccurred"
	// ResourceDistributionNamespaceNotExists names those that do not exist, or are being deleted.
	ResourceDistributionNamespaceNotExists ResourceDistributionConditionType = "NamespaceNotExists"
)

// ResourceDistributionCondition is one condition of a ResourceDistribution.
type ResourceDistributionCondition struct {
	ResourceDistributionConditionState `json:",inline"`
	// FailedNamespaces are the namespaces that failed, in the order of their names.
	// +spec:RD-092, RD-094
	// +optional
	FailedNamespaces []string `json:"failedNamespaces,omitempty"`
}

// ResourceDistributionConditionState is what a condition has in both versions.
type ResourceDistributionConditionState struct {
	// Type of the condition.
	// +spec:RD-091
	// +required
	Type ResourceDistributionConditionType `json:"type"`
	// Status is True if a namespace failed, else False.
	// +spec:RD-092
	// +required
	Status corev1.ConditionStatus `json:"status"`
	// LastTransitionTime is when the status changed last.
	// +optional
	LastTransitionTime metav1.Time `json:"lastTransitionTime,omitzero"`
	// Reason is Succeeded, or the error of the first namespace and the number of others.
	// +spec:RD-092, RD-094
	// +optional
	Reason string `json:"reason,omitempty"`
}

// ResourceDistributionStatus is the observed state.
type ResourceDistributionStatus struct {
	ResourceDistributionCounters `json:",inline"`
	// Conditions are always six, in the same order.
	// +spec:RD-091
	// +optional
	Conditions []ResourceDistributionCondition `json:"conditions,omitempty"`
}

// ResourceDistributionCounters is what the status has in both versions.
type ResourceDistributionCounters struct {
	// ObservedGeneration is the generation that the status is of.
	// +spec:RD-090
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Desired is the number of target namespaces.
	// +spec:RD-090
	// +optional
	Desired int32 `json:"desired,omitempty"`
	// Succeeded is the number of those with a correct copy.
	// +spec:RD-090
	// +optional
	Succeeded int32 `json:"succeeded,omitempty"`
	// Failed is the number of the others.
	// +spec:RD-090
	// +optional
	Failed int32 `json:"failed,omitempty"`
}

// ResourceDistribution keeps a copy of a Secret or ConfigMap in each of several namespaces.
//
// +spec:RD-001
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:resource:scope=Cluster,shortName=distributor
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="TOTAL",type="integer",JSONPath=".status.desired",description="Target namespaces"
// +kubebuilder:printcolumn:name="SUCCEED",type="integer",JSONPath=".status.succeeded",description="Namespaces with a correct copy"
// +kubebuilder:printcolumn:name="FAILED",type="integer",JSONPath=".status.failed",description="Namespaces without"
type ResourceDistribution struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is the wanted state.
	// +optional
	Spec ResourceDistributionSpec `json:"spec,omitzero"`
	// Status is the observed state.
	// +optional
	Status ResourceDistributionStatus `json:"status,omitzero"`
}

// Hub marks v1beta1 as the version that all others convert to.
func (*ResourceDistribution) Hub() {}

// ResourceDistributionList is a list of ResourceDistributions.
//
// +kubebuilder:object:root=true
type ResourceDistributionList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	// Items are the ResourceDistributions.
	Items []ResourceDistribution `json:"items"`
}
