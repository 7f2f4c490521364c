package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/afloat-project/afloat/api/pub"
)

// SidecarSetSpec says which containers are added to which pods, and how they are kept current.
type SidecarSetSpec struct {
	SidecarSetTemplate `json:",inline"`
	// CustomVersion names the revision of this spec, for injectionStrategy.revision. It must be valid as the value of a label.
	// +spec:SS-183, SS-186
	// +optional
	CustomVersion string `json:"customVersion,omitempty"`
}

// SidecarSetTemplate is what both versions have in common.
//
// +spec:SS-270
type SidecarSetTemplate struct {
	// Selector selects the pods by their labels. Required and not empty.
	// +spec:SS-032
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
	// NamespaceSelector selects the namespaces of the pods; absent means all.
	// +spec:SS-080
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
	// InitContainers are added to the pods' init containers at creation; those with restartPolicy Always are native sidecars.
	// +optional
	InitContainers []SidecarContainer `json:"initContainers,omitempty"`
	// Containers are added to the pods' containers at creation. Their images are changed in place.
	// +optional
	Containers []SidecarContainer `json:"containers,omitempty"`
	// Volumes that the containers mount; those that are mounted are added to the pods. Unknown fields are kept.
	// +spec:SS-115
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	Volumes SidecarVolumes `json:"volumes,omitzero"`
	// UpdateStrategy says how pods are moved to changed images.
	// +optional
	UpdateStrategy SidecarSetUpdateStrategy `json:"updateStrategy,omitzero"`
	// InjectionStrategy says what new pods get.
	// +optional
	InjectionStrategy SidecarSetInjectionStrategy `json:"injectionStrategy,omitzero"`
	// ImagePullSecrets are added to the pods at creation.
	// +spec:SS-119
	// +optional
	ImagePullSecrets []corev1.LocalObjectReference `json:"imagePullSecrets,omitempty"`
	// RevisionHistoryLimit is the number of revisions to keep: 0 or more. Default 10.
	// +spec:SS-187
	// +optional
	RevisionHistoryLimit *int32 `json:"revisionHistoryLimit,omitempty"`
	// PatchPodMetadata sets annotations of the pods: those that the administrator allows in ConfigMap kruise-configuration.
	// +spec:SS-150
	// +optional
	PatchPodMetadata []SidecarSetPatchPodMetadata `json:"patchPodMetadata,omitempty"`
}

// SidecarContainerSpec is a container with what a sidecar needs beyond. The order of the fields is that of the hash.
//
// +spec:SS-017
type SidecarContainerSpec struct {
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	corev1.Container `json:",inline"`
	// PodInjectPolicy is BeforeAppContainer or AfterAppContainer: the container stands before or behind those of the pod. Default
	// BeforeAppContainer, of init containers AfterAppContainer.
	// +spec:SS-011, SS-102
	// +optional
	PodInjectPolicy PodInjectPolicyType `json:"podInjectPolicy,omitempty"`
	// UpgradeStrategy says how the image is changed.
	// +optional
	UpgradeStrategy SidecarContainerUpgradeStrategy `json:"upgradeStrategy"`
	// ShareVolumePolicy says whether the container mounts what the pod's containers mount.
	// +spec:SS-116
	// +optional
	ShareVolumePolicy ShareVolumePolicy `json:"shareVolumePolicy"`
	// ShareVolumeDevicePolicy says whether the container gets the block devices that the pod's containers have.
	// +spec:SS-118
	// +optional
	ShareVolumeDevicePolicy *ShareVolumePolicy `json:"shareVolumeDevicePolicy,omitempty"`
	// TransferEnv copies environment variables of the pod's containers.
	// +spec:SS-111
	// +optional
	TransferEnv []TransferEnvVar `json:"transferEnv,omitempty"`
	// ResourcesPolicy derives the resources from those of the pod's containers.
	// +spec:SS-130
	// +optional
	ResourcesPolicy *ResourcesPolicy `json:"resourcesPolicy,omitempty"`
}

// PodInjectPolicyType is a place among the containers of a pod.
type PodInjectPolicyType string

// Places of injected containers (SS-102).
const (
	BeforeAppContainerType PodInjectPolicyType = "BeforeAppContainer"
	AfterAppContainerType  PodInjectPolicyType = "AfterAppContainer"
)

// SidecarContainerUpgradeType says how the image of a sidecar is changed.
type SidecarContainerUpgradeType string

// Ways to change the image: by restarting the container, or by a second container that takes over (SS-125).
const (
	SidecarContainerColdUpgrade SidecarContainerUpgradeType = "ColdUpgrade"
	SidecarContainerHotUpgrade  SidecarContainerUpgradeType = "HotUpgrade"
)

// SidecarContainerUpgradeStrategy says how the image of a sidecar is changed.
type SidecarContainerUpgradeStrategy struct {
	// UpgradeType is ColdUpgrade: the container is restarted with its new image; or HotUpgrade: a second container takes over. It cannot
	// be changed. Default ColdUpgrade.
	// +spec:SS-011, SS-056
	// +optional
	UpgradeType SidecarContainerUpgradeType `json:"upgradeType,omitempty"`
	// HotUpgradeEmptyImage is the image of the container that stands by. Required with HotUpgrade, and another than image.
	// +spec:SS-050
	// +optional
	HotUpgradeEmptyImage string `json:"hotUpgradeEmptyImage,omitempty"`
}

// ShareVolumePolicyType switches sharing on or off.
type ShareVolumePolicyType string

// Sharing of volumes (SS-116).
const (
	ShareVolumePolicyEnabled  ShareVolumePolicyType = "enabled"
	ShareVolumePolicyDisabled ShareVolumePolicyType = "disabled"
)

// ShareVolumePolicy says whether a sidecar gets the mounts or devices of the pod's containers.
type ShareVolumePolicy struct {
	// Type is enabled or disabled. Default disabled.
	// +spec:SS-011
	// +optional
	Type ShareVolumePolicyType `json:"type,omitempty"`
}

// TransferEnvVar names environment variables to copy.
//
// +spec:SS-111, SS-112
type TransferEnvVar struct {
	// SourceContainerName is the container of the pod to copy from.
	// +optional
	SourceContainerName string `json:"sourceContainerName,omitempty"`
	// SourceContainerNameFrom finds that container's name in a label or annotation of the pod, and wins.
	// +optional
	SourceContainerNameFrom *SourceContainerNameSource `json:"sourceContainerNameFrom,omitempty"`
	// EnvName is the name of the variable.
	// +optional
	EnvName string `json:"envName,omitempty"`
	// EnvNames are more names.
	// +optional
	EnvNames []string `json:"envNames,omitempty"`
}

// SourceContainerNameSource says where the name of a container is found.
type SourceContainerNameSource struct {
	// FieldRef is metadata.labels['<key>'] or metadata.annotations['<key>'].
	// +spec:SS-036
	// +optional
	FieldRef *corev1.ObjectFieldSelector `json:"fieldRef,omitempty"`
}

// TargetContainersModeType says how the resources of several containers become one value.
type TargetContainersModeType string

// Modes of ResourcesPolicy (SS-132).
const (
	TargetContainersModeSum TargetContainersModeType = "sum"
	TargetContainersModeMax TargetContainersModeType = "max"
)

// ResourcesPolicy derives the resources of a sidecar from those of the pod's containers, at creation.
//
// +spec:SS-130 to SS-142
type ResourcesPolicy struct {
	// TargetContainersMode is sum or max: how the resources of several containers become one value.
	// +required
	// +kubebuilder:validation:Enum=sum;max
	TargetContainersMode TargetContainersModeType `json:"targetContainersMode"`
	// TargetContainersNameRegex selects the containers by an unanchored regular expression. Default .*.
	// +spec:SS-012
	// +optional
	// +kubebuilder:default=".*"
	TargetContainersNameRegex string `json:"targetContainersNameRegex,omitempty"`
	// ResourcesExpr holds the expressions: of limits, requests or both.
	// +required
	ResourcesExpr ResourcesExpr `json:"resourcesExpr"`
}

// ResourcesExpr holds expressions of limits and of requests.
type ResourcesExpr struct {
	// Limits of the sidecar, from the limits of the containers.
	// +optional
	Limits *ResourceExprLimits `json:"limits,omitempty"`
	// Requests of the sidecar, from the requests of the containers.
	// +optional
	Requests *ResourceExprRequests `json:"requests,omitempty"`
}

// ResourceExprLimits holds expressions of limits.
//
// +spec:SS-138
type ResourceExprLimits struct {
	// CPU is an expression of cpu, in cores, such as cpu*50%.
	// +optional
	CPU string `json:"cpu,omitempty"`
	// Memory is an expression of memory, in bytes, such as max(memory/4, 64Mi).
	// +optional
	Memory string `json:"memory,omitempty"`
}

// ResourceExprRequests holds expressions of requests.
//
// +spec:SS-138
type ResourceExprRequests ResourceExprLimits

// SidecarSetPatchPolicyType says what becomes of an annotation that a pod has already.
type SidecarSetPatchPolicyType string

// Policies of annotations (SS-150).
const (
	// SidecarSetRetainPatchPolicy keeps the value of the pod.
	SidecarSetRetainPatchPolicy SidecarSetPatchPolicyType = "Retain"
	// SidecarSetOverwritePatchPolicy replaces it.
	SidecarSetOverwritePatchPolicy SidecarSetPatchPolicyType = "Overwrite"
	// SidecarSetMergePatchJSONPatchPolicy merges both as JSON.
	SidecarSetMergePatchJSONPatchPolicy SidecarSetPatchPolicyType = "MergePatchJson"
)

// SidecarSetPatchPodMetadata sets annotations of pods.
//
// +spec:SS-150
type SidecarSetPatchPodMetadata struct {
	// Annotations to set.
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`
	// PatchPolicy says what becomes of an annotation that the pod has: Retain keeps it, Overwrite replaces it, MergePatchJson merges both
	// as JSON objects. Default Retain.
	// +spec:SS-010
	// +optional
	PatchPolicy SidecarSetPatchPolicyType `json:"patchPolicy,omitempty"`
}

// SidecarSetInjectRevisionPolicy says which pods get a named revision.
type SidecarSetInjectRevisionPolicy string

// Policies of named revisions: all new pods get it, or a share of them as large as the partition (SS-173, SS-174).
const (
	AlwaysSidecarSetInjectRevisionPolicy  SidecarSetInjectRevisionPolicy = "Always"
	PartialSidecarSetInjectRevisionPolicy SidecarSetInjectRevisionPolicy = "Partial"
)

// SidecarSetInjectRevision names a revision.
//
// +spec:SS-171
type SidecarSetInjectRevision struct {
	// CustomVersion selects the newest revision that was made with this customVersion. This or revisionName is required.
	// +optional
	CustomVersion *string `json:"customVersion,omitempty"`
	// RevisionName is the name of a ControllerRevision of this SidecarSet. It wins over customVersion.
	// +optional
	RevisionName *string `json:"revisionName,omitempty"`
	// Policy is Always: all new pods get the revision; or Partial: as large a share of them as updateStrategy.partition. Default Always.
	// +spec:SS-010
	// +optional
	// +kubebuilder:validation:Enum=Always;Partial
	// +kubebuilder:default=Always
	Policy SidecarSetInjectRevisionPolicy `json:"policy,omitempty"`
}

// SidecarSetInjectionStrategy says what new pods get.
type SidecarSetInjectionStrategy struct {
	// Paused leaves new pods without these sidecars; those that have them are still kept current. Default false.
	// +spec:SS-091
	// +optional
	Paused bool `json:"paused,omitempty"`
	// Revision is what new pods get instead of the latest spec.
	// +spec:SS-170
	// +optional
	Revision *SidecarSetInjectRevision `json:"revision,omitempty"`
}

// SidecarSetUpdateStrategyType says whether running pods are changed.
type SidecarSetUpdateStrategyType string

// Update strategy types of a SidecarSet (SS-039).
const (
	NotUpdateSidecarSetStrategyType     SidecarSetUpdateStrategyType = "NotUpdate"
	RollingUpdateSidecarSetStrategyType SidecarSetUpdateStrategyType = "RollingUpdate"
)

// SidecarSetUpdateStrategy says how pods are moved to changed images.
type SidecarSetUpdateStrategy struct {
	// Type is RollingUpdate, or NotUpdate: running pods are never changed. Default RollingUpdate.
	// +spec:SS-010
	// +optional
	Type SidecarSetUpdateStrategyType `json:"type,omitempty"`
	// Paused stops updates of running pods; new pods get the latest sidecars all the same. Default false.
	// +spec:SS-220
	// +optional
	Paused bool `json:"paused,omitempty"`
	// Selector selects the pods that are updated; absent means all. Not together with partition.
	// +spec:SS-210, SS-037
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
	// Partition is how many pods are not updated: a number, or a percentage of the matched pods such as 20%. Not together with selector.
	// Default 0.
	// +spec:SS-217
	// +optional
	Partition *intstr.IntOrString `json:"partition,omitempty"`
	// MaxUnavailable is how many pods may be unavailable because of updates: a number, or a percentage of the matched pods. Default 1.
	// +spec:SS-218
	// +optional
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`
	// PriorityStrategy puts pods first by their labels.
	// +spec:SS-213
	// +optional
	PriorityStrategy *pub.UpdatePriorityStrategy `json:"priorityStrategy,omitempty"`
	// ScatterStrategy spreads pods of given labels over the update.
	// +spec:SS-214
	// +optional
	ScatterStrategy []pub.UpdateScatterTerm `json:"scatterStrategy,omitempty"`
}

// SidecarSetStatus is the observed state.
type SidecarSetStatus struct {
	// ObservedGeneration is the generation of the spec that the status is of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// MatchedPods is the number of pods that have the sidecars.
	// +spec:SS-200
	// +required
	MatchedPods int32 `json:"matchedPods"`
	// UpdatedPods is the number of those that have the latest ones.
	// +spec:SS-204
	// +required
	UpdatedPods int32 `json:"updatedPods"`
	// ReadyPods is the number of those that are ready.
	// +required
	ReadyPods int32 `json:"readyPods"`
	// UpdatedReadyPods is the number of those that are both.
	// +optional
	UpdatedReadyPods int32 `json:"updatedReadyPods,omitempty"`
	// LatestRevision is the name of the ControllerRevision of the present spec.
	// +optional
	LatestRevision string `json:"latestRevision,omitempty"`
	// CollisionCount counts names of revisions that were taken.
	// +spec:SS-185
	// +optional
	CollisionCount *int32 `json:"collisionCount,omitempty"`
}

// SidecarSet adds containers to pods and keeps their images current.
//
// +spec:SS-001, SS-002
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
// +kubebuilder:printcolumn:name="MATCHED",type="integer",JSONPath=".status.matchedPods",description="Pods that have the sidecars"
// +kubebuilder:printcolumn:name="UPDATED",type="integer",JSONPath=".status.updatedPods",description="Pods that have the latest ones"
// +kubebuilder:printcolumn:name="READY",type="integer",JSONPath=".status.readyPods",description="Pods that are ready"
// +kubebuilder:printcolumn:name="AGE",type="date",JSONPath=".metadata.creationTimestamp",description="Time since creation"
type SidecarSet struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what is wanted.
	// +optional
	Spec SidecarSetSpec `json:"spec,omitzero"`
	// Status is what is.
	// +optional
	Status SidecarSetStatus `json:"status,omitzero"`
}

// SidecarSetList is a list of SidecarSets.
//
// +kubebuilder:object:root=true
type SidecarSetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	// Items are the SidecarSets.
	Items []SidecarSet `json:"items"`
}
