// Package pub holds the well-known names of the API: labels, annotations, conditions and states that several kinds share, or that users and
// their tools read on pods. They are those of the reference (see docs/spec); changing one breaks users.
package pub

// Labels of pods, claims and revisions.
const (
	// CloneSetInstanceID pairs a pod of a CloneSet with its claims (CS-041).
	CloneSetInstanceID = "apps.kruise.io/cloneset-instance-id"
	// OwnedByStatefulSet on a PVC names the StatefulSet that changed its size (ASTS-273).
	OwnedByStatefulSet = "apps.kruise.io/owned-by-asts"
	// SpecifiedDelete on a pod, with any value, asks its workload to delete it first (CS-130).
	SpecifiedDelete = "apps.kruise.io/specified-delete"
	// KeepClaims: "true" on a pod keeps its claims for the pod that replaces it when it is recreated or specified for deletion (CS-337).
	KeepClaims = "apps.kruise.io/keep-pvc"
	// LifecycleState holds the LifecycleStateType of a pod (IPU-150).
	LifecycleState = "lifecycle.apps.kruise.io/state"
	// ControllerRevisionHash names the revision that a pod carries (CS-050, IPU-170).
	ControllerRevisionHash = "controller-revision-hash"
	// PodTemplateHash is the short hash of the revision that a pod of a CloneSet carries (CS-050).
	PodTemplateHash = "pod-template-hash"
	// RevisionHash is the hash of a ControllerRevision, as a label on it (CS-082).
	RevisionHash = "controller.kubernetes.io/hash"
	// CloneSetExcludePreparingDelete is the v1alpha1 form of scaleStrategy.excludePreparingDelete (CS-116).
	CloneSetExcludePreparingDelete = "apps.kruise.io/cloneset-scaling-exclude-preparing-delete"
	// DeletionProtection guards an object against deletion (CS-034).
	DeletionProtection = "policy.kruise.io/delete-protection"
)

// Annotations.
const (
	// LifecycleTimestamp is the RFC 3339 time of the last change of the lifecycle state (IPU-150).
	LifecycleTimestamp = "lifecycle.apps.kruise.io/timestamp"
	// InPlaceUpdateState records the last in-place update of a pod as JSON (IPU-060).
	InPlaceUpdateState = "apps.kruise.io/inplace-update-state"
	// InPlaceUpdateStateLegacy is the key that old releases used (IPU-069); it is read, never written.
	InPlaceUpdateStateLegacy = "inplace-update-state"
	// InPlaceUpdateGrace holds the content of an in-place update while its grace period runs (IPU-068).
	InPlaceUpdateGrace = "apps.kruise.io/inplace-update-grace"
	// InPlaceUpdateGraceLegacy is the key that old releases used (IPU-069); it is read, never written.
	InPlaceUpdateGraceLegacy = "inplace-update-grace"
	// InPlaceUpdateRestarts counts by container, as JSON, the restarts that updates in place caused (IPU-320).
	InPlaceUpdateRestarts = "apps.kruise.io/inplace-update-restarts"
	// InPlaceUpdateKeepReady in a template lists containers, separated by commas, whose update leaves the pod ready (IPU-308).
	InPlaceUpdateKeepReady = "apps.kruise.io/inplace-update-keep-ready"
	// InPlaceUpdateInitContainers: "true" in a template lets images of ordinary init containers change in place; they take effect
	// when the pod's sandbox starts the next time (IPU-318).
	InPlaceUpdateInitContainers = "apps.kruise.io/inplace-update-init-containers"
	// RestartedAt in a template restarts all containers in place when its value changes (IPU-322).
	RestartedAt = "apps.kruise.io/restarted-at"
	// RuntimeContainersMeta is written by the node daemon (IPU-123).
	RuntimeContainersMeta = "apps.kruise.io/runtime-containers-meta"
	// ClaimTemplateFingerprint on a ControllerRevision of a CloneSet (IPU-045).
	ClaimTemplateFingerprint = "kruise.io/cloneset-volumeclaimtemplate-hash"
	// ClaimTemplates on a ControllerRevision of a CloneSet remembers the claim templates of its pods, as JSON (CS-336).
	ClaimTemplates = "apps.kruise.io/cloneset-volumeclaimtemplates"
	// ResizeClaims: "true" on a CloneSet grows existing claims with their templates (CS-338).
	ResizeClaims = "apps.kruise.io/cloneset-resize-pvc"
	// PublishConditions: "true" on a CloneSet publishes the conditions Available and Progressing without a deadline too (CS-363).
	PublishConditions = "apps.kruise.io/publish-conditions"
	// PodDeletionCost orders pods at scale-in; lower goes first (CS-144).
	PodDeletionCost = "controller.kubernetes.io/pod-deletion-cost"
	// DaemonSetStrictMaxUnavailable "true" on a DaemonSet counts every node without an available pod against maxUnavailable (ADS-132).
	DaemonSetStrictMaxUnavailable = "apps.kruise.io/daemonset-strict-max-unavailable"
	// DaemonSetIgnoreNotReadyNodesAfter on a DaemonSet is a duration such as 5m: nodes that are not ready for as long are left out of
	// rollouts (ADS-136).
	DaemonSetIgnoreNotReadyNodesAfter = "apps.kruise.io/daemonset-ignore-not-ready-nodes-after"
	// DaemonSetTemplateGeneration on a DaemonSet, and PodTemplateGeneration on its pods, are kept for those that read them (ADS-063,
	// ADS-112).
	DaemonSetTemplateGeneration = "deprecated.daemonset.template.generation"
	PodTemplateGeneration       = "pod-template-generation"
	// ConversionData keeps what has no place in the other API version; conversion writes it and drops it on the way back (CS-256).
	ConversionData = "apps.kruise.io/conversion-data"
	// V1beta1OnlyFields on a StatefulSet or DaemonSet of v1alpha1 has, as JSON, the fields of the spec that only v1beta1 has (ASTS-322,
	// ADS-215).
	V1beta1OnlyFields = "apps.kruise.io/v1beta1-only-fields"
	// ProgressiveCreatePod: "true" on a DaemonSet of v1alpha1 is the field scaleStrategy.partitionedScaling of v1beta1 (ADS-213).
	ProgressiveCreatePod = "daemonset.kruise.io/progressive-create-pod"

	// ImagePreDownloadParallelism, ImagePreDownloadTimeoutSeconds and ImagePreDownloadMinUpdatedReadyPods are the v1alpha1
	// form of the fields of the same names (CS-203, CS-204).
	ImagePreDownloadParallelism         = "apps.kruise.io/image-predownload-parallelism"
	ImagePreDownloadTimeoutSeconds      = "apps.kruise.io/image-predownload-timeout-seconds"
	ImagePreDownloadMinUpdatedReadyPods = "apps.kruise.io/image-predownload-min-updated-ready-pods"

	// PreDownloadCreated and PreDownloadIgnored: "true" on a ControllerRevision means that the jobs that pull its images ahead were
	// created, or that they are not needed (CS-206).
	PreDownloadCreated = "apps.kruise.io/pre-predownload-created"
	PreDownloadIgnored = "apps.kruise.io/image-predownload-ignored"
)

// Of AdvancedCronJobs and what they create (docs/spec/advanced-cron-job.md).
const (
	// ScheduledAt on what an AdvancedCronJob created is the time of its schedule, in RFC 3339 (ACJ-032, ACJ-070).
	ScheduledAt = "apps.kruise.io/scheduled-at"
	// UnrecordedRun is the finalizer of what an AdvancedCronJob created, until it has noted the run in its status: whatever ends the child
	// before, the run is known (ACJ-092).
	UnrecordedRun = "apps.kruise.io/unrecorded-run"
	// ImageListTemplate on an AdvancedCronJob of v1alpha1 has spec.template.imageListPullJobTemplate of v1beta1, as JSON (ACJ-111).
	ImageListTemplate = "apps.kruise.io/v1beta1-imagelistpulljob-template"
)

// Environment variables of containers.
const (
	// ContainerBarrierEnv holds a container back until those of higher launch priority run (IPU-100).
	ContainerBarrierEnv = "KRUISE_CONTAINER_BARRIER"
)

// Pod conditions, used as readiness gates too.
const (
	// InPlaceUpdateReady is False while a pod is being updated in place (IPU-016).
	InPlaceUpdateReady = "InPlaceUpdateReady"
	// KruisePodReady is the readiness gate with several writers (IPU-140).
	KruisePodReady = "KruisePodReady"
)

// LifecycleStateType is the value of the label LifecycleState (IPU-150).
type LifecycleStateType string

// Lifecycle states of a pod (IPU-150).
const (
	LifecycleStatePreparingNormal LifecycleStateType = "PreparingNormal"
	LifecycleStateNormal          LifecycleStateType = "Normal"
	LifecycleStatePreparingUpdate LifecycleStateType = "PreparingUpdate"
	LifecycleStateUpdating        LifecycleStateType = "Updating"
	LifecycleStateUpdated         LifecycleStateType = "Updated"
	LifecycleStatePreparingDelete LifecycleStateType = "PreparingDelete"
)

// Labels and annotations of PodUnavailableBudgets and their pods (docs/spec/protection.md).
const (
	// RelatedBudget on a pod names the budget that covers it; RelatedBudgetLegacy is the key that old releases used. Both are written
	// together (PUB-070).
	RelatedBudget       = "pub.kruise.io/related-pub"
	RelatedBudgetLegacy = "kruise.io/related-pub"
	// NoProtect with a true value exempts a pod from all budgets (PUB-086).
	NoProtect = "pub.kruise.io/no-protect"
	// UnavailablePodPrefix begins labels of pods that count as out of service although they are ready (PUB-055).
	UnavailablePodPrefix = "unavailable-pod.kruise.io/"
	// BudgetOperations on a budget lists the operations that it protects from, separated by commas (PUB-012).
	BudgetOperations = "kruise.io/pub-protect-operations"
	// BudgetTotalReplicas on a budget is protectTotalReplicas of v1beta1 (PUB-013).
	BudgetTotalReplicas = "pub.kruise.io/protect-total-replicas"
	// BudgetIgnoredPods on a budget holds ignoredPodSelector of v1beta1, as JSON (PUB-122).
	BudgetIgnoredPods = "pub.kruise.io/ignored-pod-selector"
	// BudgetWindows on a budget lists times in which other numbers hold, as JSON (PUB-140).
	BudgetWindows = "pub.kruise.io/windows"
)
