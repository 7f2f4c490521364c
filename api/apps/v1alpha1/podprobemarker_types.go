package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// PodProbeMarkerSpec says which containers are probed, and what is written to their pods.
type PodProbeMarkerSpec struct {
	// Selector selects the pods in the namespace of the PodProbeMarker by their labels. It must not be empty and cannot be changed.
	// +spec:PPM-021, PPM-022
	// +required
	Selector *metav1.LabelSelector `json:"selector"`
	// Probes are carried out in each pod. At least one.
	// +spec:PPM-023
	// +required
	Probes []PodContainerProbe `json:"probes"`
}

// PodContainerProbe is one probe of one container, and what follows from its result.
type PodContainerProbe struct {
	// Name of the probe, unique in the PodProbeMarker, without "#".
	// +spec:PPM-010, PPM-024
	// +required
	Name string `json:"name"`
	// ContainerName is the container that is probed. Pods without it are not probed.
	// +spec:PPM-026
	// +required
	ContainerName string `json:"containerName"`
	// Probe says how: exactly one of exec, httpGet and tcpSocket.
	// +spec:PPM-011
	// +required
	Probe ContainerProbeSpec `json:"probe"`
	// MarkerPolicy are the labels and annotations that the pod gets for a result. This or podConditionType must be there.
	// +spec:PPM-015, PPM-071
	// +optional
	MarkerPolicy []ProbeMarkerPolicy `json:"markerPolicy,omitempty"`
	// PodConditionType is the condition of the pod's status that shows the result: True for Succeeded, else False. No condition of
	// Kubernetes or of this project itself.
	// +spec:PPM-025, PPM-069
	// +optional
	PodConditionType string `json:"podConditionType,omitempty"`
}

// ContainerProbeSpec is a probe with the fields of core probes. Exactly one of exec, httpGet and tcpSocket is there.
//
// +spec:PPM-011
type ContainerProbeSpec struct {
	ContainerProbeHandler `json:",inline"`
	// InitialDelaySeconds is the time from the start of the container to the first probe. 0 or absent means 1.
	// +spec:PPM-012, PPM-086
	// +optional
	InitialDelaySeconds int32 `json:"initialDelaySeconds,omitempty"`
	// TimeoutSeconds is the time after which an attempt has failed. 0 or absent means 1.
	// +spec:PPM-012
	// +optional
	TimeoutSeconds int32 `json:"timeoutSeconds,omitempty"`
	// PeriodSeconds is the time between attempts. 0 or absent means 1.
	// +spec:PPM-012, PPM-082
	// +optional
	PeriodSeconds int32 `json:"periodSeconds,omitempty"`
	// SuccessThreshold is how many attempts must succeed in a row for the result Succeeded. 0 or absent means 1.
	// +spec:PPM-012, PPM-091
	// +optional
	SuccessThreshold int32 `json:"successThreshold,omitempty"`
	// FailureThreshold is how many attempts must fail in a row for the result Failed. 0 or absent means 1.
	// +spec:PPM-012, PPM-091
	// +optional
	FailureThreshold int32 `json:"failureThreshold,omitempty"`
	// TerminationGracePeriodSeconds is not supported: no probe ends a container.
	// +spec:PPM-011
	// +optional
	TerminationGracePeriodSeconds *int64 `json:"terminationGracePeriodSeconds,omitempty"`
}

// ContainerProbeHandler is what a probe does.
type ContainerProbeHandler struct {
	// Exec runs a command in the container.
	// +optional
	Exec *corev1.ExecAction `json:"exec,omitempty"`
	// HTTPGet sends an HTTP request to the pod.
	// +optional
	HTTPGet *HTTPGetAction `json:"httpGet,omitempty"`
	// TCPSocket opens a connection to the pod.
	// +optional
	TCPSocket *corev1.TCPSocketAction `json:"tcpSocket,omitempty"`
	// GRPC is not supported.
	// +spec:PPM-011
	// +optional
	GRPC *GRPCAction `json:"grpc,omitempty"`
}

// HTTPGetAction is an HTTP request; an answer of 200 to 399 is success.
type HTTPGetAction struct {
	// Path of the request.
	// +optional
	Path string `json:"path,omitempty"`
	// Port of the container: a number, or the name of one of its ports.
	// +spec:PPM-053
	// +required
	Port intstr.IntOrString `json:"port"`
	// Host must be empty: only the pod itself is probed.
	// +spec:PPM-028
	// +optional
	Host string `json:"host,omitempty"`
	// Scheme is HTTP or HTTPS. Default HTTP.
	// +spec:PPM-013
	// +optional
	Scheme corev1.URIScheme `json:"scheme,omitempty"`
	// HTTPHeaders of the request.
	// +optional
	// +listType=atomic
	HTTPHeaders []corev1.HTTPHeader `json:"httpHeaders,omitempty"`
}

// GRPCAction is a request of the gRPC health service.
type GRPCAction struct {
	// Port of the service.
	// +required
	Port int32 `json:"port"`
	// Service whose health is asked for.
	// +optional
	// +kubebuilder:default=""
	Service *string `json:"service,omitempty"`
}

// ProbeState is the result of a probe.
type ProbeState string

// Results of probes (PPM-014).
const (
	// ProbeSucceeded says that the probe succeeded successThreshold times in a row.
	ProbeSucceeded ProbeState = "Succeeded"
	// ProbeFailed says that the probe failed failureThreshold times in a row, or that the container does not run.
	ProbeFailed ProbeState = "Failed"
	// ProbeUnknown says that there is no result yet of this container.
	ProbeUnknown ProbeState = "Unknown"
)

// ProbeMarkerPolicy is what a pod gets while a probe has one result.
type ProbeMarkerPolicy struct {
	// State is the result for which it holds: Succeeded or Failed, each at most once for a probe.
	// +spec:PPM-014, PPM-030
	// +required
	State ProbeState `json:"state"`
	// Labels that the pod gets. With the other result they are removed.
	// +spec:PPM-071
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
	// Annotations that the pod gets. With the other result they are removed.
	// +spec:PPM-071
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`
}

// PodProbeMarkerStatus is the observed state.
type PodProbeMarkerStatus struct {
	// ObservedGeneration is the generation that was carried out last.
	// +spec:PPM-059
	// +required
	ObservedGeneration int64 `json:"observedGeneration"`
	// MatchedPods is the number of pods that are selected, run on a node and have been initialized.
	// +spec:PPM-040, PPM-059
	// +optional
	MatchedPods int64 `json:"matchedPods,omitempty"`
}

// PodProbeMarker probes containers of pods again and again, and writes the results to the pods as conditions, labels and annotations.
//
// +spec:PPM-001
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
type PodProbeMarker struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what is asked for.
	// +optional
	Spec PodProbeMarkerSpec `json:"spec,omitzero"`
	// Status is the observed state.
	// +optional
	Status PodProbeMarkerStatus `json:"status,omitzero"`
}

// PodProbeMarkerList is a list of PodProbeMarkers.
//
// +kubebuilder:object:root=true
type PodProbeMarkerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	// Items are the PodProbeMarkers.
	Items []PodProbeMarker `json:"items"`
}
