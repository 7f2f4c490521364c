package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/api/template"
)

// StatefulSetSpec is the wanted state of a StatefulSet.
type StatefulSetSpec struct {
	StatefulSetTemplate `json:",inline"`
	StatefulSetOptions  `json:",inline"`
}

// StatefulSetTemplate is what both versions have in common.
//
// +spec:ASTS-320
type StatefulSetTemplate struct {
	// Replicas is the wanted number of pods: 0 or more. Default 1.
	// +spec:ASTS-016
	// +optional
	Replicas *int32 `json:"replicas,omitempty"`
	// Selector selects the pods by their labels. It must not be empty, must match the labels of the template, and cannot be changed.
	// +spec:ASTS-043, ASTS-050
	// +required
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
	// Template is the template of the pods, as in a Deployment: see "kubectl explain pod.spec". Its restartPolicy must be Always.
	// Fields that Afloat does not know are kept.
	// +spec:ASTS-024, ASTS-044
	// +required
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	Template template.PodTemplate `json:"template,omitzero"`
	// VolumeClaimTemplates are claims that every pod gets for itself, each mounted by its name: see "kubectl explain pvc". A claim is
	// named after its template and its pod, and kept for the pod that follows. Fields that Afloat does not know are kept.
	// +spec:ASTS-024, ASTS-096
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	VolumeClaimTemplates template.VolumeClaimTemplates `json:"volumeClaimTemplates,omitempty"`
	// ServiceName is the name of the headless Service by which the pods are found: their subdomain. It is not created, and cannot be
	// changed.
	// +spec:ASTS-003, ASTS-098
	// +optional
	ServiceName string `json:"serviceName,omitempty"`
	// PodManagementPolicy is OrderedReady: one pod after the other; or Parallel. Default OrderedReady. It cannot be changed.
	// +spec:ASTS-014, ASTS-031
	// +optional
	PodManagementPolicy StatefulSetPodManagementPolicy `json:"podManagementPolicy,omitempty"`
	// UpdateStrategy says how pods are moved to a changed template.
	// +optional
	UpdateStrategy StatefulSetUpdateStrategy `json:"updateStrategy,omitzero"`
	// RevisionHistoryLimit is the number of old revisions to keep for going back to: 0 or more. Default 10.
	// +spec:ASTS-016, ASTS-086
	// +optional
	RevisionHistoryLimit *int32 `json:"revisionHistoryLimit,omitempty"`
}

// StatefulSetOptions is what v1beta1 has besides. In v1alpha1 an annotation holds it.
//
// +spec:ASTS-321, ASTS-322
type StatefulSetOptions struct {
	// ReserveOrdinals are the ordinals that no pod gets: numbers such as 5, and ranges such as "7-9".
	// +spec:ASTS-032, ASTS-091
	// +optional
	ReserveOrdinals []intstr.IntOrString `json:"reserveOrdinals,omitempty"`
	// Ordinals says which numbers the pods get.
	// +optional
	Ordinals *StatefulSetOrdinals `json:"ordinals,omitempty"`
	// Lifecycle holds the hooks of the pods: what must happen before a pod is deleted, updated in place, or counts as available.
	// +spec:ASTS-220
	// +optional
	Lifecycle *pub.Lifecycle `json:"lifecycle,omitempty"`
	// ScaleStrategy says how pods are created.
	// +optional
	ScaleStrategy *StatefulSetScaleStrategy `json:"scaleStrategy,omitempty"`
	// PersistentVolumeClaimRetentionPolicy says what becomes of the claims of pods that are not wanted any more.
	// +spec:ASTS-017, ASTS-261
	// +optional
	PersistentVolumeClaimRetentionPolicy *StatefulSetClaimRetentionPolicy `json:"persistentVolumeClaimRetentionPolicy,omitempty"`
	// VolumeClaimUpdateStrategy says what becomes of existing claims when their templates change.
	// +optional
	VolumeClaimUpdateStrategy StatefulSetClaimUpdateStrategy `json:"volumeClaimUpdateStrategy,omitzero"`
}

// StatefulSetPodManagementPolicy says whether pods are created and deleted one after the other.
type StatefulSetPodManagementPolicy string

// Pod management policies of a StatefulSet (ASTS-031).
const (
	// OrderedReadyPodManagement creates a pod when all of lower ordinals are available, and deletes the highest one first. It is the
	// default (ASTS-014).
	OrderedReadyPodManagement StatefulSetPodManagementPolicy = "OrderedReady"
	// ParallelPodManagement creates and deletes pods without waiting for others.
	ParallelPodManagement StatefulSetPodManagementPolicy = "Parallel"
)

// StatefulSetOrdinals says which numbers the pods get.
type StatefulSetOrdinals struct {
	// Start is the first number: 0 or more. Default 0.
	// +spec:ASTS-090
	// +optional
	Start int32 `json:"start,omitempty"`
}

// StatefulSetScaleStrategy says how pods are created.
type StatefulSetScaleStrategy struct {
	// MaxUnavailable limits creation: no more pods are made while so many are unavailable. A number above 0, or a percentage of replicas,
	// rounded down but at least 1; only 1 unless podManagementPolicy is Parallel. Absent means no limit.
	// +spec:ASTS-034, ASTS-035, ASTS-137
	// +optional
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`
}

// StatefulSetClaimRetention says what becomes of a claim.
type StatefulSetClaimRetention string

// What becomes of claims (ASTS-041).
const (
	// RetainStatefulSetClaims keeps claims. It is the default (ASTS-017).
	RetainStatefulSetClaims StatefulSetClaimRetention = "Retain"
	// DeleteStatefulSetClaims deletes claims.
	DeleteStatefulSetClaims StatefulSetClaimRetention = "Delete"
)

// StatefulSetClaimRetentionPolicy says what becomes of the claims of pods that are not wanted any more.
//
// +spec:ASTS-261
type StatefulSetClaimRetentionPolicy struct {
	// WhenDeleted is what becomes of all claims when the StatefulSet is deleted: Retain or Delete. Default Retain.
	// +optional
	WhenDeleted StatefulSetClaimRetention `json:"whenDeleted,omitempty"`
	// WhenScaled is what becomes of the claims of a pod whose number is not wanted any more: Retain or Delete. Default Retain.
	// +optional
	WhenScaled StatefulSetClaimRetention `json:"whenScaled,omitempty"`
}

// StatefulSetClaimUpdateStrategyType says when existing claims follow their templates.
type StatefulSetClaimUpdateStrategyType string

// Claim update strategies of a StatefulSet (ASTS-018).
const (
	// OnPVCDeleteStatefulSetClaimUpdate changes no claim: a changed template is for claims created later. It is the default.
	OnPVCDeleteStatefulSetClaimUpdate StatefulSetClaimUpdateStrategyType = "OnDelete"
	// OnPodRollingUpdateStatefulSetClaimUpdate expands claims pod by pod, as pods are updated.
	OnPodRollingUpdateStatefulSetClaimUpdate StatefulSetClaimUpdateStrategyType = "OnPodRollingUpdate"
)

// StatefulSetClaimUpdateStrategy says what becomes of existing claims when their templates change.
type StatefulSetClaimUpdateStrategy struct {
	// Type is OnDelete: a changed claim template is for claims created later; or OnPodRollingUpdate: claims are expanded pod by pod.
	// Default OnDelete.
	// +spec:ASTS-018, ASTS-270
	// +optional
	Type StatefulSetClaimUpdateStrategyType `json:"type,omitempty"`
}

// StatefulSetUpdateStrategyType says whether the controller updates pods by itself.
type StatefulSetUpdateStrategyType string

// Update strategy types of a StatefulSet (ASTS-036).
const (
	// RollingUpdateStatefulSetStrategyType updates pods as RollingUpdate says. It is the default (ASTS-015).
	RollingUpdateStatefulSetStrategyType StatefulSetUpdateStrategyType = "RollingUpdate"
	// OnDeleteStatefulSetStrategyType leaves pods alone until somebody deletes them (ASTS-165).
	OnDeleteStatefulSetStrategyType StatefulSetUpdateStrategyType = "OnDelete"
)

// StatefulSetPodUpdatePolicy says how one pod is moved to a changed template.
//
// +spec:IPU-010
type StatefulSetPodUpdatePolicy string

// Pod update policies of a StatefulSet (ASTS-039).
const (
	// ReCreateStatefulSetPodUpdatePolicy deletes and creates pods. It is the default (ASTS-015).
	ReCreateStatefulSetPodUpdatePolicy StatefulSetPodUpdatePolicy = "ReCreate"
	// InPlaceIfPossibleStatefulSetPodUpdatePolicy changes the running pod if the change qualifies, else recreates it.
	InPlaceIfPossibleStatefulSetPodUpdatePolicy StatefulSetPodUpdatePolicy = "InPlaceIfPossible"
	// InPlaceOnlyStatefulSetPodUpdatePolicy changes the running pod and never recreates it.
	InPlaceOnlyStatefulSetPodUpdatePolicy StatefulSetPodUpdatePolicy = "InPlaceOnly"
)

// StatefulSetUpdateStrategy says how pods are moved to a changed template.
type StatefulSetUpdateStrategy struct {
	// Type is RollingUpdate, or OnDelete: a pod gets a changed template when somebody deletes it. Default RollingUpdate.
	// +spec:ASTS-015, ASTS-036
	// +optional
	Type StatefulSetUpdateStrategyType `json:"type,omitempty"`
	// RollingUpdate holds the options of type RollingUpdate. With OnDelete they are kept and not used.
	// +spec:ASTS-015, ASTS-036
	// +optional
	RollingUpdate *RollingUpdateStatefulSetStrategy `json:"rollingUpdate,omitempty"`
}

// RollingUpdateStatefulSetStrategy holds the options of rolling updates.
type RollingUpdateStatefulSetStrategy struct {
	// Partition is how many pods stay at the old revision: 0 or more. Default 0.
	// +spec:ASTS-037, ASTS-147, ASTS-323
	// +optional
	Partition *int32 `json:"partition,omitempty"`
	// MaxUnavailable is the number of pods that may be unavailable: a number above 0, or a percentage of replicas, rounded down but at
	// least 1; only 1 unless podManagementPolicy is Parallel. Default 1.
	// +spec:ASTS-034, ASTS-035, ASTS-155
	// +optional
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`
	// PodUpdatePolicy is ReCreate: pods are replaced; InPlaceIfPossible: changed in place where the change allows it, else replaced; or
	// InPlaceOnly: changes that are impossible in place are refused. Default ReCreate.
	// +spec:ASTS-039
	// +optional
	PodUpdatePolicy StatefulSetPodUpdatePolicy `json:"podUpdatePolicy,omitempty"`
	// Paused stops updates; scaling goes on. Default false.
	// +spec:ASTS-145
	// +optional
	Paused bool `json:"paused,omitempty"`
	// UnorderedUpdate lets the order of update depend on labels instead of numbers alone. It needs podManagementPolicy Parallel.
	// +spec:ASTS-040, ASTS-150
	// +optional
	UnorderedUpdate *StatefulSetUnorderedUpdate `json:"unorderedUpdate,omitempty"`
	// InPlaceUpdateStrategy holds the options of updates in place.
	// +spec:ASTS-175, ASTS-290
	// +optional
	InPlaceUpdateStrategy *pub.InPlaceUpdateStrategy `json:"inPlaceUpdateStrategy,omitempty"`
	// MinReadySeconds is the time for which a pod must be ready before it counts as available, in seconds: 0 to 300. Default 0.
	// +spec:ASTS-037
	// +optional
	MinReadySeconds *int32 `json:"minReadySeconds,omitempty"`
}

// StatefulSetUnorderedUpdate lets the order of update depend on labels.
type StatefulSetUnorderedUpdate struct {
	// PriorityStrategy says which pods are updated first, by their labels: by weights or by numbers, not both. Absent means the highest
	// number first.
	// +spec:ASTS-151, ASTS-152, ASTS-153
	// +optional
	PriorityStrategy *pub.UpdatePriorityStrategy `json:"priorityStrategy,omitempty"`
}

// StatefulSetStatus is the observed state of a StatefulSet.
type StatefulSetStatus struct {
	StatefulSetProgress `json:",inline"`
	// UpdatedReadyReplicas is the number of ready pods of the update revision.
	// +spec:ASTS-300
	// +optional
	UpdatedReadyReplicas int32 `json:"updatedReadyReplicas,omitempty"`
	// UpdatedAvailableReplicas is the number of available pods of the update revision.
	// +spec:ASTS-300
	// +optional
	UpdatedAvailableReplicas int32 `json:"updatedAvailableReplicas,omitempty"`
	// VolumeClaims tells for each claim template how many claims follow it.
	// +spec:ASTS-279
	// +optional
	VolumeClaims []StatefulSetVolumeClaimStatus `json:"volumeClaims,omitempty"`
}

// StatefulSetProgress is what the status has in both versions.
//
// +spec:ASTS-320
type StatefulSetProgress struct {
	// ObservedGeneration is the metadata.generation that the status speaks of.
	// +spec:ASTS-304
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Replicas is the number of pods.
	// +spec:ASTS-012, ASTS-300
	// +required
	Replicas int32 `json:"replicas"`
	// ReadyReplicas is the number of ready pods.
	// +spec:ASTS-012, ASTS-300
	// +required
	ReadyReplicas int32 `json:"readyReplicas"`
	// AvailableReplicas is the number of available pods.
	// +spec:ASTS-012, ASTS-300
	// +required
	AvailableReplicas int32 `json:"availableReplicas"`
	// CurrentReplicas is the number of pods of the current revision.
	// +spec:ASTS-012, ASTS-300
	// +required
	CurrentReplicas int32 `json:"currentReplicas"`
	// UpdatedReplicas is the number of pods of the update revision.
	// +spec:ASTS-012, ASTS-300
	// +required
	UpdatedReplicas int32 `json:"updatedReplicas"`
	// CurrentRevision is the name of the revision of old pods.
	// +spec:ASTS-085
	// +optional
	CurrentRevision string `json:"currentRevision,omitempty"`
	// UpdateRevision is the name of the revision of the present template.
	// +spec:ASTS-082
	// +optional
	UpdateRevision string `json:"updateRevision,omitempty"`
	// CollisionCount counts names of revisions that were taken.
	// +spec:ASTS-084
	// +optional
	CollisionCount *int32 `json:"collisionCount,omitempty"`
	// Conditions tell what fails. Types: FailedCreatePod, FailedUpdatePod.
	// +spec:ASTS-306
	// +optional
	Conditions []StatefulSetCondition `json:"conditions,omitempty"`
	// LabelSelector is the text form of the selector, for the scale subresource.
	// +spec:ASTS-011
	// +optional
	LabelSelector string `json:"labelSelector,omitempty"`
}

// StatefulSetVolumeClaimStatus tells how many claims follow their template.
//
// +spec:ASTS-279
type StatefulSetVolumeClaimStatus struct {
	// VolumeClaimName is the name of the claim template.
	// +required
	VolumeClaimName string `json:"volumeClaimName"`
	// CompatibleReplicas is the number of pods whose claim is what the template wants, or larger.
	// +required
	CompatibleReplicas int32 `json:"compatibleReplicas"`
	// CompatibleReadyReplicas is the number of those whose volume has the size that the claim asks for.
	// +required
	CompatibleReadyReplicas int32 `json:"compatibleReadyReplicas"`
}

// StatefulSetConditionType is the type of a condition of a StatefulSet.
type StatefulSetConditionType string

// Condition types of a StatefulSet (ASTS-306).
const (
	// StatefulSetConditionFailedCreatePod holds the error of the last creation of a pod.
	StatefulSetConditionFailedCreatePod StatefulSetConditionType = "FailedCreatePod"
	// StatefulSetConditionFailedUpdatePod holds the error of the last repair of a pod.
	StatefulSetConditionFailedUpdatePod StatefulSetConditionType = "FailedUpdatePod"
)

// StatefulSetCondition is one condition of a StatefulSet.
type StatefulSetCondition struct {
	// Type is FailedCreatePod or FailedUpdatePod.
	// +required
	Type StatefulSetConditionType `json:"type"`
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

// StatefulSet keeps a number of pods, each with a name of its own and its own claims, and updates them in place or by recreation.
//
// +spec:ASTS-001, ASTS-010
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:resource:shortName=sts;asts
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.replicas,selectorpath=.status.labelSelector
// +kubebuilder:printcolumn:name="DESIRED",type="integer",JSONPath=".spec.replicas",description="Wanted number of pods"
// +kubebuilder:printcolumn:name="CURRENT",type="integer",JSONPath=".status.replicas",description="Pods"
// +kubebuilder:printcolumn:name="UPDATED",type="integer",JSONPath=".status.updatedReplicas",description="Pods of the update revision"
// +kubebuilder:printcolumn:name="READY",type="integer",JSONPath=".status.readyReplicas",description="Ready pods"
// +kubebuilder:printcolumn:name="AGE",type="date",JSONPath=".metadata.creationTimestamp",description="Time since creation"
// +kubebuilder:printcolumn:name="CONTAINERS",type="string",priority=1,JSONPath=".spec.template.spec.containers[*].name",description="Containers of the template"
// +kubebuilder:printcolumn:name="IMAGES",type="string",priority=1,JSONPath=".spec.template.spec.containers[*].image",description="Images of the template"
type StatefulSet struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is the wanted state.
	// +optional
	Spec StatefulSetSpec `json:"spec,omitzero"`
	// Status is the observed state.
	// +optional
	Status StatefulSetStatus `json:"status,omitzero"`
}

// Hub marks v1beta1 as the version that all others convert to.
func (*StatefulSet) Hub() {}

// StatefulSetList is a list of StatefulSets.
//
// +kubebuilder:object:root=true
type StatefulSetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	// Items are the StatefulSets.
	Items []StatefulSet `json:"items"`
}
