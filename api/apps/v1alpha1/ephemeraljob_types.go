package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/template"
)

// EphemeralJobSpec says which ephemeral containers are added to which pods.
type EphemeralJobSpec struct {
	// Selector selects the pods in the namespace of the job by their labels. It must not be empty and cannot be changed.
	// +spec:EJ-029, EJ-030, EJ-035
	// +required
	Selector *metav1.LabelSelector `json:"selector"`
	// Replicas is the number of pods that get the containers at most: 0 or more. Absent means all that match.
	// +spec:EJ-011, EJ-057
	// +optional
	Replicas *int32 `json:"replicas,omitempty"`
	// Parallelism is the number of pods whose containers may be unfinished at the same time: 0 or more. Default 1.
	// +spec:EJ-012, EJ-044
	// +optional
	Parallelism *int32 `json:"parallelism,omitempty"`
	// Template holds the containers.
	// +required
	Template EphemeralContainerTemplateSpec `json:"template"`
	// Paused adds containers to no further pods; those that run go on. Default false.
	// +spec:EJ-013, EJ-059
	// +optional
	Paused bool `json:"paused,omitempty"`
	// ActiveDeadlineSeconds is the time after which the job fails if it has not ended, in seconds from status.startTime: 0 or more.
	// Absent means no limit. Containers that run are not stopped.
	// +spec:EJ-014, EJ-060
	// +optional
	ActiveDeadlineSeconds *int64 `json:"activeDeadlineSeconds,omitempty"`
	// TTLSecondsAfterFinished is the time after which a finished job is deleted, in seconds: 0 or more. The containers stay in the pods.
	// Default 1800.
	// +spec:EJ-015, EJ-042
	// +optional
	TTLSecondsAfterFinished *int32 `json:"ttlSecondsAfterFinished,omitempty"`
}

// EphemeralContainerTemplateSpec holds the containers.
type EphemeralContainerTemplateSpec struct {
	// EphemeralContainers are added to each pod: see "kubectl explain pod.spec.ephemeralContainers". They cannot be changed. The list is
	// stored as it is written.
	// +spec:EJ-010, EJ-025, EJ-026, EJ-027, EJ-028, EJ-030
	// +required
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	EphemeralContainers template.EphemeralContainers `json:"ephemeralContainers"`
}

// EphemeralJobPhase is what an EphemeralJob is doing.
type EphemeralJobPhase string

// Phases of an EphemeralJob (EJ-016, EJ-058).
const (
	// EphemeralJobWaiting says that no container runs yet, or no pod matches.
	EphemeralJobWaiting EphemeralJobPhase = "Waiting"
	// EphemeralJobRunning says that containers run.
	EphemeralJobRunning EphemeralJobPhase = "Running"
	// EphemeralJobSucceeded says that all containers ended with 0.
	EphemeralJobSucceeded EphemeralJobPhase = "Succeeded"
	// EphemeralJobFailed says that all pods are done and some failed, or that the deadline passed.
	EphemeralJobFailed EphemeralJobPhase = "Failed"
	// EphemeralJobPaused says that no further pods get containers.
	EphemeralJobPaused EphemeralJobPhase = "Paused"
	// EphemeralJobError says that the job cannot be carried out.
	EphemeralJobError EphemeralJobPhase = "Error"
	// EphemeralJobUnknown is a phase that other releases write.
	EphemeralJobUnknown EphemeralJobPhase = "Unknown"
)

// Condition types of an EphemeralJob (EJ-017).
const (
	// EphemeralJobConditionInitialized says that the controller saw the job.
	EphemeralJobConditionInitialized v1beta1.JobConditionType = "Initialized"
	// EphemeralJobConditionMatchedEmpty says that no pod matches.
	EphemeralJobConditionMatchedEmpty v1beta1.JobConditionType = "MatchedEmpty"
	// EphemeralJobConditionSucceeded says that the job succeeded.
	EphemeralJobConditionSucceeded v1beta1.JobConditionType = "JobSucceeded"
	// EphemeralJobConditionFailed says that the job, or a pod of it, failed.
	EphemeralJobConditionFailed v1beta1.JobConditionType = "JobFailed"
	// EphemeralJobConditionError says that the job cannot be carried out.
	EphemeralJobConditionError v1beta1.JobConditionType = "JobError"
)

// EphemeralJobStatus is the observed state of an EphemeralJob.
type EphemeralJobStatus struct {
	// Conditions are Initialized, MatchedEmpty, JobSucceeded, JobFailed and JobError, each at most once.
	// +spec:EJ-017, EJ-063
	// +optional
	Conditions []v1beta1.JobCondition `json:"conditions,omitempty"`
	// StartTime is when the controller saw the job first. The deadline counts from here.
	// +spec:EJ-043
	// +optional
	StartTime *metav1.Time `json:"startTime,omitempty"`
	// CompletionTime is when the job ended. The time to live counts from here.
	// +spec:EJ-058
	// +optional
	CompletionTime *metav1.Time `json:"completionTime,omitempty"`
	// Phase is Waiting, Running, Succeeded, Failed, Paused or Error.
	// +spec:EJ-058
	// +optional
	Phase EphemeralJobPhase `json:"phase,omitempty"`
	// Matches is the number of pods that get the containers.
	// +spec:EJ-055
	// +optional
	Matches int32 `json:"match"`
	// Succeeded is the number of pods all whose containers ended with 0.
	// +spec:EJ-055
	// +optional
	Succeeded int32 `json:"succeeded"`
	// Failed is the number of pods of which a container failed.
	// +spec:EJ-055, EJ-056
	// +optional
	Failed int32 `json:"failed"`
	// Running is the number of pods of which a container runs.
	// +spec:EJ-055
	// +optional
	Running int32 `json:"running"`
	// Waiting is the number of pods of which a container waits for its start.
	// +spec:EJ-055
	// +optional
	Waiting int32 `json:"waiting"`
}

// EphemeralJob adds ephemeral containers to running pods, and collects their results.
//
// +spec:EJ-001
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:resource:shortName=ejob
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="STATUS",type="string",JSONPath=".status.phase",description="What the job is doing"
// +kubebuilder:printcolumn:name="MATCH",type="integer",JSONPath=".status.match",description="Pods that get the containers"
// +kubebuilder:printcolumn:name="SUCCEED",type="integer",JSONPath=".status.succeeded",description="Pods that succeeded"
// +kubebuilder:printcolumn:name="FAILED",type="integer",JSONPath=".status.failed",description="Pods that failed"
// +kubebuilder:printcolumn:name="RUNNING",type="integer",JSONPath=".status.running",description="Pods whose containers run"
// +kubebuilder:printcolumn:name="WAITING",type="integer",JSONPath=".status.waiting",description="Pods whose containers wait"
// +kubebuilder:printcolumn:name="AGE",type="date",JSONPath=".metadata.creationTimestamp",description="Time since creation"
type EphemeralJob struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what is asked for.
	// +optional
	Spec EphemeralJobSpec `json:"spec,omitzero"`
	// Status is the observed state.
	// +optional
	Status EphemeralJobStatus `json:"status,omitzero"`
}

// EphemeralJobList is a list of EphemeralJobs.
//
// +kubebuilder:object:root=true
type EphemeralJobList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	// Items are the jobs.
	Items []EphemeralJob `json:"items"`
}
