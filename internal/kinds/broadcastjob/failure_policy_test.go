package broadcastjob

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
)

// TestFailFastEndsTheJobWithTheFirstFailedPod shows BJ-090, BJ-100 and BJ-101: the job fails with the first
// failed pod, with either completion policy.
func TestFailFastEndsTheJobWithTheFirstFailedPod(t *testing.T) {
	const foundWords = "failurePolicy is FailFast, and a failed pod was found; failed on 1 node: n2; not finished on 3 nodes: n3, n4, n5"
	for _, more := range []option{func(*appsv1beta1.BroadcastJob) {}, forever, policy("")} {
		w := newWorld(t, 5, more)
		w.pod("n1", corev1.PodSucceeded)
		w.pod("n2", corev1.PodFailed)
		w.pod("n3", corev1.PodRunning)
		w.pod("n4", corev1.PodRunning, leaving)
		plan := w.expect("one failed", "", "on-n3", failed, "1 active, 1 succeeded, 2 failed of 5")
		now := metav1.NewTime(planTime)
		want := []appsv1beta1.JobCondition{{Type: appsv1beta1.JobFailed, Status: corev1.ConditionTrue, Reason: "Failed", LastProbeTime: now,
			LastTransitionTime: now, Message: foundWords}}
		if diff := cmp.Diff(want, plan.Status.Conditions); diff != "" {
			t.Errorf("conditions (-want +got):\n%s\n%+v", diff, plan.Status)
		}
		if !plan.Status.CompletionTime.Equal(&now) {
			t.Errorf("time of completion: got %v, want %v\n%+v", plan.Status.CompletionTime, now, plan.Status)
		}
		if !plan.Ends {
			t.Errorf("end of the run: got false, want true\n%+v", plan.Status)
		}
		if diff := cmp.Diff(map[string]Event{"FailedPodFound": {"Warning",
			foundWords + "; 1 succeeded, 1 failed"}}, plan.Tell); diff != "" {
			t.Errorf("told (-want +got):\n%s", diff)
		}
		w.Job.Status = plan.Status // BJ-104: it could not be deleted
		plan = w.expect("again", "", "on-n3", failed, "1 active, 1 succeeded, 2 failed of 5")
		status, changed := plan.FinalStatus(0, carriedOut(plan))
		if status.Active != 0 {
			t.Errorf("active: got %d, want 0; %+v, tells %v", status.Active, status, plan.Tell)
		}
		if !changed {
			t.Errorf("changed: got false, want true; %+v, tells %v", status, plan.Tell)
		}
		if plan.Ends {
			t.Errorf("end of the run: got true, want false; %+v, tells %v", status, plan.Tell)
		}
		if len(plan.Tell) > 0 {
			t.Errorf("told: got %v, want none; %+v, tells %v", plan.Tell, status, plan.Tell)
		}
		w.Job.Status, w.Pods = *status, w.Pods[:2]
		w.expect("they are gone", "", "", failed, "0 active, 1 succeeded, 2 failed of 5")
		w.node("n9")
		w.Pods = w.Pods[1:]
		if w.Job.Spec.CompletionPolicy.Type == appsv1beta1.CompletionNever {
			w.expect("counters go on", "", "", failed, "0 active, 0 succeeded, 2 failed of 6")
		} else {
			w.expect("counters stay", "", "", failed, "0 active, 1 succeeded, 2 failed of 5") // BJ-061 (part)
		}
	}
	w := newWorld(t, 2, onFailure)
	w.pod("n1", corev1.PodRunning, restarted(1))
	w.pod("n2", corev1.PodRunning)
	w.expect("restarted too often", "", "on-n1 on-n2", failed, "1 active, 0 succeeded, 2 failed of 2")
}

// TestContinueOnlyCountsFailedPods shows BJ-091: failed pods are counted, and no more.
func TestContinueOnlyCountsFailedPods(t *testing.T) {
	w := newWorld(t, 2, policy(appsv1beta1.FailurePolicyContinue))
	w.pod("n1", corev1.PodFailed)
	w.expect("one failed", "n2", "", running, "1 active, 0 succeeded, 1 failed of 2")
	w.pod("n2", corev1.PodSucceeded)
	w.expect("the end", "", "", completed, "0 active, 1 succeeded, 1 failed of 2")
}

// TestPauseByFailure shows BJ-092, BJ-093 and BJ-094: a failed pod pauses the job, once, until it is
// acknowledged, deleted, or the policy changes.
func TestPauseByFailure(t *testing.T) {
	w := newWorld(t, 4, policy(appsv1beta1.FailurePolicyPause))
	w.pod("n1", corev1.PodFailed)
	w.pod("n2", corev1.PodRunning)
	plan := w.expect("one failed", "", "", isPaused, "1 active, 0 succeeded, 1 failed of 4")
	if told := plan.Tell[ToldPaused]; told.Type != corev1.EventTypeWarning {
		t.Errorf("type of what was told: got %q, want %q\n%v", told.Type, corev1.EventTypeWarning, plan.Tell)
	}
	if len(plan.Tell) != 1 {
		t.Errorf("number told: got %d, want 1\n%v", len(plan.Tell), plan.Tell)
	}
	if plan.Annotations != nil {
		t.Errorf("annotations: got %v, want nil\n%v", plan.Annotations, plan.Tell)
	}
	w.Job.Status = plan.Status
	for range 2 { // by another manager, too: all that it knows is in the job
		if plan = w.expect("later", "", "", isPaused, "1 active, 0 succeeded, 1 failed of 4"); len(plan.Tell) > 0 {
			t.Errorf("told again: %v", plan.Tell)
		}
		if _, changed := plan.FinalStatus(0, nil); changed {
			t.Error("the status changes at rest")
		}
	}
	change := func(name string, change func(*world)) {
		other := *w
		other.Job, other.Pods = w.Job.DeepCopy(), slices.Clone(w.Pods)
		change(&other)
		if plan := Make(other.Snapshot); plan.Status.Phase != running {
			t.Errorf("%s: phase: got %q, want %q\n%s", name, plan.Status.Phase, running, plan)
		} else if plan.Tell[ToldContinue].Message == "" {
			t.Errorf("%s: message about going on: got nothing, want some text\n%s", name, plan)
		} else if len(plan.Create) == 0 {
			t.Errorf("%s: created: got none, want some\n%s", name, plan)
		}
	}
	change("the policy changes", func(w *world) { policy(appsv1beta1.FailurePolicyContinue)(w.Job) })
	change("the failed pod is deleted", func(w *world) { w.Pods = w.Pods[1:] })

	paused(w.Job)
	w.expect("the user pauses", "", "", isPaused, "1 active, 0 succeeded, 1 failed of 4")
	w.Job.Spec.Paused, w.Job.Annotations = false, map[string]string{pub.BroadcastJobResumed: planTime.Format(time.RFC3339)}
	end := &corev1.ContainerStateTerminated{FinishedAt: metav1.NewTime(planTime.Add(time.Second))}
	later := w.pod("n3", corev1.PodFailed, restarted(0))
	later.Status.ContainerStatuses[0].State.Terminated = end
	w.Now = planTime.Add(time.Minute)
	plan = Make(w.Snapshot)
	want := map[string]any{pub.BroadcastJobResumed: nil, pub.BroadcastJobAcknowledged: mark(w.Pods[0].UID)}
	if diff := cmp.Diff(want, plan.Annotations); diff != "" {
		t.Errorf("annotations (-want +got):\n%s\n%v", diff, plan)
	}
	if len(plan.Create) > 0 {
		t.Errorf("created: got %v, want none\n%v", plan.Create, plan)
	}
	w.Job.Annotations = map[string]string{pub.BroadcastJobAcknowledged: mark(w.Pods[0].UID)}
	w.expect("one failed after the user looked", "", "", isPaused, "1 active, 0 succeeded, 2 failed of 4")
	w.Pods = w.Pods[:2]
	plan = w.expect("acknowledged", "n3 n4", "", running, "3 active, 0 succeeded, 1 failed of 4")
	if plan.Tell[ToldContinue].Message == "" {
		t.Errorf("message about going on: got nothing, want some text\n%v", plan.Tell)
	}
	w.Job.Status = plan.Status
	w.Pods[1].Status.Phase = corev1.PodFailed
	if plan = w.expect("another one fails", "", "", isPaused, "0 active, 0 succeeded, 2 failed of 4"); plan.Tell[ToldPaused].Message == "" {
		t.Errorf("message about the pause: got nothing, want some text\n%v", plan.Tell)
	}
	w.Job.Annotations[pub.BroadcastJobResumed] = "nonsense"
	if got := Make(w.Snapshot).Annotations[pub.BroadcastJobAcknowledged]; len(got.(string)) != 2*hashLength {
		t.Errorf("length of the text: got %d, want %d\n%s", len(got.(string)), 2*hashLength, got)
	}
	paused(w.Job)
	if plan := Make(w.Snapshot); plan.Annotations != nil {
		t.Error("acknowledged while it is paused")
	}
	w.Job.Spec.Paused = false
	policy(appsv1beta1.FailurePolicyContinue)(w.Job)
	if diff := cmp.Diff(map[string]any{pub.BroadcastJobResumed: nil}, Make(w.Snapshot).Annotations); diff != "" {
		t.Errorf("annotations of the plan (-want +got):\n%s", diff)
	}
}

// TestAcknowledgedIsBounded shows that the annotation stays small, whatever fails and whatever users write
// into it (BJ-094 (part)).
func TestAcknowledgedIsBounded(t *testing.T) {
	w := newWorld(t, 0, policy(appsv1beta1.FailurePolicyPause))
	for i := range mostAcknowledged + 10 {
		node := fmt.Sprint("n", i)
		w.node(node)
		w.pod(node, corev1.PodFailed, func(pod *corev1.Pod) { pod.UID = types.UID(fmt.Sprint("uid-", i)) })
	}
	w.Job.Annotations = map[string]string{pub.BroadcastJobResumed: "", pub.BroadcastJobAcknowledged: strings.Repeat("x", 250_000)}
	text := Make(w.Snapshot).Annotations[pub.BroadcastJobAcknowledged].(string)
	if len(text) > mostAcknowledged*hashLength {
		t.Errorf("length of the text: got %d, want at most %d", len(text), mostAcknowledged*hashLength)
	}
	if len(text) < (mostAcknowledged-5)*hashLength {
		t.Errorf("length of the text: got %d, want at least %d", len(text), (mostAcknowledged-5)*hashLength)
	}
	w.Job.Annotations = map[string]string{pub.BroadcastJobAcknowledged: text}
	plan := Make(w.Snapshot)
	if plan.Status.Phase != isPaused {
		t.Errorf("phase: got %q, want %q", plan.Status.Phase, isPaused)
	}
	if !strings.Contains(plan.Hold, "10 failed pods") {
		t.Errorf("held: got %q, want it to contain %q", plan.Hold, "10 failed pods")
	}
}
