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

// Noon is the creation time of AdvancedCronJobs in tests.
var Noon = time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)

// At returns the time that is the given duration after noon.
func At(after time.Duration) *metav1.Time { return &metav1.Time{Time: Noon.Add(after)} }

// TemplateTexts are templates by the kind of their children.
var TemplateTexts = map[string]string{
	"Job": `{jobTemplate: {metadata: {labels: {team: a}, annotations: {note: b}}, spec: {backoffLimit: 2, future: {x: 1}, template: {spec: {restartPolicy: Never,
		containers: [{name: c, image: i}]}}}}}`,
	"BroadcastJob": `{broadcastJobTemplate: {metadata: {labels: {team: a}, annotations: {note: b}}, spec: {parallelism: 10%, completionPolicy: {type: Always},
		template: {spec: {restartPolicy: Never, containers: [{name: c, image: i, future: 1}]}}}}}`,
	"ImageListPullJob": `{imageListPullJobTemplate: {metadata: {labels: {team: a}, annotations: {note: b}}, spec: {images: [i], completionPolicy: {type: Always}}}}`,
}

// CronJob returns an AdvancedCronJob that creates children of the given kind. changes are applied to it.
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

// Made returns the child that the AdvancedCronJob created for the run at the given time after noon. changes
// are applied to it.
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

// Started makes a child have started at the given time after noon.
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

// Ended makes a child have succeeded or failed.
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

// Held marks a child as one whose run is not recorded yet.
func Held(object client.Object) { object.SetFinalizers([]string{pub.UnrecordedRun}) }

// Going marks a child as being deleted.
func Going(object client.Object) { object.SetDeletionTimestamp(At(0)) }

// Policy sets the concurrency policy.
func Policy(policy appsv1beta1.ConcurrencyPolicy) func(*appsv1beta1.AdvancedCronJob) {
	return func(cronJob *appsv1beta1.AdvancedCronJob) { cronJob.Spec.ConcurrencyPolicy = policy }
}

// Deadline sets the starting deadline in seconds.
func Deadline(seconds int64) func(*appsv1beta1.AdvancedCronJob) {
	return func(cronJob *appsv1beta1.AdvancedCronJob) { cronJob.Spec.StartingDeadlineSeconds = &seconds }
}

// Last makes the time that is the given duration after noon the last one handled.
func Last(after time.Duration) func(*appsv1beta1.AdvancedCronJob) {
	return func(cronJob *appsv1beta1.AdvancedCronJob) { cronJob.Status.LastScheduleTime = At(after) }
}

// Patched returns the document with the operations applied as the API server does.
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
		t.Fatalf("a template for image lists, %s: %v", list, err)
	}

	return patched
}
