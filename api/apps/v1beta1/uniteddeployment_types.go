package v1beta1

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// UnitedDeploymentSpec says what workload there is in each subset, and how replicas are split over them.
type UnitedDeploymentSpec struct {
	// Template is the template of the workloads. Exactly one of its fields must be set.
	// +spec:UD-002, UD-023
	// +optional
	Template               SubsetTemplate `json:"template,omitzero"`
	UnitedDeploymentScheme `json:",inline"`
}

// UnitedDeploymentScheme is what both versions have in common: all but the template.
//
// +spec:UD-150
type UnitedDeploymentScheme struct {
	// Replicas is the number of pods in all subsets together: 0 or more. Default 1, or the sum of the subsets if each has a number.
	// +spec:UD-010, UD-011, UD-021
	// +optional
	Replicas *int32 `json:"replicas,omitempty"`
	// Selector selects the workloads and their pods by labels. It must not be empty, must match the labels of the template, and cannot be
	// changed.
	// +spec:UD-022, UD-024, UD-047
	// +required
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
	// Topology lists the subsets.
	// +optional
	Topology Topology `json:"topology,omitzero"`
	// UpdateStrategy says which pods of which subsets get a changed template.
	// +optional
	UpdateStrategy UnitedDeploymentUpdateStrategy `json:"updateStrategy,omitzero"`
	// RevisionHistoryLimit is the number of old revisions to keep for going back to: 0 or more. Default 10.
	// +spec:UD-010, UD-134
	// +optional
	RevisionHistoryLimit *int32 `json:"revisionHistoryLimit,omitempty"`
}

// SubsetTemplateSpec is the template of the workloads: one of four kinds.
type SubsetTemplateSpec struct {
	// StatefulSetTemplate is the template of StatefulSets of apps/v1. It is stored as it is written; fields that Afloat does not know
	// are kept.
	// +spec:UD-013, UD-027, UD-048
	// +optional
	StatefulSetTemplate *StatefulSetTemplateSpec `json:"statefulSetTemplate,omitempty"`
	// AdvancedStatefulSetTemplate is the template of StatefulSets of apps.kruise.io.
	// +spec:UD-017, UD-049
	// +optional
	AdvancedStatefulSetTemplate *AdvancedStatefulSetTemplateSpec `json:"advancedStatefulSetTemplate,omitempty"`
	// CloneSetTemplate is the template of CloneSets.
	// +spec:UD-017, UD-050
	// +optional
	CloneSetTemplate *CloneSetTemplateSpec `json:"cloneSetTemplate,omitempty"`
	// DeploymentTemplate is the template of Deployments of apps/v1. It is stored as it is written; fields that Afloat does not know are
	// kept.
	// +spec:UD-028, UD-050
	// +optional
	DeploymentTemplate *DeploymentTemplateSpec `json:"deploymentTemplate,omitempty"`
}

// StatefulSetTemplateSpec is the template of StatefulSets of apps/v1.
type StatefulSetTemplateSpec struct {
	// Metadata holds labels and annotations of the workloads.
	// +spec:UD-024, UD-068
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	Metadata TemplateMeta `json:"metadata,omitzero"`
	// Spec of the workloads: see "kubectl explain statefulset.spec". Replicas and partition are those of the subset.
	// +required
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	Spec appsv1.StatefulSetSpec `json:"spec"`
}

// AdvancedStatefulSetTemplateSpec is the template of StatefulSets of apps.kruise.io.
type AdvancedStatefulSetTemplateSpec struct {
	// Metadata holds labels and annotations of the workloads.
	// +spec:UD-024, UD-068
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	Metadata TemplateMeta `json:"metadata,omitzero"`
	// Spec of the workloads. Replicas and partition are those of the subset.
	// +required
	Spec StatefulSetSpec `json:"spec"`
}

// CloneSetTemplateSpec is the template of CloneSets.
type CloneSetTemplateSpec struct {
	// Metadata holds labels and annotations of the workloads.
	// +spec:UD-068
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	Metadata TemplateMeta `json:"metadata,omitzero"`
	// Spec of the workloads. Replicas and partition are those of the subset.
	// +required
	Spec CloneSetSpec `json:"spec"`
}

// DeploymentTemplateSpec is the template of Deployments of apps/v1.
type DeploymentTemplateSpec struct {
	// Metadata holds labels and annotations of the workloads.
	// +spec:UD-024, UD-068
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	Metadata TemplateMeta `json:"metadata,omitzero"`
	// Spec of the workloads: see "kubectl explain deployment.spec". Replicas are those of the subset.
	// +required
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	Spec appsv1.DeploymentSpec `json:"spec"`
}

// Topology lists the subsets, and says how pods move between them.
type Topology struct {
	// Subsets in the order of their priority; each gets a workload of its own. None is allowed: there are no workloads then.
	// +spec:UD-042
	// +optional
	Subsets []Subset `json:"subsets,omitempty"`
	// ScheduleStrategy says what happens to pods that cannot be scheduled.
	// +optional
	ScheduleStrategy UnitedDeploymentScheduleStrategy `json:"scheduleStrategy,omitzero"`
}

// Subset is one group of nodes, and how many pods there are on it.
type Subset struct {
	// Name of the subset: a DNS label, unique in the object.
	// +spec:UD-029
	// +required
	Name string `json:"name"`
	// NodeSelectorTerm is what the nodes of the subset must be like; it is added to each required term of the pods' node affinity. It
	// cannot be changed.
	// +spec:UD-030, UD-046, UD-070
	// +optional
	NodeSelectorTerm corev1.NodeSelectorTerm `json:"nodeSelectorTerm,omitzero"`
	// Tolerations are added to those of the pods. They cannot be changed.
	// +spec:UD-030, UD-046, UD-070
	// +optional
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`
	// Replicas is the number of pods in the subset: a number, or a percentage of all, rounded to the nearest. Absent means a share of
	// what the others leave. Not together with minReplicas and maxReplicas of any subset.
	// +spec:UD-031, UD-032, UD-080, UD-083
	// +optional
	Replicas *intstr.IntOrString `json:"replicas,omitempty"`
	// MinReplicas is how many pods the subset gets before a later one gets more than its own minimum: a number, or a percentage of all,
	// rounded to the nearest. Default 0.
	// +spec:UD-031, UD-033, UD-090
	// +optional
	MinReplicas *intstr.IntOrString `json:"minReplicas,omitempty"`
	// MaxReplicas is the most pods in the subset: a number, or a percentage of all, rounded to the nearest. Absent means no limit; one
	// subset at least must have none.
	// +spec:UD-031, UD-034, UD-090
	// +optional
	MaxReplicas *intstr.IntOrString `json:"maxReplicas,omitempty"`
	// Patch is a strategic merge patch of the pod template of the subset, with metadata and spec. It is applied last.
	// +spec:UD-016, UD-041
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	Patch runtime.RawExtension `json:"patch,omitzero"`
}

// UnitedDeploymentScheduleStrategyType says what happens to pods that cannot be scheduled.
//
// +kubebuilder:validation:Enum=Adaptive;Fixed;""
type UnitedDeploymentScheduleStrategyType string

// Schedule strategies; empty is Fixed (UD-014).
const (
	// FixedUnitedDeploymentScheduleStrategyType leaves pods where they are.
	FixedUnitedDeploymentScheduleStrategyType UnitedDeploymentScheduleStrategyType = "Fixed"
	// AdaptiveUnitedDeploymentScheduleStrategyType gives pods that cannot be scheduled to other subsets (UD-095, UD-110).
	AdaptiveUnitedDeploymentScheduleStrategyType UnitedDeploymentScheduleStrategyType = "Adaptive"
)

// UnitedDeploymentScheduleStrategy says what happens to pods that cannot be scheduled.
type UnitedDeploymentScheduleStrategy struct {
	// Type is Fixed: pods stay where they are; or Adaptive: pods that cannot be scheduled are given to other subsets. Default Fixed.
	// +spec:UD-014
	// +optional
	Type UnitedDeploymentScheduleStrategyType `json:"type,omitempty"`
	// Adaptive are the options of type Adaptive.
	// +optional
	Adaptive *AdaptiveUnitedDeploymentStrategy `json:"adaptive,omitempty"`
}

// AdaptiveUnitedDeploymentStrategy says when a pod is given to another subset.
type AdaptiveUnitedDeploymentStrategy struct {
	// RescheduleCriticalSeconds is for how long a pod may be unschedulable before it is given to another subset: 0 or more. Default 30.
	// +spec:UD-014, UD-039, UD-096
	// +optional
	RescheduleCriticalSeconds *int32 `json:"rescheduleCriticalSeconds,omitempty"`
	// UnschedulableDuration is for how long a subset with such pods is passed over, in seconds: 0 or more. With
	// reserveUnschedulablePods it is for how long a reserved pod must be ready before its substitute goes. Default 300.
	// +spec:UD-014, UD-039, UD-095, UD-113
	// +optional
	UnschedulableDuration *int32 `json:"unschedulableDuration,omitempty"`
	// UnschedulableLastSeconds is the name of unschedulableDuration in OpenKruise 1.7 and 1.8. It holds where that is not set.
	// +spec:UD-014, UD-039
	// +optional
	UnschedulableLastSeconds *int32 `json:"unschedulableLastSeconds,omitempty"`
	// ReserveUnschedulablePods keeps pods that cannot be scheduled where they are, and makes substitutes in later subsets until they have
	// proved healthy. For Deployments and CloneSets only. Default false.
	// +spec:UD-038, UD-110
	// +optional
	ReserveUnschedulablePods bool `json:"reserveUnschedulablePods,omitempty"`
}

// UnitedDeploymentUpdateStrategyType says how pods get a changed template.
//
// +kubebuilder:validation:Enum=Manual;""
type UnitedDeploymentUpdateStrategyType string

// ManualUnitedDeploymentUpdateStrategyType updates pods down to the partitions that the user gives; it is the only one (UD-010, UD-040).
const ManualUnitedDeploymentUpdateStrategyType UnitedDeploymentUpdateStrategyType = "Manual"

// UnitedDeploymentUpdateStrategy says which pods of which subsets get a changed template.
type UnitedDeploymentUpdateStrategy struct {
	// Type is Manual, the only one and the default.
	// +spec:UD-010, UD-040
	// +optional
	Type UnitedDeploymentUpdateStrategyType `json:"type,omitempty"`
	// ManualUpdate are the options of type Manual.
	// +optional
	ManualUpdate *ManualUpdate `json:"manualUpdate,omitempty"`
}

// ManualUpdate are the options of type Manual.
type ManualUpdate struct {
	// Partitions says, by name of the subset, how many of its pods stay at the revision that they have: 0 or more. Default 0. Deployments
	// have no partition.
	// +spec:UD-040, UD-100
	// +optional
	Partitions map[string]int32 `json:"partitions,omitempty"`
}

// UnitedDeploymentConditionType is the type of a condition of a UnitedDeployment.
type UnitedDeploymentConditionType string

// Conditions of a UnitedDeployment (UD-140).
const (
	// UnitedDeploymentUpdated says whether the current revision is that of the template.
	UnitedDeploymentUpdated UnitedDeploymentConditionType = "UnitedDeploymentUpdated"
	// SubsetProvisioned says whether workloads were created and deleted as wanted.
	SubsetProvisioned UnitedDeploymentConditionType = "SubsetProvisioned"
	// SubsetUpdated says whether all workloads were updated as wanted.
	SubsetUpdated UnitedDeploymentConditionType = "SubsetUpdated"
	// SubsetFailure is there while a workload reports a failure.
	SubsetFailure UnitedDeploymentConditionType = "SubsetFailure"
)

// UnitedDeploymentCondition is one condition of a UnitedDeployment.
type UnitedDeploymentCondition struct {
	// Type of the condition.
	// +optional
	Type UnitedDeploymentConditionType `json:"type,omitempty"`
	// Status is True, False or Unknown.
	// +optional
	Status corev1.ConditionStatus `json:"status,omitempty"`
	// LastTransitionTime is when the status changed last.
	// +optional
	LastTransitionTime metav1.Time `json:"lastTransitionTime,omitzero"`
	// Reason is one word for programs.
	// +optional
	Reason string `json:"reason,omitempty"`
	// Message is a sentence for people.
	// +optional
	Message string `json:"message,omitempty"`
}

// UnitedDeploymentSubsetConditionType is the type of a condition of a subset.
type UnitedDeploymentSubsetConditionType string

// UnitedDeploymentSubsetSchedulable is False while a subset is passed over, or its pods have to prove healthy (UD-095, UD-117, UD-143).
const UnitedDeploymentSubsetSchedulable UnitedDeploymentSubsetConditionType = "Schedulable"

// UnitedDeploymentSubsetCondition is one condition of a subset.
type UnitedDeploymentSubsetCondition struct {
	// Type is Schedulable.
	// +required
	Type UnitedDeploymentSubsetConditionType `json:"type"`
	// Status is True, False or Unknown.
	// +required
	Status corev1.ConditionStatus `json:"status"`
	// LastTransitionTime is when the status changed last.
	// +optional
	LastTransitionTime metav1.Time `json:"lastTransitionTime,omitzero"`
	// Reason is one word for programs.
	// +optional
	Reason string `json:"reason,omitempty"`
	// Message is a sentence for people.
	// +optional
	Message string `json:"message,omitempty"`
}

// UnitedDeploymentSubsetStatus is what is wanted and there in one subset.
//
// +spec:UD-138
type UnitedDeploymentSubsetStatus struct {
	// Name of the subset.
	// +optional
	Name string `json:"name,omitempty"`
	// Replicas is how many pods the subset is given.
	// +optional
	Replicas int32 `json:"replicas,omitempty"`
	// ReadyReplicas is how many ready pods the workload reports.
	// +optional
	ReadyReplicas int32 `json:"readyReplicas,omitempty"`
	// Partition is how many pods of the subset stay at an old revision.
	// +optional
	Partition int32 `json:"partition,omitempty"`
	// ReservedPods is how many pods of the subset are reserved: they have substitutes elsewhere.
	// +spec:UD-125
	// +optional
	ReservedPods int32 `json:"reservedPods,omitempty"`
	// Conditions of the subset.
	// +spec:UD-143
	// +optional
	Conditions []UnitedDeploymentSubsetCondition `json:"conditions,omitempty"`
}

// UnitedDeploymentStatus is the observed state.
type UnitedDeploymentStatus struct {
	UnitedDeploymentCounters `json:",inline"`
	// UpdatedRevision is the name of the revision of the template.
	// +spec:UD-135
	// +optional
	UpdatedRevision string `json:"updatedRevision,omitempty"`
}

// UnitedDeploymentCounters is what the status has in both versions.
//
// +spec:UD-153
type UnitedDeploymentCounters struct {
	// ObservedGeneration is the generation that the status is of.
	// +spec:UD-139
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Replicas is the number of pods in all subsets, without those that are reserved.
	// +spec:UD-137
	// +required
	Replicas int32 `json:"replicas"`
	// ReadyReplicas is the number of ready pods in all subsets.
	// +spec:UD-137
	// +optional
	ReadyReplicas int32 `json:"readyReplicas,omitempty"`
	// UpdatedReplicas is the number of active pods of the updated revision.
	// +spec:UD-137
	// +required
	UpdatedReplicas int32 `json:"updatedReplicas"`
	// UpdatedReadyReplicas is the number of those that are ready.
	// +spec:UD-137
	// +optional
	UpdatedReadyReplicas int32 `json:"updatedReadyReplicas,omitempty"`
	// ReservedPods is the number of reserved pods in all subsets.
	// +spec:UD-125
	// +optional
	ReservedPods int32 `json:"reservedPods,omitempty"`
	// CollisionCount is how often two templates had one hash.
	// +spec:UD-132
	// +optional
	CollisionCount *int32 `json:"collisionCount,omitempty"`
	// CurrentRevision is the name of the revision that all pods had when last they all had one.
	// +spec:UD-135
	// +required
	CurrentRevision string `json:"currentRevision"`
	// SubsetStatuses has one entry for each subset, in their order.
	// +spec:UD-138
	// +optional
	SubsetStatuses []UnitedDeploymentSubsetStatus `json:"subsetStatuses,omitempty"`
	// Conditions of the object.
	// +spec:UD-140
	// +optional
	Conditions []UnitedDeploymentCondition `json:"conditions,omitempty"`
	// LabelSelector selects the pods that count, as autoscalers read it.
	// +spec:UD-018, UD-125
	// +optional
	LabelSelector string `json:"labelSelector,omitempty"`
}

// UnitedDeployment keeps one workload of a kind in each of several groups of nodes, and splits replicas over them.
//
// +spec:UD-001
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:resource:shortName=ud
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.replicas,selectorpath=.status.labelSelector
// +kubebuilder:printcolumn:name="DESIRED",type="integer",JSONPath=".spec.replicas",description="Wanted number of pods"
// +kubebuilder:printcolumn:name="CURRENT",type="integer",JSONPath=".status.replicas",description="Pods that count"
// +kubebuilder:printcolumn:name="UPDATED",type="integer",JSONPath=".status.updatedReplicas",description="Pods of the updated revision"
// +kubebuilder:printcolumn:name="READY",type="integer",JSONPath=".status.readyReplicas",description="Ready pods"
// +kubebuilder:printcolumn:name="AGE",type="date",JSONPath=".metadata.creationTimestamp",description="Time since creation"
type UnitedDeployment struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is the wanted state.
	// +optional
	Spec UnitedDeploymentSpec `json:"spec,omitzero"`
	// Status is the observed state.
	// +optional
	Status UnitedDeploymentStatus `json:"status,omitzero"`
}

// Hub marks v1beta1 as the version that all others convert to.
func (*UnitedDeployment) Hub() {}

// UnitedDeploymentList is a list of UnitedDeployments.
//
// +kubebuilder:object:root=true
type UnitedDeploymentList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	// Items are the UnitedDeployments.
	Items []UnitedDeployment `json:"items"`
}
