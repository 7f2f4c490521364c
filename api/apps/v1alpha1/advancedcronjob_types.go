package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/afloat-project/afloat/api/apps/v1beta1"
)

// AdvancedCronJobSpec says what is run, and when.
type AdvancedCronJobSpec struct {
	v1beta1.AdvancedCronJobTiming `json:",inline"`
	// Template is the template of what is created at each time of the schedule. Exactly one of its fields must be set.
	// +spec:ACJ-024
	// ---
	// It is written even if it is empty, as it is if the template is in the annotation.
	// +required
	Template CronJobTemplate `json:"template"`
}

// CronJobTemplate is the template of what is created at each time of the schedule.
type CronJobTemplate struct {
	v1beta1.CommonCronJobTemplate `json:",inline"`
}

// AdvancedCronJob creates a Job or a BroadcastJob at each time of a schedule. A template of ImageListPullJobs, which v1beta1 has besides, is in
// annotation apps.kruise.io/v1beta1-imagelistpulljob-template.
//
// +spec:ACJ-001
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=acj
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Schedule",type="string",JSONPath=".spec.schedule",description="When it runs"
// +kubebuilder:printcolumn:name="Type",type="string",JSONPath=".status.type",description="What it creates"
// +kubebuilder:printcolumn:name="LastScheduleTime",type="date",JSONPath=".status.lastScheduleTime",description="Time of the latest run"
// +kubebuilder:printcolumn:name="AGE",type="date",JSONPath=".metadata.creationTimestamp",description="Time since creation"
type AdvancedCronJob struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what is asked for.
	// +optional
	Spec AdvancedCronJobSpec `json:"spec,omitzero"`
	// Status is the observed state.
	// +optional
	Status v1beta1.AdvancedCronJobStatus `json:"status,omitzero"`
}

// AdvancedCronJobList is a list of AdvancedCronJobs.
//
// +kubebuilder:object:root=true
type AdvancedCronJobList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	// Items are the AdvancedCronJobs.
	Items []AdvancedCronJob `json:"items"`
}
