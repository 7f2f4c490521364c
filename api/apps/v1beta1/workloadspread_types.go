package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// WorkloadSpreadSpec says over which groups of nodes the pods of a workload are spread.
type WorkloadSpreadSpec struct {
	WorkloadSpreadTarget `json:",inline"`
	// Subsets in the order of their priority: at least one.
	// +spec:WS-002
	// +required
	Subsets []WorkloadSpreadSubset `json:"subsets,omitempty"`
}

// WorkloadSpreadTarget is what both versions have in common.
//
// +spec:WS-180
type WorkloadSpreadTarget struct {
	// TargetReference names the workload, in the same namespace. Another WorkloadSpread must not name it. It cannot be changed.
	// +spec:WS-013, WS-022
	// +required
	TargetReference *TargetReference `json:"targetRef"`
	// TargetFilter limits which pods of the workload are spread, and says how many there shall be.
	// +spec:WS-014, WS-015
	// +optional
	TargetFilter *TargetFilter `json:"targetFilter,omitempty"`
	// ScheduleStrategy says what happens to pods that cannot be scheduled.
	// +optional
	ScheduleStrategy WorkloadSpreadScheduleStrategy `json:"scheduleStrategy,omitzero"`
}

// TargetReference names a workload.
type TargetReference struct {
	// APIVersion of the workload, such as apps/v1. The group counts, the version does not matter.
	// +spec:WS-013
	// +required
	APIVersion string `json:"apiVersion"`
	// Kind of the workload: CloneSet, Deployment, ReplicaSet, StatefulSet, Job, or one that the administrator lists in ConfigMap
	// kruise-configuration.
	// +required
	Kind string `json:"kind"`
	// Name of the workload.
	// +required
	Name string `json:"name"`
}

// TargetFilter limits the pods of a workload.
type TargetFilter struct {
	// Selector of the pods; absent or empty selects all.
	// +spec:WS-014
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
	// ReplicasPathList are dot separated paths in the workload, the sum of whose integers is its desired number of pods.
	// +spec:WS-015
	// +optional
	ReplicasPathList []string `json:"replicasPathList,omitempty"`
}

// WorkloadSpreadScheduleStrategyType says what happens to pods that cannot be scheduled.
//
// +kubebuilder:validation:Enum=Adaptive;Fixed;""
type WorkloadSpreadScheduleStrategyType string

// Schedule strategies; empty is Fixed (WS-010).
const (
	// FixedWorkloadSpreadScheduleStrategyType leaves pods where they were put.
	FixedWorkloadSpreadScheduleStrategyType WorkloadSpreadScheduleStrategyType = "Fixed"
	// AdaptiveWorkloadSpreadScheduleStrategyType passes over a subset in which pods cannot be scheduled (WS-170).
	AdaptiveWorkloadSpreadScheduleStrategyType WorkloadSpreadScheduleStrategyType = "Adaptive"
)

// WorkloadSpreadScheduleStrategy says what happens to pods that cannot be scheduled.
type WorkloadSpreadScheduleStrategy struct {
	// Type is Fixed: pods stay where they were put; or Adaptive: pods that cannot be scheduled are deleted, and their subset is passed
	// over for a while. Default Fixed.
	// +optional
	Type WorkloadSpreadScheduleStrategyType `json:"type,omitempty"`
	// Adaptive are the options of type Adaptive.
	// +spec:WS-039
	// +optional
	Adaptive *AdaptiveWorkloadSpreadStrategy `json:"adaptive,omitempty"`
}

// AdaptiveWorkloadSpreadStrategy says when a pod is given up where it cannot be scheduled.
type AdaptiveWorkloadSpreadStrategy struct {
	// DisableSimulationSchedule has no effect. It is there because OpenKruise has it.
	// +spec:WS-018
	// +optional
	DisableSimulationSchedule bool `json:"disableSimulationSchedule,omitempty"`
	// RescheduleCriticalSeconds is for how long a pod may be unschedulable before it is deleted, and its subset passed over: with two
	// subsets at most 295, with three 147, as the manager is set up. Absent or 0: no pod is deleted.
	// +spec:WS-170
	// +optional
	RescheduleCriticalSeconds *int32 `json:"rescheduleCriticalSeconds,omitempty"`
}

// WorkloadSpreadSubset is one group of nodes, and what pods there get.
type WorkloadSpreadSubset struct {
	// Name of the subset, unique in the WorkloadSpread. Required.
	// +spec:WS-034
	// +required
	Name string `json:"name"`
	// RequiredNodeSelector is what the nodes of the subset must be like; it is added to each required term of the pods' node affinity.
	// +spec:WS-092
	// +optional
	RequiredNodeSelector *corev1.NodeSelectorTerm `json:"requiredNodeSelector,omitempty"`
	// PreferredNodeSelector is what the nodes of the subset should be like; it is added to the preferred terms of the pods' node affinity.
	// +spec:WS-091
	// +optional
	PreferredNodeSelector    []corev1.PreferredSchedulingTerm `json:"preferredNodeSelector,omitempty"`
	WorkloadSpreadSubsetRest `json:",inline"`
}

// WorkloadSpreadSubsetRest is what a subset is in both versions beside its node selectors.
//
// +spec:WS-180
type WorkloadSpreadSubsetRest struct {
	// Tolerations are added to those of the pods.
	// +spec:WS-090
	// +optional
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`
	// MaxReplicas is the most pods in the subset: a number, or a percentage of the workload's, rounded up. Numbers in all subsets, or
	// percentages in all. Absent means no limit.
	// +spec:WS-011, WS-012
	// +optional
	MaxReplicas *intstr.IntOrString `json:"maxReplicas,omitempty"`
	// Patch is a strategic merge patch of the pods of the subset, with metadata and spec.
	// +spec:WS-017
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	Patch runtime.RawExtension `json:"patch,omitzero"`
}

// WorkloadSpreadSubsetConditionType is the type of a condition of a subset.
type WorkloadSpreadSubsetConditionType string

// SubsetSchedulable is False while pods that cannot be scheduled make new ones pass over the subset (WS-173, WS-179).
const SubsetSchedulable WorkloadSpreadSubsetConditionType = "Schedulable"

// WorkloadSpreadSubsetStatus is what one subset has, and what is booked for it.
//
// +spec:WS-150
type WorkloadSpreadSubsetStatus struct {
	// Name of the subset.
	// +required
	Name                         string `json:"name"`
	WorkloadSpreadSubsetCounters `json:",inline"`
	// Conditions of the subset.
	// +spec:WS-179
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// WorkloadSpreadSubsetCounters are the numbers of a subset, in both versions.
type WorkloadSpreadSubsetCounters struct {
	// Replicas are the active pods.
	// +required
	Replicas int32 `json:"replicas"`
	// MissingReplicas is how many more pods there may be; -1 means any number.
	// +spec:WS-150
	// +required
	MissingReplicas int32 `json:"missingReplicas"`
	// CreatingPods are pods admitted but not seen yet, by name or booking id, with the time of their admission.
	// +spec:WS-076
	// +optional
	CreatingPods map[string]metav1.Time `json:"creatingPods,omitempty"`
	// DeletingPods are pods whose deletion was admitted, by name, with its time.
	// +spec:WS-103
	// +optional
	DeletingPods map[string]metav1.Time `json:"deletingPods,omitempty"`
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
// +kubebuilder:storageversion
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
