package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ContainerRecreateRequestSpec says which containers of which pod are to be recreated. It cannot be changed.
//
// +spec:CRR-045
type ContainerRecreateRequestSpec struct {
	// PodName is the name of the pod, in the namespace of the request. Its node must have a node daemon.
	// +spec:CRR-002
	// +required
	PodName string `json:"podName"`
	// Containers are the containers to recreate, in this order, each once: at least one; init containers only if their restartPolicy is
	// Always.
	// +spec:CRR-002, CRR-120
	// +required
	Containers []ContainerRecreateRequestContainer `json:"containers"`
	// Strategy says how the containers are recreated.
	// +optional
	Strategy *ContainerRecreateRequestStrategy `json:"strategy,omitempty"`
	// ActiveDeadlineSeconds is the time after creation at which the request is given up, in seconds. At least 3. Absent means never.
	// +spec:CRR-024, CRR-061
	// +optional
	// +kubebuilder:validation:Minimum=0
	ActiveDeadlineSeconds *int64 `json:"activeDeadlineSeconds,omitempty"`
	// TTLSecondsAfterFinished is the time after completion at which the request is deleted, in seconds: 0 or more. Absent means never.
	// +spec:CRR-058
	// +optional
	// +kubebuilder:validation:Minimum=0
	TTLSecondsAfterFinished *int32 `json:"ttlSecondsAfterFinished,omitempty"`
}

// ContainerRecreateRequestContainer names one container to recreate.
type ContainerRecreateRequestContainer struct {
	// Name of the container.
	// +required
	Name string `json:"name"`
	// PreStop is the hook of the container. Filled in by the system.
	// +spec:CRR-010, CRR-038
	// +optional
	PreStop *ProbeHandler `json:"preStop,omitempty"`
	// Ports are the ports that the hook may name. Filled in by the system.
	// +spec:CRR-010, CRR-039
	// +optional
	Ports []corev1.ContainerPort `json:"ports,omitempty"`
	// StatusContext is the container as it was when the request was made. Filled in by the system.
	// +spec:CRR-010, CRR-037
	// +optional
	StatusContext *ContainerRecreateRequestContainerContext `json:"statusContext,omitempty"`
}

// ProbeHandler is one action on a container: a command, or a request to it.
type ProbeHandler struct {
	// Exec runs a command in the container.
	// +optional
	Exec *corev1.ExecAction `json:"exec,omitempty"`
	// HTTPGet makes an HTTP request.
	// +optional
	HTTPGet *corev1.HTTPGetAction `json:"httpGet,omitempty"`
	// TCPSocket opens a connection.
	// +optional
	TCPSocket *corev1.TCPSocketAction `json:"tcpSocket,omitempty"`
}

// ContainerRecreateRequestContainerContext identifies the container that is to go.
type ContainerRecreateRequestContainerContext struct {
	// ContainerID is the ID in the pod status, as runtime://id.
	// +required
	ContainerID string `json:"containerID"`
	// RestartCount is the restart count in the pod status.
	// +required
	RestartCount int32 `json:"restartCount"`
}

// ContainerRecreateRequestFailurePolicyType says what follows when a container fails.
//
// +spec:CRR-125
type ContainerRecreateRequestFailurePolicyType string

// Failure policies of a ContainerRecreateRequest (CRR-125).
const (
	// ContainerRecreateRequestFailurePolicyFail ends the request at the first failure. It is the default (CRR-011).
	ContainerRecreateRequestFailurePolicyFail ContainerRecreateRequestFailurePolicyType = "Fail"
	// ContainerRecreateRequestFailurePolicyIgnore goes on with the other containers.
	ContainerRecreateRequestFailurePolicyIgnore ContainerRecreateRequestFailurePolicyType = "Ignore"
)

// ContainerRecreateRequestStrategy says how containers are recreated.
type ContainerRecreateRequestStrategy struct {
	// FailurePolicy is Fail: the request ends at the first container that fails; or Ignore: the others go on. Default Fail.
	// +spec:CRR-011
	// +optional
	// +kubebuilder:validation:Enum=Fail;Ignore
	FailurePolicy ContainerRecreateRequestFailurePolicyType `json:"failurePolicy,omitempty"`
	// OrderedRecreate stops a container only after the one before it has come back. Default false.
	// +spec:CRR-122
	// +optional
	OrderedRecreate bool `json:"orderedRecreate,omitempty"`
	// ForceRecreate stops also what has restarted since the request was made. Default false.
	// +spec:CRR-128
	// +optional
	ForceRecreate bool `json:"forceRecreate,omitempty"`
	// TerminationGracePeriodSeconds is the time that a container has to end, in seconds. Default is that of the pod.
	// +spec:CRR-011
	// +optional
	// +kubebuilder:validation:Minimum=0
	TerminationGracePeriodSeconds *int64 `json:"terminationGracePeriodSeconds,omitempty"`
	// UnreadyGracePeriodSeconds makes the pod not ready for so many seconds before its containers are stopped. Absent means that nothing
	// waits.
	// +spec:CRR-012, CRR-064
	// +optional
	// +kubebuilder:validation:Minimum=0
	UnreadyGracePeriodSeconds *int64 `json:"unreadyGracePeriodSeconds,omitempty"`
	// MinStartedSeconds is the time for which a new container must run to count as recreated, in seconds: 0 or more. Default 0.
	// +spec:CRR-114
	// +optional
	// +kubebuilder:validation:Minimum=0
	MinStartedSeconds int32 `json:"minStartedSeconds,omitempty"`
}

// ContainerRecreateRequestPhase is the phase of a request or of one of its containers.
//
// +spec:CRR-013, CRR-014
// +kubebuilder:validation:Enum=Pending;Recreating;Succeeded;Failed;Completed
type ContainerRecreateRequestPhase string

// Phases of requests and containers (CRR-013, CRR-014).
const (
	// ContainerRecreateRequestPending waits for another request or container.
	ContainerRecreateRequestPending ContainerRecreateRequestPhase = "Pending"
	// ContainerRecreateRequestRecreating is at work.
	ContainerRecreateRequestRecreating ContainerRecreateRequestPhase = "Recreating"
	// ContainerRecreateRequestSucceeded is of containers only: recreated and ready.
	ContainerRecreateRequestSucceeded ContainerRecreateRequestPhase = "Succeeded"
	// ContainerRecreateRequestFailed is of containers only.
	ContainerRecreateRequestFailed ContainerRecreateRequestPhase = "Failed"
	// ContainerRecreateRequestCompleted is of requests only: nothing more happens.
	ContainerRecreateRequestCompleted ContainerRecreateRequestPhase = "Completed"
)

// ContainerRecreateRequestPreRecreateGrace is the type, and the reason, of the condition that tells since when the pod is not ready
// for the request (CRR-085).
const ContainerRecreateRequestPreRecreateGrace = "PreRecreateGrace"

// ContainerRecreateRequestStatus is the observed state of a request.
type ContainerRecreateRequestStatus struct {
	// Phase is empty, Pending, Recreating or Completed.
	// +spec:CRR-013
	// +required
	Phase ContainerRecreateRequestPhase `json:"phase,omitempty"`
	// CompletionTime is when the request completed.
	// +spec:CRR-003
	// +optional
	CompletionTime *metav1.Time `json:"completionTime,omitempty"`
	// Message tells why the request ended without its containers.
	// +spec:CRR-136
	// +optional
	Message string `json:"message,omitempty"`
	// ContainerRecreateStates are the containers in the order of the spec.
	// +spec:CRR-117
	// +optional
	ContainerRecreateStates []ContainerRecreateRequestContainerRecreateState `json:"containerRecreateStates,omitempty"`
	// ContainerStatusSnapshot is what the kubelet says of the new containers.
	// +spec:CRR-070
	// +optional
	ContainerStatusSnapshot []ContainerRecreateRequestContainerStatus `json:"containerStatusSnapshot,omitempty"`
	// Conditions of the request.
	// +spec:CRR-085
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ContainerRecreateRequestContainerRecreateState is the state of one container.
//
// +spec:CRR-014
type ContainerRecreateRequestContainerRecreateState struct {
	// Name of the container.
	// +required
	Name string `json:"name"`
	// Phase is Pending, Recreating, Succeeded or Failed.
	// +required
	Phase ContainerRecreateRequestPhase `json:"phase"`
	// Message tells why.
	// +optional
	Message string `json:"message,omitempty"`
	// IsKilled says that the request has stopped the container, or found it stopped.
	// +spec:CRR-123, CRR-124
	// +optional
	IsKilled bool `json:"isKilled,omitempty"`
}

// ContainerRecreateRequestContainerStatus is what the kubelet says of one container.
//
// +spec:CRR-070
type ContainerRecreateRequestContainerStatus struct {
	// Name of the container.
	// +required
	Name string `json:"name"`
	// Ready says whether the container is ready.
	// +required
	Ready bool `json:"ready"`
	// RestartCount of the container.
	// +required
	RestartCount int32 `json:"restartCount"`
	// ContainerID of the container, as runtime://id.
	// +optional
	ContainerID string `json:"containerID,omitempty"`
}

// ContainerRecreateRequest asks for containers of a pod to be stopped, so that the kubelet starts them anew in the same pod.
//
// +spec:CRR-001
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:resource:shortName=crr
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="PHASE",type="string",JSONPath=".status.phase",description="Phase of the request"
// +kubebuilder:printcolumn:name="POD",type="string",JSONPath=".spec.podName",description="Pod of the containers"
// +kubebuilder:printcolumn:name="NODE",type="string",JSONPath=".metadata.labels.crr\\.apps\\.kruise\\.io/node-name",description="Node of the pod"
// +kubebuilder:printcolumn:name="AGE",type="date",JSONPath=".metadata.creationTimestamp",description="Time since creation"
type ContainerRecreateRequest struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what is asked for.
	// +optional
	Spec ContainerRecreateRequestSpec `json:"spec,omitzero"`
	// Status is the observed state.
	// +optional
	Status ContainerRecreateRequestStatus `json:"status,omitzero"`
}

// Hub marks v1beta1 as the version that all others convert to (CRR-145).
func (*ContainerRecreateRequest) Hub() {}

// ContainerRecreateRequestList is a list of ContainerRecreateRequests.
//
// +kubebuilder:object:root=true
type ContainerRecreateRequestList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	// Items are the requests.
	Items []ContainerRecreateRequest `json:"items"`
}
