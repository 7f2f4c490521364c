package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/api/template"
)

// UnitedDeploymentSpec says what workload there is in each subset, and how replicas are split over them.
type UnitedDeploymentSpec struct {
	// Template is the template of the workloads. Exactly one of its fields must be set.
	// +spec:UD-002, UD-023
	// +optional
	Template                       SubsetTemplate `json:"template,omitzero"`
	v1beta1.UnitedDeploymentScheme `json:",inline"`
}

// SubsetTemplateSpec is the template of the workloads: one of four kinds.
type SubsetTemplateSpec struct {
	// StatefulSetTemplate is the template of StatefulSets of apps/v1. It is stored as it is written; fields that Afloat does not know
	// are kept.
	// +spec:UD-013, UD-027, UD-048
	// +optional
	StatefulSetTemplate *v1beta1.StatefulSetTemplateSpec `json:"statefulSetTemplate,omitempty"`
	// AdvancedStatefulSetTemplate is the template of StatefulSets of apps.kruise.io, in the form of v1beta1.
	// +spec:UD-017, UD-049
	// +optional
	AdvancedStatefulSetTemplate *v1beta1.AdvancedStatefulSetTemplateSpec `json:"advancedStatefulSetTemplate,omitempty"`
	// CloneSetTemplate is the template of CloneSets, in the form of v1beta1 or of v1alpha1.
	// +spec:UD-017, UD-050, UD-161
	// +optional
	CloneSetTemplate *CloneSetTemplateSpec `json:"cloneSetTemplate,omitempty"`
	// DeploymentTemplate is the template of Deployments of apps/v1. It is stored as it is written; fields that Afloat does not know are
	// kept.
	// +spec:UD-028, UD-050
	// +optional
	DeploymentTemplate *v1beta1.DeploymentTemplateSpec `json:"deploymentTemplate,omitempty"`
}

// CloneSetTemplateSpec is the template of CloneSets.
type CloneSetTemplateSpec struct {
	// Metadata holds labels and annotations of the workloads.
	// +spec:UD-068
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	Metadata v1beta1.TemplateMeta `json:"metadata,omitzero"`
	// Spec of the workloads. Replicas and partition are those of the subset.
	// +required
	Spec UnitedCloneSetSpec `json:"spec"`
}

// UnitedCloneSetSpec is the spec of a CloneSet in the form of v1beta1, beside which the places of v1alpha1 are read, too. What stands in the
// place of v1beta1 wins.
//
// +spec:UD-161
type UnitedCloneSetSpec struct {
	// Replicas is overwritten by the number of the subset.
	// +spec:UD-025
	// +optional
	Replicas *int32 `json:"replicas,omitempty"`
	// Selector is overwritten by that of the UnitedDeployment, with the subset.
	// +spec:UD-069
	// +required
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
	// Template is the template of the pods. Fields that Afloat does not know are kept.
	// +required
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	Template template.PodTemplate `json:"template,omitzero"`
	// VolumeClaimTemplates are claims that every pod gets for itself. Fields that Afloat does not know are kept.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	VolumeClaimTemplates template.VolumeClaimTemplates `json:"volumeClaimTemplates,omitempty"`
	// ScaleStrategy says how pods are created and deleted.
	// +optional
	ScaleStrategy UnitedCloneSetScaleStrategy `json:"scaleStrategy,omitzero"`
	// UpdateStrategy says how pods are moved to a changed template.
	// +optional
	UpdateStrategy UnitedCloneSetUpdateStrategy `json:"updateStrategy,omitzero"`
	// RevisionHistoryLimit is the number of old revisions that a CloneSet keeps: 0 or more. Default 10.
	// +optional
	RevisionHistoryLimit *int32 `json:"revisionHistoryLimit,omitempty"`
	// MinReadySeconds is the time for which a pod must be ready before it counts as available, in seconds: 0 or more. Default 0.
	// +optional
	MinReadySeconds int32 `json:"minReadySeconds,omitempty"`
	// Lifecycle holds the hooks of the pods.
	// +optional
	Lifecycle *pub.Lifecycle `json:"lifecycle,omitempty"`
	// ProgressDeadlineSeconds is the time after which a rollout that makes no progress is reported, in seconds: more than
	// minReadySeconds. Absent or 2147483647 means never.
	// +optional
	ProgressDeadlineSeconds *int32 `json:"progressDeadlineSeconds,omitempty"`
}

// UnitedCloneSetScaleStrategy says how pods are created and deleted.
type UnitedCloneSetScaleStrategy struct {
	v1beta1.CloneSetScaleStrategy `json:",inline"`
	// DisablePVCReuse is the opposite of enablePVCReuse, as in CloneSets of v1alpha1.
	// +optional
	DisablePVCReuse *bool `json:"disablePVCReuse,omitempty"`
}

// UnitedCloneSetUpdateStrategy says how pods are moved to a changed template. Its type may be one of v1alpha1, too: ReCreate,
// InPlaceIfPossible or InPlaceOnly.
type UnitedCloneSetUpdateStrategy struct {
	v1beta1.CloneSetUpdateStrategy `json:",inline"`
	// Partition is rollingUpdate.partition in v1beta1.
	// +optional
	Partition *intstr.IntOrString `json:"partition,omitempty"`
	// MaxUnavailable is rollingUpdate.maxUnavailable in v1beta1.
	// +optional
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`
	// MaxSurge is rollingUpdate.maxSurge in v1beta1.
	// +optional
	MaxSurge *intstr.IntOrString `json:"maxSurge,omitempty"`
	// Paused is rollingUpdate.paused in v1beta1.
	// +optional
	Paused bool `json:"paused,omitempty"`
	// PriorityStrategy is rollingUpdate.priorityStrategy in v1beta1.
	// +optional
	PriorityStrategy *pub.UpdatePriorityStrategy `json:"priorityStrategy,omitempty"`
	// ScatterStrategy is rollingUpdate.scatterStrategy in v1beta1.
	// +optional
	ScatterStrategy []pub.UpdateScatterTerm `json:"scatterStrategy,omitempty"`
	// InPlaceUpdateStrategy is rollingUpdate.inPlaceUpdateStrategy in v1beta1.
	// +optional
	InPlaceUpdateStrategy *pub.InPlaceUpdateStrategy `json:"inPlaceUpdateStrategy,omitempty"`
}

// UnitedDeploymentStatus is the observed state.
type UnitedDeploymentStatus struct {
	v1beta1.UnitedDeploymentCounters `json:",inline"`
	// SubsetReplicas is how many pods each subset is given, by its name.
	// +spec:UD-151, UD-152
	// +optional
	SubsetReplicas map[string]int32 `json:"subsetReplicas,omitempty"`
	// UpdateStatus says how far an update is.
	// +spec:UD-151, UD-152
	// +optional
	UpdateStatus *UpdateStatus `json:"updateStatus,omitempty"`
}

// UpdateStatus says how far an update is.
type UpdateStatus struct {
	// UpdatedRevision is the name of the revision of the template.
	// +spec:UD-135, UD-151
	// +optional
	UpdatedRevision string `json:"updatedRevision,omitempty"`
	// CurrentPartitions is how many pods of each subset stay at an old revision, by its name.
	// +spec:UD-151
	// +optional
	CurrentPartitions map[string]int32 `json:"currentPartitions,omitempty"`
}

// UnitedDeployment keeps one workload of a kind in each of several groups of nodes, and splits replicas over them.
//
// +spec:UD-001
// +kubebuilder:object:root=true
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

// UnitedDeploymentList is a list of UnitedDeployments.
//
// +kubebuilder:object:root=true
type UnitedDeploymentList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	// Items are the UnitedDeployments.
	Items []UnitedDeployment `json:"items"`
}
