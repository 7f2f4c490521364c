package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/afloat-project/afloat/api/policy/v1beta1"
)

// PodUnavailableBudgetSpec says which pods must stay in service, and how many of them. What v1beta1 has beside that stands in annotations.
// +spec:PUB-120
type PodUnavailableBudgetSpec struct {
	v1beta1.PodUnavailableBudgetSelection `json:",inline"`
}

// PodUnavailableBudget limits how many pods may be taken out of service at once, by whatever way.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
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
	Status v1beta1.PodUnavailableBudgetStatus `json:"status,omitempty"`
}

// PodUnavailableBudgetList is a list of budgets.
//
// +kubebuilder:object:root=true
type PodUnavailableBudgetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []PodUnavailableBudget `json:"items"`
}
