package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// ImagePullJobSpec says which image is to be pulled, where and how.
type ImagePullJobSpec struct {
	// Image to pull: a name with a tag or a digest, such as nginx:1.27.
	// +required
	Image                string `json:"image"`
	ImagePullJobTemplate `json:",inline"`
}

// ImagePullJobTemplate is what ImagePullJobs and ImageListPullJobs have in common.
type ImagePullJobTemplate struct {
	// PullSecrets are secrets in the namespace of the job, at most 32. They cannot be changed in an ImagePullJob.
	// +spec:IMG-110, IMG-033
	// +optional
	PullSecrets []string `json:"pullSecrets,omitempty"`
	// Selector selects nodes, by names or by labels; absent or empty means all. Not together with podSelector.
	// +spec:IMG-072, IMG-035
	// +optional
	Selector *ImagePullJobNodeSelector `json:"selector,omitempty"`
	// PodSelector selects the nodes of the pods in the namespace of the job that match it. Not together with selector.
	// +spec:IMG-070
	// +optional
	PodSelector *ImagePullJobPodSelector `json:"podSelector,omitempty"`
	// Parallelism is the number of nodes that pull at the same time: 0 or more, no percentage; 0 pauses the job. Default 1.
	// +spec:IMG-017
	// +optional
	Parallelism *intstr.IntOrString `json:"parallelism,omitempty"`
	// PullPolicy holds limits of the pull on each node.
	// +optional
	PullPolicy *PullPolicy `json:"pullPolicy,omitempty"`
	// CompletionPolicy says when the job ends.
	// +required
	CompletionPolicy CompletionPolicy `json:"completionPolicy"`
	// SandboxConfig is passed to the runtime with each pull. At most 4096 bytes.
	// +spec:IMG-018
	// +optional
	SandboxConfig *SandboxConfig `json:"sandboxConfig,omitempty"`
	// ImagePullPolicy is Always: the registry is asked each time; or IfNotPresent: nodes that have the image pull nothing. Default
	// IfNotPresent.
	// +spec:IMG-014
	// +optional
	ImagePullPolicy ImagePullPolicy `json:"imagePullPolicy,omitempty"`
}

// ImagePullJobNodeSelector selects nodes by name or by label.
type ImagePullJobNodeSelector struct {
	// Names of nodes, each once. Not together with matchLabels and matchExpressions.
	// +spec:IMG-034
	// +optional
	Names []string `json:"names,omitempty"`

	metav1.LabelSelector `json:",inline"`
}

// ImagePullJobPodSelector selects pods, and with them their nodes.
//
// +spec:IMG-070
type ImagePullJobPodSelector struct {
	metav1.LabelSelector `json:",inline"`
}

// PullPolicy holds limits of the pull on each node.
type PullPolicy struct {
	// TimeoutSeconds limits each attempt, in seconds. Default 600, or activeDeadlineSeconds if that is shorter.
	// +spec:IMG-031
	// +optional
	TimeoutSeconds *int32 `json:"timeoutSeconds,omitempty"`
	// BackoffLimit is the number of attempts after the first. Default 3.
	// +spec:IMG-031
	// +optional
	BackoffLimit *int32 `json:"backoffLimit,omitempty"`
}

// CompletionPolicyType says when a job ends.
//
// +spec:IMG-016
type CompletionPolicyType string

// Completion policies (IMG-016).
const (
	// CompletionAlways ends a job when every node has a result. It is the default (IMG-031, BJ-011).
	CompletionAlways CompletionPolicyType = "Always"
	// CompletionNever keeps a job running: it serves new nodes, too, and one that pulls images does so again about daily (BJ-002).
	CompletionNever CompletionPolicyType = "Never"
)

// CompletionPolicy says when a job ends, and what follows.
type CompletionPolicy struct {
	// Type is Always: the job ends when every node has a result; or Never: it pulls again about daily, and on new nodes. Default Always.
	// +spec:IMG-031
	// +optional
	Type CompletionPolicyType `json:"type,omitempty"`
	// ActiveDeadlineSeconds is the time after which a job of type Always is ended, in seconds: no less than pullPolicy.timeoutSeconds.
	// Absent means no limit. Not with type Never.
	// +spec:IMG-093
	// +optional
	ActiveDeadlineSeconds *int64 `json:"activeDeadlineSeconds,omitempty"`
	// TTLSecondsAfterFinished is the time after which a finished job is deleted, in seconds. Absent means never. Not with type Never.
	// +spec:IMG-081
	// +optional
	TTLSecondsAfterFinished *int32 `json:"ttlSecondsAfterFinished,omitempty"`
}

// ImagePullJobStatus is the observed state of a job.
//
// +spec:IMG-084
type ImagePullJobStatus struct {
	// StartTime is when the controller saw the job first.
	// +optional
	StartTime *metav1.Time `json:"startTime,omitempty"`
	// CompletionTime is when the job ended.
	// +optional
	CompletionTime *metav1.Time `json:"completionTime,omitempty"`
	// Desired is the number of selected nodes.
	// +required
	Desired int32 `json:"desired"`
	// Active is the number of nodes that have the job and no result.
	// +optional
	Active int32 `json:"active,omitempty"`
	// Succeeded is the number of nodes that have the image.
	// +optional
	Succeeded int32 `json:"succeeded,omitempty"`
	// Failed is the number of nodes that could not pull the image.
	// +optional
	Failed int32 `json:"failed,omitempty"`
	// Message is a sentence for people.
	// +spec:IMG-094
	// +optional
	Message string `json:"message,omitempty"`
	// FailedNodes are the failed nodes, sorted; the first of them, if they are many.
	// +spec:IMG-099
	// +optional
	FailedNodes []string `json:"failedNodes,omitempty"`
}

// ImagePullJob pulls one image on a set of nodes.
//
// +spec:IMG-002
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="TOTAL",type="integer",JSONPath=".status.desired",description="Selected nodes"
// +kubebuilder:printcolumn:name="ACTIVE",type="integer",JSONPath=".status.active",description="Nodes at work"
// +kubebuilder:printcolumn:name="SUCCEED",type="integer",JSONPath=".status.succeeded",description="Nodes that have the image"
// +kubebuilder:printcolumn:name="FAILED",type="integer",JSONPath=".status.failed",description="Nodes that failed"
// +kubebuilder:printcolumn:name="AGE",type="date",JSONPath=".metadata.creationTimestamp",description="Time since creation"
type ImagePullJob struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what is asked for.
	// +optional
	Spec ImagePullJobSpec `json:"spec,omitzero"`
	// Status is the observed state.
	// +optional
	Status ImagePullJobStatus `json:"status,omitzero"`
}

// ImagePullJobList is a list of ImagePullJobs.
//
// +kubebuilder:object:root=true
type ImagePullJobList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	// Items are the jobs.
	Items []ImagePullJob `json:"items"`
}
