//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/advancedcronjob"
)

// scheduled makes an AdvancedCronJob and returns a look at it with its children, in the order of their times.
func scheduled(t *testing.T, spec string) (look func(ctx context.Context) (*appsv1beta1.AdvancedCronJob, []advancedcronjob.Child)) {
	t.Helper()
	space := namespace(t)
	apply(t, `{apiVersion: apps.kruise.io/v1beta1, kind: AdvancedCronJob, metadata: {namespace: `+space+`, name: often}, spec: {`+spec+`}}`)
	return func(ctx context.Context) (*appsv1beta1.AdvancedCronJob, []advancedcronjob.Child) {
		cronJob := &appsv1beta1.AdvancedCronJob{}
		if err := kube.Get(ctx, client.ObjectKey{Namespace: space, Name: "often"}, cronJob); err != nil {
			t.Fatal(err)
		}
		var jobs batchv1.JobList
		var broadcasts appsv1beta1.BroadcastJobList
		var lists appsv1beta1.ImageListPullJobList
		for _, list := range []client.ObjectList{&jobs, &broadcasts, &lists} {
			if err := kube.List(ctx, list, client.InNamespace(space)); err != nil {
				t.Fatal(err)
			}
		}
		var children []advancedcronjob.Child
		for i := range jobs.Items {
			children = append(children, advancedcronjob.ChildOf(&jobs.Items[i]))
		}
		for i := range broadcasts.Items {
			children = append(children, advancedcronjob.ChildOf(&broadcasts.Items[i]))
		}
		for i := range lists.Items {
			children = append(children, advancedcronjob.ChildOf(&lists.Items[i]))
		}
		slices.SortFunc(children, func(a, b advancedcronjob.Child) int { return a.Nominal.Compare(b.Nominal) })
		return cronJob, children
	}
}

// thrice waits until three runs have succeeded one after the other, each of them once and at its time, and
// history keeps the last of them.
func thrice(t *testing.T, every time.Duration, look func(context.Context) (*appsv1beta1.AdvancedCronJob, []advancedcronjob.Child)) {
	t.Helper()
	seen := map[string]time.Time{}
	eventually(t, "three runs", func(ctx context.Context) string {
		cronJob, children := look(ctx)
		var ended []time.Time
		for _, child := range children {
			if child.Phase == advancedcronjob.Failed {
				t.Fatalf("%s has failed: %s", child, child.Why)
			}
			if child.Phase == advancedcronjob.Succeeded {
				seen[child.Object.GetName()] = child.Nominal
			}
		}
		for _, at := range seen {
			ended = append(ended, at)
		}
		if len(ended) < 3 || len(children) > 3 {
			return fmt.Sprintf("%d have ended, %d are there, %+v", len(ended), len(children), cronJob.Status)
		}
		for _, at := range ended {
			if at.Sub(cronJob.CreationTimestamp.Time)%every != 0 || at.After(cronJob.Status.LastScheduleTime.Time) {
				t.Errorf("the run of %s of a schedule since %s", at, cronJob.CreationTimestamp)
			}
		}
		return ""
	})
}

// Jobs are created by a schedule, end, and go but for the last; a pause begins no more of them
// (ACJ-001 (part), ACJ-060 (part), ACJ-080 (part), ACJ-090 (part)).
func TestScheduledJobs(t *testing.T) {
	t.Parallel()
	look := scheduled(t, `schedule: "@every 2s", concurrencyPolicy: Forbid, successfulJobsHistoryLimit: 1, template: {jobTemplate: {spec: {template: {spec: {restartPolicy: Never,
		terminationGracePeriodSeconds: 0, containers: [{name: main, image: "app:v1", imagePullPolicy: IfNotPresent, command: ["true"]}]}}}}}`)
	thrice(t, 2*time.Second, look)
	cronJob, _ := look(t.Context())
	paused := &unstructured.Unstructured{}
	paused.SetAPIVersion("apps.kruise.io/v1beta1")
	paused.SetKind("AdvancedCronJob")
	paused.SetNamespace(cronJob.Namespace)
	paused.SetName(cronJob.Name)
	if err := kube.Patch(t.Context(), paused, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"paused":true}}`))); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the pause", func(ctx context.Context) string {
		cronJob, children := look(ctx)
		if time.Since(cronJob.Status.LastScheduleTime.Time) < 6*time.Second || len(cronJob.Status.Active) > 0 || len(children) != 1 ||
			len(children[0].Object.GetFinalizers()) > 0 {
			return fmt.Sprintf("%d children, %+v", len(children), cronJob.Status)
		}
		return ""
	})
}

// ImageListPullJobs are created by a schedule (ACJ-001 (part), ACJ-031 (part)).
func TestScheduledPulls(t *testing.T) {
	t.Parallel()
	look := scheduled(t, `schedule: "@every 3s", concurrencyPolicy: Forbid, successfulJobsHistoryLimit: 1,
		template: {imageListPullJobTemplate: {spec: {images: ["app:v1"], selector: {names: [node1]}, completionPolicy: {type: Always}}}}`)
	thrice(t, 3*time.Second, look)
}

// BroadcastJobs are created by a schedule (ACJ-001 (part), ACJ-031 (part)).
func TestScheduledBroadcastJobs(t *testing.T) {
	t.Parallel()
	look := scheduled(t, `schedule: "@every 3s", concurrencyPolicy: Forbid, successfulJobsHistoryLimit: 1, template: {broadcastJobTemplate: {spec: {template: {spec: {restartPolicy: Never,
		terminationGracePeriodSeconds: 0, containers: [{name: main, image: "app:v1", imagePullPolicy: IfNotPresent, command: ["true"]}]}}}}}`)
	thrice(t, 3*time.Second, look)
}
