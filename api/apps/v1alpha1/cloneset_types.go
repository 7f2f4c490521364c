package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/api/template"
)

// CloneSetSpec is the wanted state of a CloneSet.
type CloneSetSpec struct {
	// Replicas is the wanted number of pods: 0 or more. Default 1.
	// +spec:CS-010
	// +optional
	Replicas *int32 `json:"replicas,omitempty"`
	// Selector selects the pods by their labels. It must not be empty, must match the labels of the template, and cannot be changed.
	// +spec:CS-021, CS-032
	// +required
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
	// Template is the template of the pods, as in a Deployment: see "kubectl explain pod.spec". Its restartPolicy must be Always.
	// Fields that Afloat does not know are kept.
	// +spec:CS-016
	// +required
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	Template template.PodTemplate `json:"template,omitzero"`
	// VolumeClaimTemplates are claims that every pod gets for itself, each mounted by its name: see "kubectl explain pvc". Fields that
	// Afloat does not know are kept.
	// +spec:CS-045, CS-016
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	VolumeClaimTemplates template.VolumeClaimTemplates `json:"volumeClaimTemplates,omitempty"`
	// ScaleStrategy says how pods are created and deleted.
	// +optional
	ScaleStrategy CloneSetScaleStrategy `json:"scaleStrategy,omitzero"`
	// UpdateStrategy says how pods are moved to a changed template.
	// +optional
	UpdateStrategy CloneSetUpdateStrategy `json:"updateStrategy,omitzero"`
	// RevisionHistoryLimit is the number of old revisions to keep for going back to: 0 or more. Default 10.
	// +spec:CS-010, CS-088
	// +optional
	RevisionHistoryLimit *int32 `json:"revisionHistoryLimit,omitempty"`
	// MinReadySeconds is the time for which a pod must be ready before it counts as available, in seconds: 0 or more. Default 0.
	// +spec:CS-170
	// +optional
	MinReadySeconds int32 `json:"minReadySeconds,omitempty"`
	// Lifecycle holds the hooks of the pods: what must happen before a pod is deleted, updated in place, or counts as available.
	// +spec:CS-190
	// +optional
	Lifecycle *pub.Lifecycle `json:"lifecycle,omitempty"`
	// ProgressDeadlineSeconds is the time after which a rollout that makes no progress is reported, in seconds: more
	// than minReadySeconds. Absent or 2147483647 means never. A late rollout is not stopped.
	// +spec:CS-015, CS-226
	// +optional
	ProgressDeadlineSeconds *int32 `json:"progressDeadlineSeconds,omitempty"`
}

// CloneSetScaleStrategy says how pods are created and deleted.
type CloneSetScaleStrategy struct {
	// PodsToDelete names pods to be deleted first when scaling in, or to be replaced. Each name once. The controller removes names that
	// are gone.
	// +spec:CS-130, CS-134
	// +optional
	PodsToDelete []string `json:"podsToDelete,omitempty"`
	// MaxUnavailable limits creation: no more pods are made while so many are unavailable. A number or a percentage of replicas, rounded
	// up. Absent means no limit.
	// +spec:CS-094
	// +optional
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`
	// DisablePVCReuse makes new pods get fresh names and claims. Default false: they take over name and claims of pods that somebody
	// else deleted or evicted.
	// +spec:CS-013, CS-060
	// +optional
	DisablePVCReuse bool `json:"disablePVCReuse,omitempty"`
}

// CloneSetUpdateStrategyType says how pods are moved to a changed template.
type CloneSetUpdateStrategyType string

// Update strategy types of a CloneSet (CS-024).
const (
	// RecreateCloneSetUpdateStrategyType deletes and creates pods. It is the default (CS-012).
	RecreateCloneSetUpdateStrategyType CloneSetUpdateStrategyType = "ReCreate"
	// InPlaceIfPossibleCloneSetUpdateStrategyType changes the running pod if the change qualifies, else recreates it.
	InPlaceIfPossibleCloneSetUpdateStrategyType CloneSetUpdateStrategyType = "InPlaceIfPossible"
	// InPlaceOnlyCloneSetUpdateStrategyType changes the running pod and never recreates it.
	InPlaceOnlyCloneSetUpdateStrategyType CloneSetUpdateStrategyType = "InPlaceOnly"
	// OnDeleteCloneSetUpdateStrategyType leaves pods alone until somebody deletes them (CS-122, CS-343).
	OnDeleteCloneSetUpdateStrategyType CloneSetUpdateStrategyType = "OnDelete"
)

// CloneSetUpdateStrategy says how pods are moved to a changed template.
type CloneSetUpdateStrategy struct {
	// Type is ReCreate: pods are replaced; InPlaceIfPossible: changed in place where the change allows it, else replaced; InPlaceOnly:
	// changes that are impossible in place are refused; or OnDelete. Default ReCreate.
	// +spec:CS-012
	// +optional
	Type CloneSetUpdateStrategyType `json:"type,omitempty"`
	// Partition is how many pods stay at the old revision: a number, or a percentage of replicas such as 20%, rounded up but leaving one
	// of several pods to be updated unless it is 100%. Default 0.
	// +spec:CS-090
	// +optional
	Partition *intstr.IntOrString `json:"partition,omitempty"`
	// MaxUnavailable is the number of pods that may be unavailable: a number or a percentage of replicas, rounded up, or down if
	// maxSurge is above 0. Default 20%.
	// +spec:CS-092
	// +optional
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`
	// MaxSurge is the number of pods above replicas during an update: a number or a percentage of replicas, rounded up. Default 0.
	// +spec:CS-091
	// +optional
	MaxSurge *intstr.IntOrString `json:"maxSurge,omitempty"`
	// Paused stops updates; scaling goes on. Default false.
	// +spec:CS-122
	// +optional
	Paused bool `json:"paused,omitempty"`
	// PriorityStrategy says which pods are updated first, by their labels: by weights or by numbers, not both.
	// +spec:CS-181, CS-182
	// +optional
	PriorityStrategy *pub.UpdatePriorityStrategy `json:"priorityStrategy,omitempty"`
	// ScatterStrategy spreads the pods that have one of these labels evenly over the update.
	// +spec:CS-184
	// +optional
	ScatterStrategy []pub.UpdateScatterTerm `json:"scatterStrategy,omitempty"`
	// InPlaceUpdateStrategy holds the options of updates in place.
	// +optional
	InPlaceUpdateStrategy *pub.InPlaceUpdateStrategy `json:"inPlaceUpdateStrategy,omitempty"`
}

// CloneSetStatus is the observed state of a CloneSet.
type CloneSetStatus struct {
	// ObservedGeneration is the metadata.generation that the status speaks of.
	// +spec:CS-222
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Replicas is the number of active pods.
	// +spec:CS-220
	// +required
	Replicas int32 `json:"replicas"`
	// ReadyReplicas is the number of ready pods.
	// +spec:CS-170
	// +required
	ReadyReplicas int32 `json:"readyReplicas"`
	// AvailableReplicas is the number of available pods.
	// +spec:CS-170
	// +required
	AvailableReplicas int32 `json:"availableReplicas"`
	// UpdatedReplicas is the number of active pods of the update revision.
	// +spec:CS-220
	// +required
	UpdatedReplicas int32 `json:"updatedReplicas"`
	// UpdatedReadyReplicas is the number of ready pods of the update revision.
	// +spec:CS-220
	// +required
	UpdatedReadyReplicas int32 `json:"updatedReadyReplicas"`
	// UpdatedAvailableReplicas is the number of available pods of the update revision.
	// +spec:CS-220
	// +optional
	UpdatedAvailableReplicas int32 `json:"updatedAvailableReplicas,omitempty"`
	// ExpectedUpdatedReplicas is the number of pods that are to be updated.
	// +spec:CS-221
	// +optional
	ExpectedUpdatedReplicas int32 `json:"expectedUpdatedReplicas,omitempty"`
	// UpdateRevision is the name of the revision of the present template.
	// +spec:CS-086
	// +optional
	UpdateRevision string `json:"updateRevision,omitempty"`
	// CurrentRevision is the name of the revision of old pods.
	// +spec:CS-086
	// +optional
	CurrentRevision string `json:"currentRevision,omitempty"`
	// CollisionCount counts names of revisions that were taken.
	// +spec:CS-084
	// +optional
	CollisionCount *int32 `json:"collisionCount,omitempty"`
	// Conditions tell what fails and how far an update is. Types: FailedScale, FailedUpdate, Progressing, Available.
	// +spec:CS-225, CS-226
	// +optional
	Conditions []CloneSetCondition `json:"conditions,omitempty"`
	// LabelSelector is the text form of the selector, for the scale subresource.
	// +spec:CS-017
	// +optional
	LabelSelector string `json:"labelSelector,omitempty"`
}

// CloneSetConditionType is the type of a condition of a CloneSet.
type CloneSetConditionType string

// Condition types of a CloneSet.
const (
	// CloneSetConditionFailedScale holds the error of the last scaling (CS-225).
	CloneSetConditionFailedScale CloneSetConditionType = "FailedScale"
	// CloneSetConditionFailedUpdate holds the error of the last update (CS-225).
	CloneSetConditionFailedUpdate CloneSetConditionType = "FailedUpdate"
	// CloneSetConditionProgressing tells whether a rollout with a deadline progresses (CS-226).
	CloneSetConditionProgressing CloneSetConditionType = "Progressing"
	// CloneSetConditionAvailable tells whether enough pods are available; it is published on request (CS-363).
	CloneSetConditionAvailable CloneSetConditionType = "Available"
)

// Reasons of the condition Progressing (CS-226).
const (
	// CloneSetAvailable means that the rollout is complete.
	CloneSetAvailable = "CloneSetAvailable"
	// CloneSetPaused means that the rollout is paused.
	CloneSetPaused = "CloneSetPaused"
	// CloneSetProgressPartitionAvailable means that all pods outside the partition are updated and available.
	CloneSetProgressPartitionAvailable = "ProgressPartitionAvailable"
	// CloneSetProgressDeadlineExceeded means that the deadline has passed.
	CloneSetProgressDeadlineExceeded = "ProgressDeadlineExceeded"
	// CloneSetProgressUpdated means that the rollout goes on.
	CloneSetProgressUpdated = "CloneSetUpdated"
)

// CloneSetCondition is one condition of a CloneSet.
type CloneSetCondition struct {
	// Type is FailedScale, FailedUpdate, Progressing or Available.
	// +required
	Type CloneSetConditionType `json:"type"`
	// Status is True, False or Unknown.
	// +required
	Status corev1.ConditionStatus `json:"status"`
	// LastUpdateTime is when status or reason changed last; the progress deadline counts from it.
	// +spec:CS-228
	// +optional
	LastUpdateTime metav1.Time `json:"lastUpdateTime,omitzero"`
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

// CloneSet keeps a number of interchangeable pods and updates them in place or by recreation.
//
// +spec:CS-001
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=clone
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.replicas,selectorpath=.status.labelSelector
// +kubebuilder:printcolumn:name="DESIRED",type="integer",JSONPath=".spec.replicas",description="Wanted number of pods"
// +kubebuilder:printcolumn:name="UPDATED",type="integer",JSONPath=".status.updatedReplicas",description="Pods of the update revision"
// +kubebuilder:printcolumn:name="UPDATED_READY",type="integer",JSONPath=".status.updatedReadyReplicas",description="Ready pods of the update revision"
// +kubebuilder:printcolumn:name="UPDATED_AVAILABLE",type="integer",JSONPath=".status.updatedAvailableReplicas",description="Available pods of the update revision"
// +kubebuilder:printcolumn:name="READY",type="integer",JSONPath=".status.readyReplicas",description="Ready pods"
// +kubebuilder:printcolumn:name="TOTAL",type="integer",JSONPath=".status.replicas",description="Active pods"
// +kubebuilder:printcolumn:name="AGE",type="date",JSONPath=".metadata.creationTimestamp",description="Time since creation"
// +kubebuilder:printcolumn:name="CONTAINERS",type="string",priority=1,JSONPath=".spec.template.spec.containers[*].name",description="Containers of the template"
// +kubebuilder:printcolumn:name="IMAGES",type="string",priority=1,JSONPath=".spec.template.spec.containers[*].image",description="Images of the template"
// +kubebuilder:printcolumn:name="SELECTOR",type="string",priority=1,JSONPath=".status.labelSelector",description="Label selector of the pods"
type CloneSet struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is the wanted state.
	// +optional
	Spec CloneSetSpec `json:"spec,omitzero"`
	// Status is the observed state.
	// +optional
	Status CloneSetStatus `json:"status,omitzero"`
}

// CloneSetList is a list of CloneSets.
//
// +kubebuilder:object:root=true
type CloneSetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	// Items are the CloneSets.
	Items []CloneSet `json:"items"`
}
