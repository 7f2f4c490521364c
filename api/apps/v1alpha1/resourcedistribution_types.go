package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/afloat-project/afloat/api/apps/v1beta1"
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
	v1beta1.ResourceDistributionTargetLists `json:",inline"`
	// NamespaceLabelSelector selects namespaces by their labels. Absent or empty selects none.
	// +spec:RD-012, RD-036, RD-041
	// +optional
	NamespaceLabelSelector metav1.LabelSelector `json:"namespaceLabelSelector,omitzero"`
}

// ResourceDistributionCondition is one condition of a ResourceDistribution.
type ResourceDistributionCondition struct {
	v1beta1.ResourceDistributionConditionState `json:",inline"`
	// FailedNamespace are the namespaces that failed, in the order of their names.
	// +spec:RD-012, RD-092, RD-094
	// +optional
	FailedNamespace []string `json:"failedNamespace,omitempty"`
}

// ResourceDistributionStatus is the observed state.
type ResourceDistributionStatus struct {
	v1beta1.ResourceDistributionCounters `json:",inline"`
	// Conditions are always six, in the same order.
	// +spec:RD-091
	// +optional
	Conditions []ResourceDistributionCondition `json:"conditions,omitempty"`
}

// ResourceDistribution keeps a copy of a Secret or ConfigMap in each of several namespaces.
//
// +spec:RD-001
// +kubebuilder:object:root=true
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

// ResourceDistributionList is a list of ResourceDistributions.
//
// +kubebuilder:object:root=true
type ResourceDistributionList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	// Items are the ResourceDistributions.
	Items []ResourceDistribution `json:"items"`
}
