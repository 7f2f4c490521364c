// Package advancedcronjobtest builds what tests of AdvancedCronJobs need.
package advancedcronjobtest

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client" //nolint:depguard // tests alone import this
	"sigs.k8s.io/yaml"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
)

// Noon is when the AdvancedCronJobs of tests were created.
var Noon = time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)

// At is a time so long after noon.
func At(after time.Duration) *metav1.Time { return &metav1.Time{Time: Noon.Add(after)} }

// TemplateTexts are templates by the kind of their children.
var TemplateTexts = map[string]string{
	"Job": `{jobTemplate: {metadata: {labels: {team: a}, annotations: {note: b}}, spec: {backoffLimit: 2, future: {x: 1}, template: {spec: {restartPolicy: Never,
		containers: [{name: c, image: i}]}}}}}`,
	"BroadcastJob": `{broadcastJobTemplate: {metadata: {labels: {team: a}, annotations: {note: b}}, spec: {parallelism: 10%, completionPolicy: {type: Always},
		template: {spec: {restartPolicy: Never, containers: [{name: c, image: i, future: 1}]}}}}}`,
	"ImageListPullJob": `{imageListPullJobTemplate: {metadata: {labels: {team: a}, annotations: {note: b}}, spec: {images: [i], completionPolicy: {type: Always}}}}`,
}

// CronJob is an AdvancedCronJob that creates children of that kind, changed.
func CronJob(
	kind, schedule string, changes ...func(*appsv1beta1.AdvancedCronJob),
) *appsv1beta1.AdvancedCronJob {
	cronJob := &appsv1beta1.AdvancedCronJob{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "nightly",
		UID: "cron", ResourceVersion: "1", CreationTimestamp: *At(0)}}
	if err := yaml.UnmarshalStrict([]byte(TemplateTexts[kind]), &cronJob.Spec.Template); err != nil {
		panic(fmt.Sprint(kind, err))
	}
	cronJob.Spec.Schedule = schedule
	for _, change := range changes {
		change(cronJob)
	}
	return cronJob
}

// Made is what the AdvancedCronJob created for the run so long after noon, changed.
func Made(
	kind string, cronJob *appsv1beta1.AdvancedCronJob, after time.Duration, changes ...func(client.Object),
) client.Object {
	var child client.Object
	switch kind {
	case "Job":
		child = &batchv1.Job{}
	case "BroadcastJob":
		child = &appsv1beta1.BroadcastJob{}
	case "ImageListPullJob":
		child = &appsv1beta1.ImageListPullJob{}
	}
	at := Noon.Add(after)
	name := fmt.Sprintf("%s-%d", cronJob.Name, at.Unix())
	child.SetNamespace(cronJob.Namespace)
	child.SetName(name)
	child.SetUID(types.UID(name))
	child.SetResourceVersion("7")
	child.SetAnnotations(map[string]string{pub.ScheduledAt: at.Format(time.RFC3339)})
	child.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "apps.kruise.io/v1beta1",
		Kind: "AdvancedCronJob", Name: cronJob.Name, UID: cronJob.UID, Controller: new(true)}})
	for _, change := range changes {
		change(child)
	}

	return child
}

// Started lets a child have started so long after noon.
func Started(after time.Duration) func(client.Object) {
	return func(object client.Object) {
		switch job := object.(type) {
		case *batchv1.Job:
			job.Status.StartTime = At(after)
		case *appsv1beta1.BroadcastJob:
			job.Status.StartTime = At(after)
		case *appsv1beta1.ImageListPullJob:
			job.Status.StartTime = At(after)
		}
	}
}

// Ended lets a child have succeeded, or failed.
func Ended(succeeded bool) func(client.Object) {
	return func(object client.Object) {
		condition := map[bool]string{true: "Complete", false: "Failed"}[succeeded]
		switch job := object.(type) {
		case *batchv1.Job:
			job.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobSuspended,
				Status: corev1.ConditionFalse},
				{Type: batchv1.JobConditionType(condition), Status: corev1.ConditionTrue,
					Message: "so it is"}}
		case *appsv1beta1.BroadcastJob:
			job.Status.Conditions = []appsv1beta1.JobCondition{{Type: appsv1beta1.JobConditionType(condition),
				Status: corev1.ConditionTrue, Message: "so it is"}}
		case *appsv1beta1.ImageListPullJob:
			job.Status.CompletionTime, job.Status.Desired = At(0), 1
			if succeeded {
				job.Status.Succeeded = 1
			}
		}
	}
}

// Held lets a child be one whose run is not noted yet.
func Held(object client.Object) { object.SetFinalizers([]string{pub.UnrecordedRun}) }

// Going lets a child be one that is being deleted.
func Going(object client.Object) { object.SetDeletionTimestamp(At(0)) }

// Policy lets an AdvancedCronJob have that concurrency policy.
func Policy(policy appsv1beta1.ConcurrencyPolicy) func(*appsv1beta1.AdvancedCronJob) {
	return func(cronJob *appsv1beta1.AdvancedCronJob) { cronJob.Spec.ConcurrencyPolicy = policy }
}

// Deadline lets an AdvancedCronJob have that starting deadline, in seconds.
func Deadline(seconds int64) func(*appsv1beta1.AdvancedCronJob) {
	return func(cronJob *appsv1beta1.AdvancedCronJob) { cronJob.Spec.StartingDeadlineSeconds = &seconds }
}

// Last lets an AdvancedCronJob have handled the time so long after noon.
func Last(after time.Duration) func(*appsv1beta1.AdvancedCronJob) {
	return func(cronJob *appsv1beta1.AdvancedCronJob) { cronJob.Status.LastScheduleTime = At(after) }
}

// Patched is a document with operations carried out, as the API server does.
func Patched(t testing.TB, document map[string]any, operations any) (patched map[string]any) {
	t.Helper()
	text, err := json.Marshal(document)
	if err != nil {
		t.Fatal(err)
	}
	list, err := json.Marshal(operations)
	if err != nil {
		t.Fatal(err)
	}
	patch, err := jsonpatch.DecodePatch(list)
	if err == nil {
		text, err = patch.Apply(text)
	}
	if err == nil {
		err = json.Unmarshal(text, &patched)
	}
	if err != nil {
		t.Fatalf("%s: %v", list, err)
	}

	return patched
}
