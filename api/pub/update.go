package pub

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// InPlaceUpdateStrategy holds the options of updates in place.
//
// +kubebuilder:object:generate=true
type InPlaceUpdateStrategy struct {
	// GracePeriodSeconds is the time between marking a pod not ready and changing it, in seconds: 0 or more. Default 0.
	// +spec:IPU-013
	// +optional
	GracePeriodSeconds int32 `json:"gracePeriodSeconds,omitempty"`
	// ImagePreDownloadParallelism is the number of nodes that pull a new image at the same time: 0 or more, no percentage. Default 1.
	// +spec:CS-203
	// +optional
	ImagePreDownloadParallelism *intstr.IntOrString `json:"imagePreDownloadParallelism,omitempty"`
	// ImagePreDownloadTimeoutSeconds is the time after which one pull is given up, in seconds: 0 or more. Default 300.
	// +spec:CS-202, CS-203
	// +optional
	ImagePreDownloadTimeoutSeconds *int32 `json:"imagePreDownloadTimeoutSeconds,omitempty"`
	// ImagePreDownloadMinUpdatedReadyPods is the number of updated, ready pods from which on images are pulled ahead: 0 or more.
	// Default 0.
	// +spec:CS-204
	// +optional
	ImagePreDownloadMinUpdatedReadyPods *int32 `json:"imagePreDownloadMinUpdatedReadyPods,omitempty"`
}

// UpdatePriorityStrategy orders the pods to be updated. Only one of its members may be set.
//
// +spec:CS-183
// +kubebuilder:object:generate=true
type UpdatePriorityStrategy struct {
	// OrderPriority puts pods first that have the greater number at the end of a label's value.
	// +spec:CS-182
	// +optional
	OrderPriority []UpdatePriorityOrderTerm `json:"orderPriority,omitempty"`
	// WeightPriority puts pods first whose matching terms have the greater sum of weights.
	// +spec:CS-181
	// +optional
	WeightPriority []UpdatePriorityWeightTerm `json:"weightPriority,omitempty"`
}

// UpdatePriorityOrderTerm names a label to order pods by.
//
// +spec:CS-182
// +kubebuilder:object:generate=true
type UpdatePriorityOrderTerm struct {
	// OrderedKey is the label key.
	// +required
	OrderedKey string `json:"orderedKey"`
}

// UpdatePriorityWeightTerm gives a weight to the pods that a selector matches.
//
// +spec:CS-181
// +kubebuilder:object:generate=true
type UpdatePriorityWeightTerm struct {
	// Weight is 0 to 100.
	// +required
	Weight int32 `json:"weight"`
	// MatchSelector selects pods by their labels; it must not be empty.
	// +spec:CS-028
	// +required
	MatchSelector metav1.LabelSelector `json:"matchSelector"`
}

// UpdateScatterTerm names a label value whose pods are spread over a rollout.
//
// +spec:CS-184
// +kubebuilder:object:generate=true
type UpdateScatterTerm struct {
	// Key is the label key.
	// +required
	Key string `json:"key"`
	// Value is the label value.
	// +required
	Value string `json:"value"`
}
