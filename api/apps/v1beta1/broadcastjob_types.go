package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/afloat-project/afloat/api/template"
)

// BroadcastJobSpec says what runs on the nodes, on how many at a time, and when the job ends.
type BroadcastJobSpec struct {
	// Parallelism is the number of pods that may be active at the same time: a number of 0 or more, or a percentage of status.desired,
	// rounded up. 0 starts none. Default 2147483647, which is no limit.
	// +spec:BJ-012, BJ-070
	// +optional
	Parallelism *intstr.IntOrString `json:"parallelism,omitempty"`
	// Template is the template of the pods: see "kubectl explain pod.spec". Its restartPolicy must be OnFailure or Never. It is stored as
	// it is written; fields that Afloat does not know are kept.
	// +spec:BJ-015, BJ-019, BJ-022, BJ-024
	// +required
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	Template template.PodTemplate `json:"template,omitzero"`
	// CompletionPolicy says when the job ends, and what follows.
	// +optional
	CompletionPolicy BroadcastJobCompletionPolicy `json:"completionPolicy,omitzero"`
	// Paused stops the creation and deletion of pods; those that run go on. Default false.
	// +spec:BJ-080
	// +optional
	Paused bool `json:"paused,omitempty"`
	// FailurePolicy says what a failed pod means for the job.
	// +optional
	FailurePolicy BroadcastJobFailurePolicy `json:"failurePolicy,omitzero"`
}

// BroadcastJobCompletionPolicy says when the job ends, and what follows.
type BroadcastJobCompletionPolicy struct {
	// Type is Always: the job ends when each eligible node has a finished pod; or Never: it also serves nodes that come later. Default
	// Always.
	// +spec:BJ-002, BJ-011, BJ-026
	// +optional
	Type CompletionPolicyType `json:"type,omitempty"`
	// ActiveDeadlineSeconds is the time after which the job fails if it has not ended, in seconds from status.startTime: 0 or more.
	// Absent means no limit. Not with type Never.
	// +spec:BJ-021, BJ-026, BJ-102
	// +optional
	ActiveDeadlineSeconds *int64 `json:"activeDeadlineSeconds,omitempty"`
	// TTLSecondsAfterFinished is the time after which a finished job is deleted with its pods, in seconds: 0 or more. Absent means never.
	// Not with type Never.
	// +spec:BJ-021, BJ-026, BJ-120
	// +optional
	TTLSecondsAfterFinished *int32 `json:"ttlSecondsAfterFinished,omitempty"`
}

// FailurePolicyType says what a failed pod means for a BroadcastJob.
type FailurePolicyType string

// Failure policies of a BroadcastJob (BJ-026).
const (
	// FailurePolicyFailFast fails the job, and deletes its active pods. It is the default (BJ-013, BJ-090).
	FailurePolicyFailFast FailurePolicyType = "FailFast"
	// FailurePolicyContinue counts failed pods and goes on with the other nodes (BJ-091).
	FailurePolicyContinue FailurePolicyType = "Continue"
	// FailurePolicyPause starts no more pods until somebody looked (BJ-092).
	FailurePolicyPause FailurePolicyType = "Pause"
)

// BroadcastJobFailurePolicy says what a failed pod means for the job.
type BroadcastJobFailurePolicy struct {
	// Type is FailFast: the job fails and its active pods are deleted; Continue: the other nodes are served; or Pause: no more pods are
	// started until the failed ones are deleted, or paused was set and unset, or the type changes. Default FailFast.
	// +spec:BJ-013, BJ-026, BJ-090, BJ-091, BJ-092, BJ-093, BJ-094
	// +optional
	Type FailurePolicyType `json:"type,omitempty"`
	// RestartLimit is how often the containers of one pod may restart, summed up, before the pod counts as failed: 0 or more. With
	// restartPolicy Never it has no effect. Default 0.
	// +spec:BJ-014, BJ-026, BJ-050, BJ-051, BJ-052
	// +optional
	RestartLimit int32 `json:"restartLimit,omitempty"`
}

// BroadcastJobPhase is what a BroadcastJob is doing.
type BroadcastJobPhase string

// Phases of a BroadcastJob (BJ-018).
const (
	// BroadcastJobRunning says that pods run or are awaited.
	BroadcastJobRunning BroadcastJobPhase = "running"
	// BroadcastJobPaused says that no pods are created or deleted.
	BroadcastJobPaused BroadcastJobPhase = "paused"
	// BroadcastJobCompleted says that each desired node had a finished pod.
	BroadcastJobCompleted BroadcastJobPhase = "completed"
	// BroadcastJobFailed says that a pod failed under FailFast, or that the deadline passed.
	BroadcastJobFailed BroadcastJobPhase = "failed"
)

// JobConditionType is the type of a condition of a job.
type JobConditionType string

// Condition types of a BroadcastJob (BJ-018).
const (
	// JobComplete says that the job is completed.
	JobComplete JobConditionType = "Complete"
	// JobFailed says that the job failed.
	JobFailed JobConditionType = "Failed"
)

// JobCondition is one condition of a job.
type JobCondition struct {
	// Type of the condition.
	// +required
	Type JobConditionType `json:"type"`
	// Status is True, False or Unknown.
	// +required
	Status corev1.ConditionStatus `json:"status"`
	// LastProbeTime is when the condition was set.
	// +optional
	LastProbeTime metav1.Time `json:"lastProbeTime,omitzero"`
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

// BroadcastJobStatus is the observed state of a BroadcastJob.
//
// +spec:BJ-140
type BroadcastJobStatus struct {
	// Conditions are Complete and Failed, each at most once.
	// +spec:BJ-141
	// +optional
	Conditions []JobCondition `json:"conditions,omitempty"`
	// StartTime is when the controller saw the job first. The deadline counts from here.
	// +optional
	StartTime *metav1.Time `json:"startTime,omitempty"`
	// CompletionTime is when the job completed or failed. The time to live counts from here.
	// +optional
	CompletionTime *metav1.Time `json:"completionTime,omitempty"`
	// Active is the number of pods that have not finished.
	// +spec:BJ-050
	// +optional
	Active int32 `json:"active"`
	// Succeeded is the number of pods that succeeded.
	// +optional
	Succeeded int32 `json:"succeeded"`
	// Failed is the number of pods that failed, or restarted too often.
	// +optional
	Failed int32 `json:"failed"`
	// Desired is the number of nodes that have, or should get, a pod of the job.
	// +spec:BJ-063
	// +optional
	Desired int32 `json:"desired"`
	// Phase is running, paused, completed or failed.
	// +optional
	Phase BroadcastJobPhase `json:"phase,omitempty"`
}

// BroadcastJob runs one pod to completion on every eligible node.
//
// +spec:BJ-001
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:resource:shortName=bcj
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Desired",type="integer",JSONPath=".status.desired",description="Nodes that have, or should get, a pod"
// +kubebuilder:printcolumn:name="Active",type="integer",JSONPath=".status.active",description="Pods that have not finished"
// +kubebuilder:printcolumn:name="Succeeded",type="integer",JSONPath=".status.succeeded",description="Pods that succeeded"
// +kubebuilder:printcolumn:name="Failed",type="integer",JSONPath=".status.failed",description="Pods that failed"
// +kubebuilder:printcolumn:name="AGE",type="date",JSONPath=".metadata.creationTimestamp",description="Time since creation"
type BroadcastJob struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what is asked for.
	// +optional
	Spec BroadcastJobSpec `json:"spec,omitzero"`
	// Status is the observed state.
	// +optional
	Status BroadcastJobStatus `json:"status,omitzero"`
}

// BroadcastJobList is a list of BroadcastJobs.
//
// +kubebuilder:object:root=true
type BroadcastJobList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	// Items are the jobs.
	Items []BroadcastJob `json:"items"`
}
