package pub

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// InPlaceUpdateStrategy holds the options of updates in place.
//
// +kubebuilder:object:generate=true
type InPlaceUpdateStrategy struct {
	// GracePeriodSeconds is the time between marking a pod not ready and changing it, in seconds. Default 0 (IPU-013).
	// +optional
	GracePeriodSeconds int32 `json:"gracePeriodSeconds,omitempty"`
	// ImagePreDownloadParallelism is the number of nodes that pull a new image at the same time. Default 1 (CS-203).
	// +optional
	ImagePreDownloadParallelism *intstr.IntOrString `json:"imagePreDownloadParallelism,omitempty"`
	// ImagePreDownloadTimeoutSeconds is the time after which one pull is given up, in seconds. Default 300 (CS-202, CS-203).
	// +optional
	ImagePreDownloadTimeoutSeconds *int32 `json:"imagePreDownloadTimeoutSeconds,omitempty"`
	// ImagePreDownloadMinUpdatedReadyPods is the number of updated, ready pods from which on images are pulled ahead.
	// Default 0 (CS-204).
	// +optional
	ImagePreDownloadMinUpdatedReadyPods *int32 `json:"imagePreDownloadMinUpdatedReadyPods,omitempty"`
}

// UpdatePriorityStrategy orders the pods to be updated. Only one of its members may be set (CS-183).
//
// +kubebuilder:object:generate=true
type UpdatePriorityStrategy struct {
	// OrderPriority orders pods by the number at the end of a label value (CS-182).
	// +optional
	OrderPriority []UpdatePriorityOrderTerm `json:"orderPriority,omitempty"`
	// WeightPriority orders pods by the sum of the weights of matching terms, highest first (CS-181).
	// +optional
	WeightPriority []UpdatePriorityWeightTerm `json:"weightPriority,omitempty"`
}

// UpdatePriorityOrderTerm names a label to order pods by (CS-182).
//
// +kubebuilder:object:generate=true
type UpdatePriorityOrderTerm struct {
	// OrderedKey is the label key.
	// +required
	OrderedKey string `json:"orderedKey"`
}

// UpdatePriorityWeightTerm gives a weight to the pods that a selector matches (CS-181).
//
// +kubebuilder:object:generate=true
type UpdatePriorityWeightTerm struct {
	// Weight is 0 to 100.
	// +required
	Weight int32 `json:"weight"`
	// MatchSelector selects pods by their labels; it must not be empty (CS-028).
	// +required
	MatchSelector metav1.LabelSelector `json:"matchSelector"`
}

// UpdateScatterTerm names a label value whose pods are spread over a rollout (CS-184).
//
// +kubebuilder:object:generate=true
type UpdateScatterTerm struct {
	// Key is the label key.
	// +required
	Key string `json:"key"`
	// Value is the label value.
	// +required
	Value string `json:"value"`
}
