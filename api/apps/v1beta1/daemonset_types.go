package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/api/template"
)

// DaemonSetSpec is the wanted state of a DaemonSet.
type DaemonSetSpec struct {
	DaemonSetTemplate `json:",inline"`
	// ScaleStrategy says on which nodes pods are created.
	// +optional
	ScaleStrategy *DaemonSetScaleStrategy `json:"scaleStrategy,omitempty"`
}

// DaemonSetTemplate is what both versions have in common.
//
// +spec:ADS-210
type DaemonSetTemplate struct {
	// Selector selects the pods by their labels. It must not be empty, must match the labels of the template, and cannot be changed.
	// +spec:ADS-022, ADS-032
	// +required
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
	// Template is the template of the pods, as in a DaemonSet of Kubernetes: see "kubectl explain pod.spec". Its restartPolicy must be
	// Always. It is stored as it is written; fields that Afloat does not know are kept.
	// +spec:ADS-015, ADS-016, ADS-023
	// +required
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	Template template.PodTemplate `json:"template,omitzero"`
	// UpdateStrategy says how pods are moved to a changed template.
	// +optional
	UpdateStrategy DaemonSetUpdateStrategy `json:"updateStrategy,omitzero"`
	// MinReadySeconds is the time for which a pod must be ready before it counts as available, in seconds: 0 or more. Default 0.
	// +spec:ADS-024
	// +optional
	MinReadySeconds int32 `json:"minReadySeconds,omitempty"`
	// BurstReplicas is how many pods are created, and how many are deleted or updated in place, in one pass: a number above 0, or a
	// percentage of the nodes that should have a pod, rounded down but at least 1. Default 250.
	// +spec:ADS-012, ADS-030, ADS-110
	// +optional
	BurstReplicas *intstr.IntOrString `json:"burstReplicas,omitempty"`
	// RevisionHistoryLimit is the number of old revisions to keep for going back to: 0 or more. Default 10.
	// +spec:ADS-012, ADS-024, ADS-065
	// +optional
	RevisionHistoryLimit *int32 `json:"revisionHistoryLimit,omitempty"`
	// Lifecycle holds the hook of the pods: what must happen before a pod is deleted (preDelete). The other hooks have no effect here.
	// +spec:ADS-029, ADS-150
	// +optional
	Lifecycle *pub.Lifecycle `json:"lifecycle,omitempty"`
}

// DaemonSetScaleStrategy says on which nodes pods are created.
type DaemonSetScaleStrategy struct {
	// PartitionedScaling lets partition limit the creation of pods, too: a node inside the partition that has no pod gets none. Default
	// false.
	// +spec:ADS-100, ADS-104
	// +optional
	PartitionedScaling bool `json:"partitionedScaling,omitempty"`
}

// DaemonSetUpdateStrategyType says whether the controller updates pods by itself.
type DaemonSetUpdateStrategyType string

// Update strategy types of a DaemonSet (ADS-025).
const (
	// RollingUpdateDaemonSetStrategyType updates pods as RollingUpdate says. It is the default (ADS-012).
	RollingUpdateDaemonSetStrategyType DaemonSetUpdateStrategyType = "RollingUpdate"
	// OnDeleteDaemonSetStrategyType leaves pods alone until somebody deletes them (ADS-170).
	OnDeleteDaemonSetStrategyType DaemonSetUpdateStrategyType = "OnDelete"
)

// RollingUpdateType says how one pod is moved to a changed template.
type RollingUpdateType string

// Rolling update types of a DaemonSet (ADS-027).
const (
	// StandardRollingUpdateType deletes and creates pods. It is the default (ADS-013).
	StandardRollingUpdateType RollingUpdateType = "Standard"
	// InPlaceIfPossibleRollingUpdateType changes the running pod if the change qualifies, else recreates it.
	InPlaceIfPossibleRollingUpdateType RollingUpdateType = "InPlaceIfPossible"
)

// DaemonSetUpdateStrategy says how pods are moved to a changed template.
type DaemonSetUpdateStrategy struct {
	// Type is RollingUpdate, or OnDelete: a pod gets a changed template when somebody deletes it. Default RollingUpdate.
	// +spec:ADS-012, ADS-025
	// +optional
	Type DaemonSetUpdateStrategyType `json:"type,omitempty"`
	// RollingUpdate holds the options of type RollingUpdate. With OnDelete they are kept and not used.
	// +spec:ADS-013, ADS-025
	// +optional
	RollingUpdate *RollingUpdateDaemonSet `json:"rollingUpdate,omitempty"`
}

// RollingUpdateDaemonSet holds the options of rolling updates.
type RollingUpdateDaemonSet struct {
	// RollingUpdateType is Standard: pods are replaced; or InPlaceIfPossible: changed in place where the change allows it, else replaced.
	// In v1alpha1 Surging, which is deprecated, stands for Standard with maxSurge. Default Standard.
	// +spec:ADS-013, ADS-014, ADS-027
	// +optional
	Type RollingUpdateType `json:"rollingUpdateType,omitempty"`
	// MaxUnavailable is the number of nodes whose pod may be unavailable during the update: a number, or a percentage of the nodes that
	// should have a pod, rounded up. Either it or maxSurge must be above 0, not both. Default 1 if maxSurge is absent too.
	// +spec:ADS-013, ADS-026, ADS-122
	// +optional
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`
	// MaxSurge is the number of nodes that may have a new pod beside their old one during the update: a number, or a percentage of the
	// nodes that should have a pod, rounded up. Not with InPlaceIfPossible. Default 0.
	// +spec:ADS-013, ADS-026, ADS-027, ADS-122
	// +optional
	MaxSurge *intstr.IntOrString `json:"maxSurge,omitempty"`
	// Selector selects nodes by their labels: only their pods are updated. Absent means all nodes.
	// +spec:ADS-030, ADS-124
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
	// Partition is on how many nodes the pods stay at the old revision: a number, or a percentage of the nodes that should have a pod,
	// rounded down. Default 0.
	// +spec:ADS-028, ADS-123, ADS-125
	// +optional
	Partition *intstr.IntOrString `json:"partition,omitempty"`
	// Paused stops the update; pods are still created on new nodes and removed from others. Default false.
	// +spec:ADS-171
	// +optional
	Paused bool `json:"paused,omitempty"`
}

// DaemonSetStatus is the observed state of a DaemonSet.
type DaemonSetStatus struct {
	DaemonSetProgress `json:",inline"`
	// UpdateRevision is the hash of the revision of the present template.
	// +spec:ADS-066, ADS-212
	// +optional
	UpdateRevision string `json:"updateRevision,omitempty"`
}

// DaemonSetProgress is what the status has in both versions.
//
// +spec:ADS-190, ADS-191, ADS-210
type DaemonSetProgress struct {
	// CurrentNumberScheduled is the number of nodes that should have a pod and have one.
	// +required
	CurrentNumberScheduled int32 `json:"currentNumberScheduled"`
	// NumberMisscheduled is the number of nodes that have a pod and should not have one.
	// +required
	NumberMisscheduled int32 `json:"numberMisscheduled"`
	// DesiredNumberScheduled is the number of nodes that should have a pod.
	// +required
	DesiredNumberScheduled int32 `json:"desiredNumberScheduled"`
	// NumberReady is the number of nodes that should have a pod and have a ready one.
	// +required
	NumberReady int32 `json:"numberReady"`
	// ObservedGeneration is the metadata.generation that the status speaks of.
	// +spec:ADS-192
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// UpdatedNumberScheduled is the number of nodes that should have a pod and have one of the present template.
	// +required
	UpdatedNumberScheduled int32 `json:"updatedNumberScheduled"`
	// NumberAvailable is the number of nodes that should have a pod and have an available one.
	// +optional
	NumberAvailable int32 `json:"numberAvailable,omitempty"`
	// NumberUnavailable is the number of nodes that should have a pod and have no available one.
	// +optional
	NumberUnavailable int32 `json:"numberUnavailable,omitempty"`
	// CollisionCount counts names of revisions that were taken.
	// +spec:ADS-064
	// +optional
	CollisionCount *int32 `json:"collisionCount,omitempty"`
	// Conditions tell what fails. Types: FailedCreatePod, FailedUpdatePod.
	// +spec:ADS-194
	// +optional
	Conditions []DaemonSetCondition `json:"conditions,omitempty"`
}

// DaemonSetConditionType is the type of a condition of a DaemonSet.
type DaemonSetConditionType string

// Condition types of a DaemonSet (ADS-194).
const (
	// DaemonSetConditionFailedCreatePod holds the error of the last creation or deletion of a pod.
	DaemonSetConditionFailedCreatePod DaemonSetConditionType = "FailedCreatePod"
	// DaemonSetConditionFailedUpdatePod holds the error of the last update of a pod.
	DaemonSetConditionFailedUpdatePod DaemonSetConditionType = "FailedUpdatePod"
)

// DaemonSetCondition is one condition of a DaemonSet.
type DaemonSetCondition struct {
	// Type is FailedCreatePod or FailedUpdatePod.
	// +required
	Type DaemonSetConditionType `json:"type"`
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

// DaemonSet keeps one pod on every node where its template may run, and updates the pods in place, by recreation, or with a new one first.
//
// +spec:ADS-001, ADS-010
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
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

// Hub marks v1beta1 as the version that all others convert to.
func (*DaemonSet) Hub() {}

// DaemonSetList is a list of DaemonSets.
//
// +kubebuilder:object:root=true
type DaemonSetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	// Items are the DaemonSets.
	Items []DaemonSet `json:"items"`
}
