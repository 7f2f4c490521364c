package broadcastjob

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
)

// TestConditionsStandOnce shows BJ-141: there is one condition of a type, whatever was there.
func TestConditionsStandOnce(t *testing.T) {
	w := newWorld(t, 1, func(job *appsv1beta1.BroadcastJob) {
		job.Status.Conditions = []appsv1beta1.JobCondition{{Type: appsv1beta1.JobComplete, Status: corev1.ConditionFalse},
			{Type: "Other", Status: corev1.ConditionTrue}, {Type: appsv1beta1.JobComplete, Status: corev1.ConditionUnknown}}
	})
	w.pod("n1", corev1.PodSucceeded)
	var types []appsv1beta1.JobConditionType
	for _, c := range Make(w.Snapshot).Status.Conditions {
		types = append(types, c.Type)
	}
	if diff := cmp.Diff([]appsv1beta1.JobConditionType{"Other", appsv1beta1.JobComplete}, types); diff != "" {
		t.Errorf("types (-want +got):\n%s", diff)
	}
}

// TestFinalStatus shows BJ-074 and BJ-140: the status counts what was done, not what was tried.
func TestFinalStatus(t *testing.T) {
	w := newWorld(t, 3)
	w.node("bad", tainted("bad", corev1.TaintEffectNoExecute))
	w.pod("n1", corev1.PodSucceeded)
	w.pod("bad", corev1.PodRunning)
	plan := Make(w.Snapshot)
	if len(plan.Create) != 2 {
		t.Fatalf("number created: got %d, want 2\n%v", len(plan.Create), plan)
	}
	for created, want := range []string{"0 active, 1 succeeded, 0 failed of 3", "1 active, 1 succeeded, 0 failed of 3"} {
		status, changed := plan.FinalStatus(created, carriedOut(plan))
		if got := sums(status); got != want {
			t.Errorf("sums of the status: got %q, want %q; %d created: %s", got, want, created, sums(status))
		}
		if !changed {
			t.Errorf("changed: got false, want true; %d created: %s", created, sums(status))
		}
	}
	if status, _ := plan.FinalStatus(0, nil); status.Active != 1 {
		t.Errorf("active: got %d, want 1\n%s", status.Active, sums(status))
	}
	if got := OnlyNumbers(&w.Job.Status, &plan.Status); got != true {
		t.Errorf("only numbers: numbers alone change: got %t, want true", got)
	}
	if OnlyNumbers(&w.Job.Status, &appsv1beta1.BroadcastJobStatus{}) {
		t.Error("only numbers: numbers alone change: got true, want false")
	}
}
