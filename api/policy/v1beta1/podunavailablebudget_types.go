package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// PodUnavailableBudgetSelection says which pods a budget covers, and how many of them may be out of service. Both versions have it.
type PodUnavailableBudgetSelection struct {
	// Selector covers the pods of the namespace with these labels. Either this or targetRef is given, and neither changes.
	// +spec:PUB-010
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
	// TargetReference covers the pods of one workload.
	// +spec:PUB-010
	// +optional
	TargetReference *TargetReference `json:"targetRef,omitempty"`
	// MaxUnavailable is how many pods may be out of service, as a number or a percentage. Either this or minAvailable is given.
	// +spec:PUB-011
	// +optional
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`
	// MinAvailable is how many pods must stay in service, as a number or a percentage.
	// +spec:PUB-011
	// +optional
	MinAvailable *intstr.IntOrString `json:"minAvailable,omitempty"`
}

// TargetReference names a workload of the same namespace.
type TargetReference struct {
	// APIVersion of the workload, as "apps/v1"; the version does not matter.
	// +spec:PUB-022
	// +optional
	APIVersion string `json:"apiVersion,omitempty"`
	// Kind of the workload.
	// +optional
	Kind string `json:"kind,omitempty"`
	// Name of the workload.
	// +optional
	Name string `json:"name,omitempty"`
}

// PodUnavailableBudgetOperation is what somebody does to a pod.
//
// +kubebuilder:validation:Enum=DELETE;UPDATE;EVICT;RESIZE
type PodUnavailableBudgetOperation string

// Operations that a budget may protect from (PUB-012).
const (
	// Delete is the deletion of a pod.
	Delete PodUnavailableBudgetOperation = "DELETE"
	// Update is a change of a pod's spec.
	Update PodUnavailableBudgetOperation = "UPDATE"
	// Evict is the eviction of a pod, as by kubectl drain.
	Evict PodUnavailableBudgetOperation = "EVICT"
	// Resize is a change of CPU or memory that restarts no container.
	Resize PodUnavailableBudgetOperation = "RESIZE"
)

// PodUnavailableBudgetSpec says which pods must stay in service, and how many of them.
type PodUnavailableBudgetSpec struct {
	PodUnavailableBudgetSelection `json:",inline"`
	// ProtectOperations are the operations that the budget limits; DELETE, UPDATE and EVICT if it is empty.
	// +spec:PUB-012
	// +optional
	ProtectOperations []PodUnavailableBudgetOperation `json:"protectOperations,omitempty"`
	// ProtectTotalReplicas is how many pods there are expected to be, instead of what their workloads say.
	// +spec:PUB-013
	// +kubebuilder:validation:Minimum=1
	// +optional
	ProtectTotalReplicas *int32 `json:"protectTotalReplicas,omitempty"`
	// IgnoredPodSelector are pods that are counted, but never protected.
	// +spec:PUB-014
	// +optional
	IgnoredPodSelector *metav1.LabelSelector `json:"ignoredPodSelector,omitempty"`
}

// PodUnavailableBudgetStatus is how many pods are in service, and which of them are about to leave it.
type PodUnavailableBudgetStatus struct {
	// ObservedGeneration is the generation of the spec that the numbers are for.
	// +spec:PUB-088
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// DisruptedPods are pods whose deletion or eviction was admitted, and when.
	// +spec:PUB-060
	// +optional
	DisruptedPods map[string]metav1.Time `json:"disruptedPods,omitempty"`
	// UnavailablePods are pods whose update or resize was admitted, and when.
	// +spec:PUB-060
	// +optional
	UnavailablePods map[string]metav1.Time `json:"unavailablePods,omitempty"`
	// BookedPods are the UIDs of the pods in disruptedPods and unavailablePods, which have another one of the same name told from them.
	// How often the booking was renewed follows after a slash, if it was. The one of a pod that was out of service when it was booked
	// ends in /uncharged until the pods are counted while it is back.
	// +spec:PUB-060
	// +optional
	BookedPods map[string]types.UID `json:"bookedPods,omitempty"`
	// UnavailableAllowed is how many more pods may leave service now.
	// +spec:PUB-054
	UnavailableAllowed int32 `json:"unavailableAllowed"`
	// CurrentAvailable is how many covered pods are in service.
	// +spec:PUB-053
	CurrentAvailable int32 `json:"currentAvailable"`
	// DesiredAvailable is how many pods must stay in service.
	// +spec:PUB-050
	DesiredAvailable int32 `json:"desiredAvailable"`
	// TotalReplicas is how many pods there are expected to be.
	// +spec:PUB-040
	TotalReplicas int32 `json:"totalReplicas"`
	// UsedBy says which pods use the budget up, and how.
	// +spec:PUB-141
	// +optional
	UsedBy string `json:"usedBy,omitempty"`
}

// PodUnavailableBudget limits how many pods may be taken out of service at once, by whatever way.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
// +kubebuilder:resource:shortName=pub
// +kubebuilder:printcolumn:name="Allowed",type="integer",JSONPath=".status.unavailableAllowed"
// +kubebuilder:printcolumn:name="Current",type="integer",JSONPath=".status.currentAvailable"
// +kubebuilder:printcolumn:name="Desired",type="integer",JSONPath=".status.desiredAvailable"
// +kubebuilder:printcolumn:name="Total",type="integer",JSONPath=".status.totalReplicas"
// +kubebuilder:printcolumn:name="Used By",type="string",JSONPath=".status.usedBy"
type PodUnavailableBudget struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec PodUnavailableBudgetSpec `json:"spec,omitempty"`
	// +optional
	Status PodUnavailableBudgetStatus `json:"status,omitempty"`
}

// PodUnavailableBudgetList is a list of budgets.
//
// +kubebuilder:object:root=true
type PodUnavailableBudgetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []PodUnavailableBudget `json:"items"`
}
