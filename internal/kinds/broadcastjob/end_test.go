package broadcastjob

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
)

// When a job has failed nothing of it runs any more, not the pod either whose restarts made it fail (BJ-100,
// BJ-104).
func TestNothingOfAFailedJobRuns(t *testing.T) {
	for name, more := range map[string][]option{
		"FailFast":           {onFailure},
		"FailFast, for ever": {onFailure, forever},
		"deadline":           {onFailure, policy(appsv1beta1.FailurePolicyContinue), deadline(30)},
	} {
		w := newWorld(t, 2, more...)
		w.pod("n1", corev1.PodRunning, restarted(7))
		w.pod("n2", corev1.PodRunning)
		plan := w.expect(name, "", "on-n1 on-n2", failed, "1 active, 0 succeeded, 2 failed of 2")
		w.Job.Status = plan.Status
		w.expect(name+", they could not be deleted", "", "on-n1 on-n2", failed, "1 active, 0 succeeded, 2 failed of 2")
		w.Pods = nil
		if plan = Make(w.Snapshot); plan.Status.Failed != 2 {
			t.Errorf("%s: failed: got %d, want 2\n%s", name, plan.Status.Failed, sums(&plan.Status))
		} else if plan.Status.Active != 0 {
			t.Errorf("%s: active: got %d, want 0\n%s", name, plan.Status.Active, sums(&plan.Status))
		}
	}
}

// A job that has failed says on which nodes, and which did not finish (BJ-100).
func TestAFailedJobNamesItsNodes(t *testing.T) {
	w := newWorld(t, 14, policy(appsv1beta1.FailurePolicyContinue), deadline(30))
	w.pod("n1", corev1.PodSucceeded)
	w.pod("n2", corev1.PodFailed)
	w.pod("n3", corev1.PodPending)
	const want = "; failed on 1 node: n2; not finished on 12 nodes: n10, n11, n12, n13, n14, n3, n4, n5, n6, n7 and 2 more"
	plan := Make(w.Snapshot)
	for _, text := range []string{plan.Status.Conditions[0].Message, plan.Tell[ToldDeadline].Message} {
		if !strings.HasSuffix(text, want) {
			t.Errorf("text: got %q, want it to end with %q", text, want)
		}
	}
}

// A job completes when all nodes that live are done, although a node died with its pod (BJ-110): the pod
// stays terminating for as long as the node is there. For a minute it may be that kubelet is only late.
func TestADeadNodeDoesNotHoldAJob(t *testing.T) {
	unreachable := []func(*corev1.Node){tainted(corev1.TaintNodeUnreachable, corev1.TaintEffectNoExecute),
		tainted(corev1.TaintNodeUnreachable, corev1.TaintEffectNoSchedule)}
	for name, tt := range map[string]struct {
		node  []func(*corev1.Node)
		ago   time.Duration
		want  appsv1beta1.BroadcastJobPhase
		after time.Duration
	}{
		"an hour ago":         {unreachable, time.Hour, completed, 0},
		"a minute ago":        {unreachable, time.Minute, completed, 0},
		"just now":            {unreachable, 10 * time.Second, running, 50 * time.Second},
		"on a node that runs": {nil, time.Hour, running, 0},
	} {
		w := newWorld(t, 1, policy(appsv1beta1.FailurePolicyContinue))
		w.node("dead", tt.node...)
		w.pod("n1", corev1.PodSucceeded)
		w.pod("dead", corev1.PodRunning, func(pod *corev1.Pod) { pod.DeletionTimestamp = &metav1.Time{Time: planTime.Add(-tt.ago)} })
		plan := Make(w.Snapshot)
		if plan.Status.Phase != tt.want {
			t.Errorf("%s: phase: got %q, want %q; %s, %s; again after %s", name, plan.Status.Phase, tt.want,
				plan.Status.Phase,
				sums(&plan.Status), plan.After)
		}
		if plan.After != tt.after {
			t.Errorf("%s: time to the next pass: got %v, want %v; %s, %s; again after %s", name, plan.After, tt.after,
				plan.Status.Phase,
				sums(&plan.Status), plan.After)
		}
	}
}

// A job that the user lets go on goes on, also if the clock of the failed pod's node is ahead (BJ-094).
func TestAResumedJobGoesOnWhateverTheClocks(t *testing.T) {
	w := newWorld(t, 3, policy(appsv1beta1.FailurePolicyPause), phase(isPaused))
	pod := w.pod("n1", corev1.PodFailed, restarted(0))
	pod.Status.ContainerStatuses[0].State.Terminated = &corev1.ContainerStateTerminated{FinishedAt: metav1.NewTime(planTime.Add(10 * time.Minute))}
	w.Job.Annotations = map[string]string{pub.BroadcastJobResumed: planTime.Add(-time.Second).Format(time.RFC3339)}
	written, _ := Make(w.Snapshot).Annotations[pub.BroadcastJobAcknowledged].(string)
	w.Job.Annotations = map[string]string{pub.BroadcastJobAcknowledged: written}
	w.expect("resumed", "n2 n3", "", running, "2 active, 0 succeeded, 1 failed of 3")
}

// TestTheDeadlineCountsFromTheStart shows BJ-102 and BJ-103: the deadline counts from the start, and calls
// for a plan by itself, whoever makes it.
func TestTheDeadlineCountsFromTheStart(t *testing.T) {
	w := newWorld(t, 2, deadline(90))
	w.pod("n1", corev1.PodSucceeded)
	w.pod("n2", corev1.PodRunning)
	if plan := w.expect("in time", "", "", running, "1 active, 1 succeeded, 0 failed of 2"); plan.After != 30*time.Second {
		t.Errorf("after %s", plan.After)
	}
	w.Now = planTime.Add(30 * time.Second)
	plan := w.expect("exactly", "", "on-n2", failed, "1 active, 1 succeeded, 1 failed of 2")
	told := plan.Tell[ToldDeadline]
	if told.Type != "Warning" {
		t.Errorf("type of what was told: got %q, want %q\n%v\n%+v", told.Type, "Warning", plan.Tell, plan.Status)
	} else if !strings.Contains(told.Message, "active longer than the specified deadline") {
		t.Errorf("message that was told: got %q, want it to contain %q\n%v\n%+v", told.Message,
			"active longer than the specified deadline",
			plan.Tell, plan.Status)
	} else if len(plan.Tell) != 1 {
		t.Errorf("number told: got %d, want 1\n%v\n%+v", len(plan.Tell), plan.Tell, plan.Status)
	} else if plan.Status.Conditions[0].Type != appsv1beta1.JobFailed {
		t.Errorf("type of the first condition: got %q, want %q\n%v\n%+v", plan.Status.Conditions[0].Type,
			appsv1beta1.JobFailed,
			plan.Tell, plan.Status)
	} else if plan.Status.Conditions[0].Message != told.Message {
		t.Errorf("message of the first condition: got %q, want %q\n%v\n%+v", plan.Status.Conditions[0].Message,
			told.Message, plan.Tell,
			plan.Status)
	} else if !plan.Ends {
		t.Errorf("end of the run: got false, want true\n%v\n%+v", plan.Tell, plan.Status)
	}
	forever(w.Job) // stored before that was refused
	if plan := Make(w.Snapshot); plan.Ends {
		t.Errorf("end of the run: got true, want false\n%v", plan)
	} else if plan.After != 0 {
		t.Errorf("time to the next pass: got %v, want 0\n%v", plan.After, plan)
	}
	w = newWorld(t, 2, deadline(0), func(job *appsv1beta1.BroadcastJob) { job.Status = appsv1beta1.BroadcastJobStatus{} })
	w.expect("0 fails at once", "", "", failed, "0 active, 0 succeeded, 0 failed of 2")
	w = newWorld(t, 1, deadline(1<<62))
	w.expect("a deadline beyond all times", "n1", "", running, "1 active, 0 succeeded, 0 failed of 1")
}

// TestAJobIsCompleteWhenEachNodeIsDoneWith shows BJ-110, BJ-112 and BJ-113: a job of type Always is complete
// when each node is done with.
func TestAJobIsCompleteWhenEachNodeIsDoneWith(t *testing.T) {
	done := func(w *world) { w.pod("n1", corev1.PodSucceeded); w.pod("n2", corev1.PodSucceeded) }
	for name, test := range map[string]struct {
		last []func(*corev1.Pod)
		want appsv1beta1.BroadcastJobPhase
	}{
		"active":                      {nil, running},
		"succeeded":                   {[]func(*corev1.Pod){func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }}, completed},
		"failed":                      {[]func(*corev1.Pod){func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }}, completed},
		"over its limit":              {[]func(*corev1.Pod){restarted(1)}, completed},
		"being deleted unfinished":    {[]func(*corev1.Pod){leaving}, running},
		"told to go, and gone well":   {[]func(*corev1.Pod){leaving, func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }}, running},
		"over its limit, and leaving": {[]func(*corev1.Pod){restarted(1), leaving}, running},
	} {
		w := newWorld(t, 3, onFailure, policy(appsv1beta1.FailurePolicyContinue))
		done(w)
		w.pod("n3", corev1.PodRunning, test.last...)
		if plan := Make(w.Snapshot); plan.Status.Phase != test.want {
			t.Errorf("%s: phase: got %q, want %q\n%s", name, plan.Status.Phase, test.want, plan)
		} else if plan.Ends != (test.want == completed) {
			t.Errorf("%s: it ends: got %t, want %t\n%s\n%s", name, plan.Ends, test.want == completed,
				plan.Status.Phase, plan)
		}
		w.Pods = w.Pods[:2]
		w.expect("a node without a pod", "n3", "", running, "1 active, 2 succeeded, 0 failed of 3")
		forever(w.Job)
		w.Nodes = w.Nodes[:2]
		w.expect("of type Never", "", "", running, "0 active, 2 succeeded, 0 failed of 2")
	}
	w := newWorld(t, 3, policy(appsv1beta1.FailurePolicyContinue))
	done(w)
	w.pod("n3", corev1.PodFailed)
	plan := w.expect("the end", "", "", completed, "0 active, 2 succeeded, 1 failed of 3")
	now := metav1.NewTime(planTime)
	want := []appsv1beta1.JobCondition{{Type: appsv1beta1.JobComplete, Status: corev1.ConditionTrue, Reason: "Complete", LastProbeTime: now,
		LastTransitionTime: now, Message: "Job completed, 2 pods succeeded, 1 pods failed"}}
	if diff := cmp.Diff(want, plan.Status.Conditions); diff != "" {
		t.Errorf("conditions (-want +got):\n%s", diff)
	}
	if !plan.Status.CompletionTime.Equal(&now) {
		t.Errorf("time of completion: got %v, want %v", plan.Status.CompletionTime, now)
	}
	if diff := cmp.Diff(map[string]Event{"JobComplete": {"Normal", "ops/check completed: 2 pods succeeded, 1 pods failed"}}, plan.Tell); diff != "" {
		t.Errorf("told (-want +got):\n%s", diff)
	}
	w.Job.Status = plan.Status
	w.node("n4")
	got := Make(w.Snapshot)
	if len(got.Create) > 0 {
		t.Errorf("a node that comes later reopens it: created: got %v, want none\n%s", got.Create, got)
	}
	if got.Status.Desired != 3 {
		t.Errorf("a node that comes later reopens it: desired: got %d, want 3\n%s", got.Status.Desired, got)
	}
	if got.Status.Phase != completed {
		t.Errorf("a node that comes later reopens it: phase: got %q, want %q\n%s", got.Status.Phase, completed, got)
	}
}

// TestRestartingPodsEnd shows BJ-114: a pod over its limit counts as finished, and is deleted when the job is
// complete.
func TestRestartingPodsEnd(t *testing.T) {
	w := newWorld(t, 2, onFailure, policy(appsv1beta1.FailurePolicyContinue))
	w.pod("n1", corev1.PodRunning, restarted(1))
	w.expect("the other node is not done", "n2", "", running, "1 active, 0 succeeded, 1 failed of 2")
	w.pod("n2", corev1.PodSucceeded)
	plan := w.expect("it is", "", "on-n1", completed, "0 active, 1 succeeded, 1 failed of 2")
	w.Job.Status = plan.Status // which is written before the pod is deleted
	plan = w.expect("it was not deleted then", "", "on-n1", completed, "0 active, 1 succeeded, 1 failed of 2")
	if _, changed := plan.FinalStatus(0, carriedOut(plan)); changed {
		t.Error("its failure stays counted")
	}
}

// TestTimeToLive shows BJ-120 and BJ-121: a job that has ended goes when its time is over.
func TestTimeToLive(t *testing.T) {
	for name, test := range map[string]struct {
		options []option
		expired bool
		after   time.Duration
	}{
		"no time":             {[]option{over(completed, time.Hour)}, false, 0},
		"not yet":             {[]option{over(completed, time.Minute), ttl(100)}, false, 40 * time.Second},
		"exactly":             {[]option{over(completed, time.Minute), ttl(60)}, true, 0},
		"past, and failed":    {[]option{over(failed, time.Minute), ttl(10)}, true, 0},
		"at once":             {[]option{over(completed, 0), ttl(0)}, true, 0},
		"has not ended":       {[]option{ttl(0)}, false, 0},
		"of type Never":       {[]option{over(failed, time.Hour), ttl(0), forever}, false, 0},
		"a time below zero":   {[]option{over(completed, time.Hour), ttl(-5)}, false, 0},
		"as long as possible": {[]option{over(completed, 0), ttl(1<<31 - 1)}, false, (1<<31 - 1) * time.Second},
	} {
		w := newWorld(t, 1, test.options...)
		w.pod("n1", corev1.PodSucceeded)
		w.Nodes = nil
		plan := Make(w.Snapshot)
		if plan.Expired != test.expired {
			t.Errorf("%s: expired: got %t, want %t; expired %t after %s\n%s", name, plan.Expired, test.expired,
				plan.Expired, plan.After,
				plan)
		}
		if plan.After != test.after {
			t.Errorf("%s: time to the next pass: got %v, want %v; expired %t after %s\n%s", name, plan.After,
				test.after, plan.Expired, plan.After, plan)
		}
		if got := len(plan.Create) + len(deleted(plan)); got > 0 {
			t.Errorf("%s: number of created and deleted: got %d, want 0; expired %t after %s\n%s", name, got,
				plan.Expired, plan.After,
				plan)
		}
	}
}

// TestJobsThatHaveEnded shows BJ-061: nothing of them starts, and their counters stay.
func TestJobsThatHaveEnded(t *testing.T) {
	for _, by := range []option{over(completed, time.Hour), over(failed, time.Hour)} {
		w := newWorld(t, 3, by, func(job *appsv1beta1.BroadcastJob) {
			job.Status.Succeeded, job.Status.Failed, job.Status.Desired = 7, 1, 8
		})
		w.pod("n1", corev1.PodSucceeded)
		w.pod("n2", corev1.PodFailed)
		plan := w.expect("ended", "", "", w.Job.Status.Phase, "0 active, 7 succeeded, 1 failed of 8")
		if _, changed := plan.FinalStatus(0, nil); changed {
			t.Errorf("changed: got true, want false\n%+v", plan.Status)
		}
		if plan.After != 0 {
			t.Errorf("time to the next pass: got %v, want 0\n%+v", plan.After, plan.Status)
		}
		if len(plan.Tell) > 0 {
			t.Errorf("told: got %v, want none\n%+v", plan.Tell, plan.Status)
		}
		forever(w.Job) // it does not start again either
		if plan := Make(w.Snapshot); len(plan.Create) > 0 {
			t.Errorf("created: got %v, want none\n%v", plan.Create, plan)
		}
	}
}
