package imagepull

import (
	"strings"
	"testing"
	"time"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/imagepull/imagepulltest"
)

// IMG-154, IMG-155: a job that still waits for the pods of its selector has ended nothing, though none of its
// no nodes is left.
func TestAListWaitsForJobsThatWaitForPods(t *testing.T) {
	list := &appsv1beta1.ImageListPullJob{Spec: appsv1beta1.ImageListPullJobSpec{Images: []string{"a"}}}
	child := PlanList(list, nil, imagepulltest.Noon).Create[0]
	child.Status = appsv1beta1.ImagePullJobStatus{StartTime: imagepulltest.At(0)}
	if p := PlanList(list, []*appsv1beta1.ImagePullJob{child}, imagepulltest.Noon); p.Status.CompletionTime != nil {
		t.Errorf("time of completion: got %v, want nil\n%+v", p.Status.CompletionTime, p.Status)
	} else if p.Status.Completed != 0 {
		t.Errorf("completed: got %d, want 0\n%+v", p.Status.Completed, p.Status)
	}
	child.Status.CompletionTime = imagepulltest.At(time.Minute)
	if p := PlanList(list, []*appsv1beta1.ImagePullJob{child}, imagepulltest.Noon); p.Status.CompletionTime == nil {
		t.Errorf("time of completion: got nil, want a value\n%+v", p.Status)
	} else if p.Status.Completed != 1 {
		t.Errorf("completed: got %d, want 1\n%+v", p.Status.Completed, p.Status)
	}
}

// IMG-110: a list that was stored with names of pull secrets that admission refuses now makes jobs that are admitted, and
// keeps those that it made before.
func TestJobsOfAStoredListHaveNamesOfSecrets(t *testing.T) {
	list := &appsv1beta1.ImageListPullJob{Spec: appsv1beta1.ImageListPullJobSpec{Images: []string{"a"},
		ImagePullJobTemplate: appsv1beta1.ImagePullJobTemplate{PullSecrets: []string{"", "login", "shop/login"}}}}
	child := PlanList(list, nil, imagepulltest.Noon).Create[0]
	if err := CheckJob(child, nil); err != nil {
		t.Errorf("the job of the list is refused: %v", err)
	}
	if got := strings.Join(child.Spec.PullSecrets, ","); got != "login" {
		t.Errorf("pull secrets of the job: got %s, want login", got)
	}
	child.Spec.PullSecrets, child.Labels = list.Spec.PullSecrets, nil
	if p := PlanList(list, []*appsv1beta1.ImagePullJob{child}, imagepulltest.Noon); len(p.Create)+len(p.Delete) > 0 {
		t.Errorf("a job that was made before: %d are made, %d are deleted, want none", len(p.Create), len(p.Delete))
	}
}
