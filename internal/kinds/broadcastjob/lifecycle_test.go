package broadcastjob

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/disruption"
	"github.com/afloat-project/afloat/internal/engine/podplan"
)

func carriedOut(plan *Plan) (done []*podplan.Verdict) {
	for _, v := range plan.Verdicts {
		if v.Action == podplan.Delete {
			done = append(done, v)
		}
	}
	return done
}

// TestTheFirstPlanBeginsTheJob shows what the first plan says of a job (BJ-062 (part)).
func TestTheFirstPlanBeginsTheJob(t *testing.T) {
	w := newWorld(t, 2, func(job *appsv1beta1.BroadcastJob) { job.Status = appsv1beta1.BroadcastJobStatus{} })
	plan := w.expect("a new job", "n1 n2", "", running, "2 active, 0 succeeded, 0 failed of 2")
	if !plan.Status.StartTime.Time.Equal(planTime) {
		t.Errorf("started at %s", plan.Status.StartTime)
	}
	w.Nodes, w.Job.Status.StartTime = nil, plan.Status.StartTime
	w.Now = planTime.Add(24 * time.Hour)
	plan = w.expect("a cluster without nodes", "", "", running, "0 active, 0 succeeded, 0 failed of 0") // BJ-111
	if plan.Ends {
		t.Errorf("end of the run: got true, want false\n%+v", plan.Status)
	}
	if !plan.Status.StartTime.Time.Equal(planTime) {
		t.Errorf("time of the start: got %v, want %v\n%+v", plan.Status.StartTime.Time, planTime, plan.Status)
	}
}

// TestAPausedJobOnlyCounts shows BJ-080, BJ-081 and BJ-082: a paused job counts, and does nothing else.
func TestAPausedJobOnlyCounts(t *testing.T) {
	w := newWorld(t, 3, paused, deadline(1))
	w.node("n4", tainted("k", corev1.TaintEffectNoExecute))
	w.pod("n1", corev1.PodRunning)
	w.pod("n2", corev1.PodFailed)
	w.pod("n4", corev1.PodRunning) // neither is it deleted
	plan := w.expect("past its deadline, with a failed pod", "", "", isPaused, "2 active, 0 succeeded, 1 failed of 3")
	if len(plan.Tell) > 0 {
		t.Errorf("told: got %v, want none", plan.Tell)
	}
	if plan.Hold == "" {
		t.Error("held: got nothing, want some text")
	}
	if plan.After != 0 {
		t.Errorf("time to the next pass: got %v, want 0", plan.After)
	}
	w.Job.Status = plan.Status
	w.Pods = w.Pods[:1]
	w.Pods[0].Status.Phase = corev1.PodSucceeded
	w.Nodes = w.Nodes[:1]
	w.expect("all is done", "", "", isPaused, "0 active, 1 succeeded, 0 failed of 1")
	w.Job.Spec.Paused, w.Job.Spec.CompletionPolicy.ActiveDeadlineSeconds = false, nil
	plan = w.expect("and it goes on", "", "", completed, "0 active, 1 succeeded, 0 failed of 1")
	told := plan.Tell[ToldContinue]
	if told.Type != corev1.EventTypeNormal {
		t.Errorf("type of what was told: got %q, want %q\n%v", told.Type, corev1.EventTypeNormal, plan.Tell)
	}
	if told.Message == "" {
		t.Errorf("message that was told: got nothing, want some text\n%v", plan.Tell)
	}
	w = newWorld(t, 2, phase(isPaused), deadline(60))
	plan = w.expect("resumed past its deadline", "", "", failed, "0 active, 0 succeeded, 0 failed of 2")
	if plan.Tell[ToldContinue].Message == "" {
		t.Errorf("message about going on: got nothing, want some text\n%v", plan.Tell)
	}
	if plan.Tell[ToldDeadline].Message == "" {
		t.Errorf("message about the deadline: got nothing, want some text\n%v", plan.Tell)
	}
	w = newWorld(t, 2, phase(isPaused))
	w.expect("resumed in time", "n1 n2", "", running, "2 active, 0 succeeded, 0 failed of 2")
}

// TestAJobThatNobodyCheckedDoesNothingAndSaysWhy shows that a job which was stored before anybody checked it
// does nothing, and says why.
func TestAJobThatNobodyCheckedDoesNothingAndSaysWhy(t *testing.T) {
	for name, change := range map[string]option{
		"template":      template(`{"spec":{"containers":"none"}}`),
		"restartPolicy": template(`{"spec":{"containers":[]}}`),
		"parallelism":   parallelism("many"),
		"deadline":      deadline(-1),
		"policy":        policy("Perhaps"),
	} {
		w := newWorld(t, 2, change)
		w.pod("n1", corev1.PodRunning)
		plan := w.expect(name, "", "", running, "0 active, 0 succeeded, 0 failed of 0")
		if plan.Tell[ToldBadSpec].Message == "" {
			t.Errorf("%s: message about the bad spec: got nothing, want some text\n%v", name, plan.Tell)
		}
		if plan.ScaleError == "" {
			t.Errorf("%s: scale error: got nothing, want some text\n%v", name, plan.Tell)
		}
		if plan.After != 0 {
			t.Errorf("%s: time to the next pass: got %v, want 0\n%v", name, plan.After, plan.Tell)
		}
	}
}

// held is a budget that lets none go.
type held struct{}

func (held) Take(*corev1.Pod, disruption.Operation) string { return "budget b allows 0" }

// TestWhatABudgetHoldsIsTriedAgain shows BJ-172: what a budget holds, of a job that fails and of a node that
// does not fit, is tried again, and the phase does not wait for it.
func TestWhatABudgetHoldsIsTriedAgain(t *testing.T) {
	w := newWorld(t, 2)
	w.Disruptions = held{}
	w.pod("n1", corev1.PodFailed)
	w.pod("n2", corev1.PodRunning)
	for range 2 {
		plan := w.expect("held", "", "", failed, "1 active, 0 succeeded, 2 failed of 2")
		if !plan.HeldByBudget {
			t.Errorf("held by a budget: got false, want true; %v after %s", plan.Waiting, plan.After)
		} else if plan.Waiting == nil {
			t.Errorf("waiting: got nil, want a value; %v after %s", plan.Waiting, plan.After)
		} else if !strings.Contains(plan.Waiting.String(), "budget b allows 0") {
			t.Errorf("waiting: got %q, want it to contain %q; %v after %s", plan.Waiting.String(),
				"budget b allows 0", plan.Waiting,
				plan.After)
		} else if plan.After != time.Second {
			t.Errorf("time to the next pass: got %v, want %v; %v after %s", plan.After, time.Second, plan.Waiting,
				plan.After)
		}
		w.Job.Status = plan.Status
	}
	w = newWorld(t, 1)
	w.Disruptions = held{}
	w.node("n2", tainted("bad", corev1.TaintEffectNoExecute))
	w.pod("n1", corev1.PodSucceeded)
	w.pod("n2", corev1.PodRunning)
	plan := w.expect("complete, with a pod that has to go", "", "", completed, "1 active, 1 succeeded, 0 failed of 1")
	w.Job.Status, w.Disruptions = plan.Status, nil
	w.expect("then it may", "", "on-n2", completed, "1 active, 1 succeeded, 0 failed of 1")
}

// TestChangesAreForLaterPods shows BJ-025: updates are judged as creations are, and no field is immutable;
// what changed is for pods that are created later, and a job that has ended does not start again.
func TestChangesAreForLaterPods(t *testing.T) {
	w := newWorld(t, 4, parallelism(1), policy(appsv1beta1.FailurePolicyContinue))
	placed := Make(w.Snapshot).Create[0].Pod["metadata"].(map[string]any)["annotations"].(map[string]any)[pub.BroadcastJobPlacement].(string)
	made := func(pod *corev1.Pod) { pod.Annotations = map[string]string{pub.BroadcastJobPlacement: placed} }
	w.pod("n1", corev1.PodSucceeded, made)
	w.pod("n2", corev1.PodRunning, made)
	for i := range 3 {
		w.Nodes[i+1].Labels = map[string]string{"pool": []string{"a", "a", "b"}[i]}
	}
	before := WrittenInV1beta1(w.Job.DeepCopy())
	parallelism(3)(w.Job)
	onFailure(w.Job)
	template(`{"spec":{"restartPolicy":"OnFailure","nodeSelector":{"pool":"b"},"containers":[{"name":"main","image":"check:2"}]}}`)(w.Job)
	if errs := Validate(WrittenInV1beta1(w.Job), before); len(errs) > 0 {
		t.Errorf("errors: got %v, want none", errs)
	}
	plan := w.expect("all changed", "n4", "", running, "2 active, 1 succeeded, 0 failed of 3")
	if spec := plan.Create[0].Pod["spec"].(map[string]any); spec["restartPolicy"] != "OnFailure" {
		t.Errorf("spec restartPolicy: got %v, want %q\n%v", spec["restartPolicy"], "OnFailure", spec)
	}
	policy(appsv1beta1.FailurePolicyFailFast)(w.Job)
	w.pod("n4", corev1.PodFailed)
	w.expect("the policy, too", "", "on-n2", failed, "1 active, 1 succeeded, 2 failed of 3")
	bad := w.Job.DeepCopy()
	bad.Spec.FailurePolicy.Type = "Cry"
	if errs := Validate(WrittenInV1beta1(bad), WrittenInV1beta1(w.Job)); len(errs) != 1 {
		t.Errorf("number of errors: got %d, want 1\n%v", len(errs), errs)
	}
	w = newWorld(t, 2, over(completed, time.Hour))
	w.pod("n1", corev1.PodSucceeded)
	template(`{"spec":{"restartPolicy":"Never","containers":[{"name":"main","image":"check:2"}]}}`)(w.Job)
	w.expect("a job that has ended", "", "", completed, "0 active, 0 succeeded, 0 failed of 0")
}
