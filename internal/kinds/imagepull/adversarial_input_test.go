package imagepull

import (
	"math"
	"strings"
	"testing"
	"time"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/imagepull/imagepulltest"
)

// IMG-014, IMG-025, IMG-026, IMG-090: jobs that were stored before anybody judged them are pulled too: what
// they bring into a NodeImage is accepted there. Else every write for the job would be refused, and nobody
// told.
func TestJobsOfAnySortFitIntoNodeImages(t *testing.T) {
	for name, change := range map[string]func(*appsv1beta1.ImagePullJob){
		"a pull policy that nobody knows": func(j *appsv1beta1.ImagePullJob) { j.Spec.ImagePullPolicy = "ifnotpresent" },
		"negative numbers": func(j *appsv1beta1.ImagePullJob) {
			j.Spec.PullPolicy = &appsv1beta1.PullPolicy{TimeoutSeconds: new(int32(-5)), BackoffLimit: new(int32(-1))}
			j.Spec.CompletionPolicy.ActiveDeadlineSeconds, j.Spec.CompletionPolicy.TTLSecondsAfterFinished = new(int64(-7)), new(int32(math.MinInt32))
		},
		"huge numbers": func(j *appsv1beta1.ImagePullJob) {
			j.Spec.PullPolicy = &appsv1beta1.PullPolicy{TimeoutSeconds: new(int32(math.MaxInt32)), BackoffLimit: new(int32(math.MaxInt32))}
		},
		"a deadline that never comes": until(math.MaxInt64),
		"none, for ever":              never,
	} {
		job := imagepulltest.Job(change)
		images, err := Assigner{Job: job, ExtraTTL: time.Hour, Now: imagepulltest.Noon,
			Random: func() float64 { return 0.9 }}.Assign(imagepulltest.Blank("n"))
		if err != nil {
			t.Fatalf("%s: unexpected error: %v", name, err)
		} else if images["app"] == nil {
			t.Fatalf("%s: image app: got nil, want a value\n%v", name, err)
		}
		node := imagepulltest.Blank("n")
		node.Spec.Images = map[string]appsv1beta1.ImageSpec{"app": *images["app"]}
		if err := CheckNodeImage(node, nil); err != nil {
			t.Errorf("checking the NodeImage, %s: %v", name, err)
		}
	}
	images, _ := Assigner{Job: imagepulltest.Job(func(j *appsv1beta1.ImagePullJob) { j.Spec.ImagePullPolicy = "?" }), Now: imagepulltest.Noon,
		Random: func() float64 { return 0 }}.Assign(imagepulltest.Blank("n"))
	if got := images["app"].Tags[0].ImagePullPolicy; got != appsv1beta1.PullAlways {
		t.Errorf("IMG-014: %s", got)
	}
}

// What each node gets of a job is small, whatever the job asks for; a job that is new is told so (IMG-018,
// IMG-090).
func TestWhatNodesGetOfAJobIsBounded(t *testing.T) {
	job := imagepulltest.Job(func(j *appsv1beta1.ImagePullJob) {
		j.Spec.SandboxConfig = &appsv1beta1.SandboxConfig{Labels: map[string]string{"a": strings.Repeat("x", 300_000)}}
		j.Spec.PullPolicy = &appsv1beta1.PullPolicy{BackoffLimit: new(int32(math.MaxInt32))}
		j.Spec.CompletionPolicy.TTLSecondsAfterFinished = new(int32(math.MaxInt32))
	})
	images, err := Assigner{Job: job, Now: imagepulltest.Noon, Random: func() float64 { return 0 }}.Assign(imagepulltest.Blank("n"))
	if err != nil {
		t.Fatal(err)
	}
	if p := images["app"].Tags[0].PullPolicy; images["app"].SandboxConfig != nil {
		t.Errorf("sandbox config of the image app: got %+v, want nil\n%+v", images["app"].SandboxConfig,
			images["app"])
	} else if *p.BackoffLimit != 100 {
		t.Errorf("backoff limit: got %d, want 100\n%+v", *p.BackoffLimit, images["app"])
	} else if *p.TTLSecondsAfterFinished != 31*24*3600 {
		t.Errorf("seconds to keep it: got %d, want %d\n%+v", *p.TTLSecondsAfterFinished, 31*24*3600, images["app"])
	}
	if err := CheckJob(job, nil); err == nil {
		t.Error("check of the job: got nil, want an error")
	} else if !strings.Contains(err.Error(), "spec.sandboxConfig has 300001 bytes of labels and annotations, at most 4096 are allowed") {
		t.Errorf("check of the job: got %q, want it to contain %q", err.Error(),
			"spec.sandboxConfig has 300001 bytes of labels and annotations, at most 4096 are allowed")
	}
	if err := CheckJob(job, job); err != nil {
		t.Errorf("what is stored is refused again: %v", err)
	}
}
