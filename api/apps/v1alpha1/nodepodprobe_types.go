package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NodePodProbeSpec lists the probes that the daemon of a node carries out.
type NodePodProbeSpec struct {
	// PodProbes are the probes, by pod.
	// +spec:PPM-016
	// +optional
	PodProbes []PodProbe `json:"podProbes,omitempty"`
}

// PodProbe are the probes of one pod.
type PodProbe struct {
	// Name of the pod.
	// +required
	Name string `json:"name"`
	// Namespace of the pod.
	// +required
	Namespace string `json:"namespace"`
	// UID of the pod.
	// +required
	UID string `json:"uid"`
	// IP of the pod, which tcpSocket and httpGet are sent to; empty until the pod has one.
	// +spec:PPM-052, PPM-090
	// +required
	IP string `json:"IP"`
	// Probes of its containers.
	// +optional
	Probes []ContainerProbe `json:"probes,omitempty"`
}

// ContainerProbe is one probe of one container.
type ContainerProbe struct {
	// Name of the probe: that of its PodProbeMarker, "#", and its name there.
	// +spec:PPM-010
	// +required
	Name string `json:"name"`
	// ContainerName is the container that is probed.
	// +required
	ContainerName string `json:"containerName"`
	// Probe says how, with ports as numbers.
	// +spec:PPM-053
	// +required
	Probe ContainerProbeSpec `json:"probe"`
}

// NodePodProbeStatus holds the results.
type NodePodProbeStatus struct {
	// PodProbeStatuses are the results, by pod.
	// +spec:PPM-016
	// +optional
	PodProbeStatuses []PodProbeStatus `json:"podProbeStatuses,omitempty"`
}

// PodProbeStatus are the results of the probes of one pod.
type PodProbeStatus struct {
	// Name of the pod.
	// +required
	Name string `json:"name"`
	// Namespace of the pod.
	// +required
	Namespace string `json:"namespace"`
	// UID of the pod.
	// +required
	UID string `json:"uid"`
	// ProbeStates are the results of its probes.
	// +optional
	ProbeStates []ContainerProbeState `json:"probeStates,omitempty"`
}

// ContainerProbeState is the result of one probe.
type ContainerProbeState struct {
	// Name of the probe, as in the spec.
	// +required
	Name string `json:"name"`
	// State is Succeeded, Failed or Unknown.
	// +spec:PPM-014
	// +required
	State ProbeState `json:"state"`
	// LastProbeTime is when the result was last seen and sent.
	// +spec:PPM-094
	// +optional
	LastProbeTime metav1.Time `json:"lastProbeTime,omitzero"`
	// LastTransitionTime is when the state last changed.
	// +spec:PPM-094
	// +optional
	LastTransitionTime metav1.Time `json:"lastTransitionTime,omitzero"`
	// Message is what the probe answered, up to 1024 bytes.
	// +spec:PPM-092
	// +optional
	Message string `json:"message,omitempty"`
	// Target identifies the container and the handler of the probe that the result is about. A daemon that starts again
	// does not take it for the result of another one.
	// +spec:PPM-082
	// +optional
	Target string `json:"target,omitempty"`
}

// NodePodProbe lists the probes that the daemon of the node of its name carries out, and their results. The manager keeps its spec; only
// the daemon of the node writes its status.
//
// +spec:PPM-016
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:resource:scope=Cluster
// +kubebuilder:subresource:status
type NodePodProbe struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what is to be probed.
	// +optional
	Spec NodePodProbeSpec `json:"spec,omitzero"`
	// Status is what came of it.
	// +optional
	Status NodePodProbeStatus `json:"status,omitzero"`
}

// NodePodProbeList is a list of NodePodProbes.
//
// +kubebuilder:object:root=true
type NodePodProbeList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	// Items are the NodePodProbes.
	Items []NodePodProbe `json:"items"`
}
