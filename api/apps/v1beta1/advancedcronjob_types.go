package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/afloat-project/afloat/api/template"
)

// AdvancedCronJobSpec says what is run, and when.
type AdvancedCronJobSpec struct {
	AdvancedCronJobTiming `json:",inline"`
	// Template is the template of what is created at each time of the schedule. Exactly one of its fields must be set.
	// +spec:ACJ-024
	// +required
	Template CronJobTemplate `json:"template,omitzero"`
}

// AdvancedCronJobTiming is what both versions have in common: all but the template.
type AdvancedCronJobTiming struct {
	// Schedule is a cron expression of five fields, or one of @yearly, @annually, @monthly, @weekly, @daily, @midnight, @hourly,
	// "@every 1h30m". A prefix such as "CRON_TZ=Europe/Paris " names the time zone, if timeZone does not.
	// +spec:ACJ-021, ACJ-022
	// +required
	// +kubebuilder:validation:MinLength=0
	Schedule string `json:"schedule"`
	// TimeZone is a name of the IANA time zone database, such as Europe/Paris. Absent means the time zone of the manager.
	// +spec:ACJ-023, ACJ-050
	// +optional
	TimeZone *string `json:"timeZone,omitempty"`
	// StartingDeadlineSeconds is how late a run may start, in seconds: 0 or more. Later it is left out. Absent means no limit.
	// +spec:ACJ-025, ACJ-055
	// +optional
	StartingDeadlineSeconds *int64 `json:"startingDeadlineSeconds,omitempty"`
	// ConcurrencyPolicy is Allow: runs may overlap; Forbid: a run waits for the end of the one before it; or Replace: a run ends those
	// before it. Default Allow, with imageListPullJobTemplate Replace.
	// +spec:ACJ-011, ACJ-017, ACJ-060, ACJ-061, ACJ-062
	// +optional
	// +kubebuilder:validation:Enum=Allow;Forbid;Replace
	ConcurrencyPolicy ConcurrencyPolicy `json:"concurrencyPolicy,omitempty"`
	// Paused starts no further runs; those that are active go on. Default false.
	// +spec:ACJ-011, ACJ-080, ACJ-081
	// +optional
	Paused *bool `json:"paused,omitempty"`
	// SuccessfulJobsHistoryLimit is how many runs that succeeded are kept: 0 or more. Default 3.
	// +spec:ACJ-011, ACJ-025, ACJ-090
	// +optional
	SuccessfulJobsHistoryLimit *int32 `json:"successfulJobsHistoryLimit,omitempty"`
	// FailedJobsHistoryLimit is how many runs that failed are kept: 0 or more. Default 1.
	// +spec:ACJ-011, ACJ-025, ACJ-090
	// +optional
	FailedJobsHistoryLimit *int32 `json:"failedJobsHistoryLimit,omitempty"`
}

// ConcurrencyPolicy says what happens to a run that becomes due while an earlier one is active.
type ConcurrencyPolicy string

// Concurrency policies (ACJ-017).
const (
	// ConcurrencyAllow lets runs overlap. It is the default, but with imageListPullJobTemplate (ACJ-011, ACJ-060).
	ConcurrencyAllow ConcurrencyPolicy = "Allow"
	// ConcurrencyForbid lets a run wait for the end of the one before it (ACJ-061).
	ConcurrencyForbid ConcurrencyPolicy = "Forbid"
	// ConcurrencyReplace ends the runs before it (ACJ-062).
	ConcurrencyReplace ConcurrencyPolicy = "Replace"
)

// CronJobTemplate is the template of what is created at each time of the schedule.
type CronJobTemplate struct {
	CommonCronJobTemplate `json:",inline"`
	// ImageListPullJobTemplate is the template of ImageListPullJobs.
	// +spec:ACJ-001, ACJ-013, ACJ-027
	// +optional
	ImageListPullJobTemplate *ImageListPullJobTemplateSpec `json:"imageListPullJobTemplate,omitempty"`
}

// CommonCronJobTemplate is what templates have in both versions.
type CommonCronJobTemplate struct {
	// JobTemplate is the template of Jobs: see "kubectl explain cronjob.spec.jobTemplate". It cannot be changed. It is stored as it is
	// written; fields that Afloat does not know are kept.
	// +spec:ACJ-001, ACJ-014, ACJ-026, ACJ-028
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	JobTemplate *template.JobTemplate `json:"jobTemplate,omitempty"`
	// BroadcastJobTemplate is the template of BroadcastJobs. It cannot be changed.
	// +spec:ACJ-001, ACJ-026, ACJ-028
	// +optional
	BroadcastJobTemplate *BroadcastJobTemplateSpec `json:"broadcastJobTemplate,omitempty"`
}

// TemplateMeta is the metadata that what is created from a template gets.
//
// +spec:ACJ-014, ACJ-070
type TemplateMeta struct {
	// Labels of what is created.
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
	// Annotations of what is created.
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`
}

// BroadcastJobTemplateSpec is the template of BroadcastJobs.
type BroadcastJobTemplateSpec struct {
	// Metadata holds labels and annotations of the jobs.
	// +optional
	Metadata TemplateMeta `json:"metadata,omitzero"`
	// Spec of the jobs.
	// +optional
	Spec BroadcastJobSpec `json:"spec,omitzero"`
}

// ImageListPullJobTemplateSpec is the template of ImageListPullJobs.
type ImageListPullJobTemplateSpec struct {
	// Metadata holds labels and annotations of the jobs.
	// +optional
	Metadata TemplateMeta `json:"metadata,omitzero"`
	// Spec of the jobs.
	// +optional
	Spec ImageListPullJobSpec `json:"spec,omitzero"`
}

// AdvancedCronJobStatus is the observed state of an AdvancedCronJob.
type AdvancedCronJobStatus struct {
	// Type is Job, BroadcastJob or ImageListPullJob.
	// +spec:ACJ-015, ACJ-043
	// +optional
	Type string `json:"type,omitempty"`
	// Active are the runs that have not finished, in the order of their times.
	// +spec:ACJ-100
	// +optional
	Active []corev1.ObjectReference `json:"active,omitempty"`
	// LastScheduleTime is the time, by the schedule, of the latest run that was started.
	// +spec:ACJ-101
	// +optional
	LastScheduleTime *metav1.Time `json:"lastScheduleTime,omitempty"`
}

// AdvancedCronJob creates a Job, a BroadcastJob or an ImageListPullJob at each time of a schedule.
//
// +spec:ACJ-001
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
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
	Status AdvancedCronJobStatus `json:"status,omitzero"`
}

// Hub marks v1beta1 as the version that all others convert to.
func (*AdvancedCronJob) Hub() {}

// AdvancedCronJobList is a list of AdvancedCronJobs.
//
// +kubebuilder:object:root=true
type AdvancedCronJobList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	// Items are the AdvancedCronJobs.
	Items []AdvancedCronJob `json:"items"`
}
