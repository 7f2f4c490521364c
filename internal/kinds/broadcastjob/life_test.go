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

// TestBeginning shows what the first plan says of a job (BJ-062 (part)).
func TestBeginning(t *testing.T) {
	w := newWorld(t, 2, func(job *appsv1beta1.BroadcastJob) { job.Status = appsv1beta1.BroadcastJobStatus{} })
	plan := w.expect("a new job", "n1 n2", "", running, "2 active, 0 succeeded, 0 failed of 2")
	if !plan.Status.StartTime.Time.Equal(planTime) {
		t.Errorf("started at %s", plan.Status.StartTime)
	}
	w.Nodes, w.Job.Status.StartTime = nil, plan.Status.StartTime
	w.Now = planTime.Add(24 * time.Hour)
	plan = w.expect("a cluster without nodes", "", "", running, "0 active, 0 succeeded, 0 failed of 0") // BJ-111
	if plan.Ends || !plan.Status.StartTime.Time.Equal(planTime) {
		t.Errorf("%+v", plan.Status)
	}
}

// TestPaused shows BJ-080, BJ-081 and BJ-082: a paused job counts, and does nothing else.
func TestPaused(t *testing.T) {
	w := newWorld(t, 3, paused, deadline(1))
	w.node("n4", tainted("k", corev1.TaintEffectNoExecute))
	w.pod("n1", corev1.PodRunning)
	w.pod("n2", corev1.PodFailed)
	w.pod("n4", corev1.PodRunning) // neither is it deleted
	plan := w.expect("past its deadline, with a failed pod", "", "", isPaused, "2 active, 0 succeeded, 1 failed of 3")
	if len(plan.Tell) > 0 || plan.Hold == "" || plan.After != 0 {
		t.Errorf("%v %q after %s", plan.Tell, plan.Hold, plan.After)
	}
	w.Job.Status = plan.Status
	w.Pods = w.Pods[:1]
	w.Pods[0].Status.Phase = corev1.PodSucceeded
	w.Nodes = w.Nodes[:1]
	w.expect("all is done", "", "", isPaused, "0 active, 1 succeeded, 0 failed of 1")
	w.Job.Spec.Paused, w.Job.Spec.CompletionPolicy.ActiveDeadlineSeconds = false, nil
	plan = w.expect("and it goes on", "", "", completed, "0 active, 1 succeeded, 0 failed of 1")
	if told := plan.Tell[ToldContinue]; told.Type != corev1.EventTypeNormal || told.Message == "" {
		t.Errorf("%v", plan.Tell)
	}
	w = newWorld(t, 2, phase(isPaused), deadline(60))
	plan = w.expect("resumed past its deadline", "", "", failed, "0 active, 0 succeeded, 0 failed of 2")
	if plan.Tell[ToldContinue].Message == "" || plan.Tell[ToldDeadline].Message == "" {
		t.Errorf("%v", plan.Tell)
	}
	w = newWorld(t, 2, phase(isPaused))
	w.expect("resumed in time", "n1 n2", "", running, "2 active, 0 succeeded, 0 failed of 2")
}

// TestFailFast shows BJ-090, BJ-100 and BJ-101: the job fails with the first failed pod, with either
// completion policy.
func TestFailFast(t *testing.T) {
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
		if diff := cmp.Diff(want, plan.Status.Conditions); diff != "" || !plan.Status.CompletionTime.Equal(&now) || !plan.Ends {
			t.Errorf("%s %+v", diff, plan.Status)
		}
		if diff := cmp.Diff(map[string]Event{"FailedPodFound": {"Warning",
			foundWords + "; 1 succeeded, 1 failed"}}, plan.Tell); diff != "" {
			t.Error(diff)
		}
		w.Job.Status = plan.Status // BJ-104: it could not be deleted
		plan = w.expect("again", "", "on-n3", failed, "1 active, 1 succeeded, 2 failed of 5")
		status, changed := plan.FinalStatus(0, carriedOut(plan))
		if status.Active != 0 || !changed || plan.Ends || len(plan.Tell) > 0 {
			t.Errorf("%+v, tells %v", status, plan.Tell)
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

// TestContinue shows BJ-091: failed pods are counted, and no more.
func TestContinue(t *testing.T) {
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
	if told := plan.Tell[ToldPaused]; told.Type != corev1.EventTypeWarning || len(plan.Tell) != 1 || plan.Annotations != nil {
		t.Errorf("%v", plan.Tell)
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
		if plan := Make(other.Snapshot); plan.Status.Phase != running || plan.Tell[ToldContinue].Message == "" || len(plan.Create) == 0 {
			t.Errorf("%s: %s", name, plan)
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
	if diff := cmp.Diff(want, plan.Annotations); diff != "" || len(plan.Create) > 0 {
		t.Error(diff, plan)
	}
	w.Job.Annotations = map[string]string{pub.BroadcastJobAcknowledged: mark(w.Pods[0].UID)}
	w.expect("one failed after the user looked", "", "", isPaused, "1 active, 0 succeeded, 2 failed of 4")
	w.Pods = w.Pods[:2]
	plan = w.expect("acknowledged", "n3 n4", "", running, "3 active, 0 succeeded, 1 failed of 4")
	if plan.Tell[ToldContinue].Message == "" {
		t.Errorf("%v", plan.Tell)
	}
	w.Job.Status = plan.Status
	w.Pods[1].Status.Phase = corev1.PodFailed
	if plan = w.expect("another one fails", "", "", isPaused, "0 active, 0 succeeded, 2 failed of 4"); plan.Tell[ToldPaused].Message == "" {
		t.Errorf("%v", plan.Tell)
	}
	w.Job.Annotations[pub.BroadcastJobResumed] = "nonsense"
	if got := Make(w.Snapshot).Annotations[pub.BroadcastJobAcknowledged]; len(got.(string)) != 2*hashLength {
		t.Errorf("%q", got)
	}
	paused(w.Job)
	if plan := Make(w.Snapshot); plan.Annotations != nil {
		t.Error("acknowledged while it is paused")
	}
	w.Job.Spec.Paused = false
	policy(appsv1beta1.FailurePolicyContinue)(w.Job)
	if diff := cmp.Diff(map[string]any{pub.BroadcastJobResumed: nil}, Make(w.Snapshot).Annotations); diff != "" {
		t.Error(diff)
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
	if len(text) > mostAcknowledged*hashLength || len(text) < (mostAcknowledged-5)*hashLength {
		t.Errorf("%d bytes", len(text))
	}
	w.Job.Annotations = map[string]string{pub.BroadcastJobAcknowledged: text}
	if plan := Make(w.Snapshot); plan.Status.Phase != isPaused || !strings.Contains(plan.Hold, "10 failed pods") {
		t.Errorf("%s %q", plan.Status.Phase, plan.Hold)
	}
}

// TestDeadline shows BJ-102 and BJ-103: the deadline counts from the start, and calls for a plan by itself,
// whoever makes it.
func TestDeadline(t *testing.T) {
	w := newWorld(t, 2, deadline(90))
	w.pod("n1", corev1.PodSucceeded)
	w.pod("n2", corev1.PodRunning)
	if plan := w.expect("in time", "", "", running, "1 active, 1 succeeded, 0 failed of 2"); plan.After != 30*time.Second {
		t.Errorf("after %s", plan.After)
	}
	w.Now = planTime.Add(30 * time.Second)
	plan := w.expect("exactly", "", "on-n2", failed, "1 active, 1 succeeded, 1 failed of 2")
	told := plan.Tell[ToldDeadline]
	if told.Type != "Warning" || !strings.Contains(told.Message, "active longer than the specified deadline") || len(plan.Tell) != 1 ||
		plan.Status.Conditions[0].Type != appsv1beta1.JobFailed || plan.Status.Conditions[0].Message != told.Message || !plan.Ends {
		t.Errorf("%v %+v", plan.Tell, plan.Status)
	}
	forever(w.Job) // stored before that was refused
	if plan := Make(w.Snapshot); plan.Ends || plan.After != 0 {
		t.Error(plan)
	}
	w = newWorld(t, 2, deadline(0), func(job *appsv1beta1.BroadcastJob) { job.Status = appsv1beta1.BroadcastJobStatus{} })
	w.expect("0 fails at once", "", "", failed, "0 active, 0 succeeded, 0 failed of 2")
	w = newWorld(t, 1, deadline(1<<62))
	w.expect("a deadline beyond all times", "n1", "", running, "1 active, 0 succeeded, 0 failed of 1")
}

// TestCompletion shows BJ-110, BJ-112 and BJ-113: a job of type Always is complete when each node is done
// with.
func TestCompletion(t *testing.T) {
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
		if plan := Make(w.Snapshot); plan.Status.Phase != test.want || plan.Ends != (test.want == completed) {
			t.Errorf("%s: %s\n%s", name, plan.Status.Phase, plan)
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
	if diff := cmp.Diff(want, plan.Status.Conditions); diff != "" || !plan.Status.CompletionTime.Equal(&now) {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]Event{"JobComplete": {"Normal", "ops/check completed: 2 pods succeeded, 1 pods failed"}}, plan.Tell); diff != "" {
		t.Error(diff)
	}
	w.Job.Status = plan.Status
	w.node("n4")
	if got := Make(w.Snapshot); len(got.Create) > 0 || got.Status.Desired != 3 || got.Status.Phase != completed {
		t.Errorf("a node that comes later reopens it: %s", got)
	}
}

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
		t.Error(diff)
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
		if plan := Make(w.Snapshot); plan.Expired != test.expired || plan.After != test.after || len(plan.Create)+len(deleted(plan)) > 0 {
			t.Errorf("%s: expired %t after %s\n%s", name, plan.Expired, plan.After, plan)
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
		if _, changed := plan.FinalStatus(0, nil); changed || plan.After != 0 || len(plan.Tell) > 0 {
			t.Errorf("%+v", plan.Status)
		}
		forever(w.Job) // it does not start again either
		if plan := Make(w.Snapshot); len(plan.Create) > 0 {
			t.Error(plan)
		}
	}
}

// TestNodesChange shows BJ-131, BJ-132, BJ-133, BJ-134 and BJ-135: what becomes of pods whose node changes.
func TestNodesChange(t *testing.T) {
	bad, flap := tainted("bad", corev1.TaintEffectNoExecute), tainted(corev1.TaintNodeNotReady, corev1.TaintEffectNoExecute)
	full := func(node *corev1.Node) { node.Status.Allocatable = nil }
	moved := func(node *corev1.Node) { node.Labels = map[string]string{"pool": "b"} }
	other := func(pod *corev1.Pod) { pod.Annotations = map[string]string{pub.BroadcastJobPlacement: "another"} }
	selects := template(`{"spec":{"restartPolicy":"Never","nodeSelector":{"pool":"a"},"containers":[{"name":"main","image":"check:1"}]}}`)
	requires := template(`{"spec":{"restartPolicy":"Never","containers":[{"name":"main","image":"check:1"}],"affinity":{"nodeAffinity":{` +
		`"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"pool","operator":"In","values":["a"]}]}]}}}}}`)
	for name, test := range map[string]struct {
		job     option
		node    func(*corev1.Node)
		phase   corev1.PodPhase
		change  []func(*corev1.Pod)
		deleted bool
		desired int32
	}{
		"succeeded, cordoned":              {nil, cordoned, corev1.PodSucceeded, nil, false, 1},
		"succeeded, tainted":               {nil, bad, corev1.PodSucceeded, nil, false, 1},
		"failed, relabelled":               {selects, moved, corev1.PodFailed, nil, false, 1},
		"running, cordoned":                {nil, cordoned, corev1.PodRunning, nil, false, 1},
		"running, tainted for others":      {nil, tainted("k", corev1.TaintEffectNoSchedule), corev1.PodRunning, nil, false, 1},
		"running, too small":               {nil, full, corev1.PodRunning, nil, false, 1},
		"pending and bound, cordoned":      {nil, cordoned, corev1.PodPending, nil, false, 1},
		"running, tainted":                 {nil, bad, corev1.PodRunning, nil, true, 0},
		"running, relabelled":              {selects, moved, corev1.PodRunning, nil, true, 0},
		"running, affinity":                {requires, moved, corev1.PodRunning, nil, true, 0},
		"running, the node flaps":          {nil, flap, corev1.PodRunning, nil, false, 1},
		"running, it flaps and is tainted": {nil, func(n *corev1.Node) { flap(n); bad(n) }, corev1.PodRunning, nil, true, 0},
		"running, made by another rule":    {selects, moved, corev1.PodRunning, []func(*corev1.Pod){other}, false, 1},
		"not bound, cordoned":              {nil, cordoned, corev1.PodPending, []func(*corev1.Pod){unbound}, true, 0},
		"not bound, too small":             {nil, full, corev1.PodPending, []func(*corev1.Pod){unbound}, true, 0},
		"not bound, the node flaps":        {nil, flap, corev1.PodPending, []func(*corev1.Pod){unbound}, true, 0},
		"not bound, by another rule":       {nil, func(*corev1.Node) {}, corev1.PodPending, []func(*corev1.Pod){unbound, other}, true, 1},
		"leaving, cordoned":                {nil, cordoned, corev1.PodRunning, []func(*corev1.Pod){leaving}, false, 1},
		"leaving, tainted":                 {nil, bad, corev1.PodRunning, []func(*corev1.Pod){leaving}, false, 0},
		"killed there":                     {nil, bad, corev1.PodFailed, []func(*corev1.Pod){leaving}, false, 0},
	} {
		w := newWorld(t, 0)
		if test.job != nil {
			test.job(w.Job)
		}
		w.node("n1", test.node)
		w.pod("n1", test.phase, test.change...)
		w.Job.Spec.FailurePolicy.Type = appsv1beta1.FailurePolicyContinue
		plan := Make(w.Snapshot)
		if got := len(deleted(plan)) > 0; got != test.deleted || plan.Status.Desired != test.desired || len(plan.Create) > 0 ||
			test.deleted && plan.Status.Failed > 0 {
			t.Errorf("%s: deleted %t, %s\n%s", name, got, sums(&plan.Status), plan)
		}
		if status, _ := plan.FinalStatus(0, carriedOut(plan)); test.deleted && status.Active+status.Failed > 0 {
			t.Errorf("%s: %s", name, sums(status))
		}
		if !test.deleted && test.desired > 0 && len(plan.Counted) != 1 {
			t.Errorf("%s: counted %v", name, plan.Counted)
		}
		well := w.Nodes[0]
		well.Spec, well.Labels = corev1.NodeSpec{}, map[string]string{"pool": "a"}
		well.Status = newWorld(t, 1).Nodes[0].Status
		w.Pods = nil
		w.expect(name+", and it is well again", "n1", "", running, "1 active, 0 succeeded, 0 failed of 1")
		forever(w.Job)
		w.expect(name+", and it is well again, forever", "n1", "", running, "1 active, 0 succeeded, 0 failed of 1")
	}
	w := newWorld(t, 1)
	w.pod("gone", corev1.PodRunning)
	w.pod("gone", corev1.PodFailed, named("failed-there")) // by the garbage collector: no failure of the job
	w.pod("never", corev1.PodPending, unbound)
	w.pod("", corev1.PodPending, named("lost"))
	w.expect("nodes are gone", "n1", "lost on-never", running, "4 active, 0 succeeded, 0 failed of 1")
}

// TestDuplicates shows BJ-044: of two pods on a node the finished one stays, or else the older.
func TestDuplicates(t *testing.T) {
	for name, test := range map[string]struct {
		first, second corev1.PodPhase
		change        func(*corev1.Pod)
		deleted       string
	}{
		"both run":                      {corev1.PodRunning, corev1.PodRunning, nil, "second"},
		"the younger succeeded":         {corev1.PodRunning, corev1.PodSucceeded, nil, "first"},
		"the younger failed":            {corev1.PodRunning, corev1.PodFailed, nil, "first"},
		"the older succeeded":           {corev1.PodSucceeded, corev1.PodRunning, nil, "second"},
		"both finished":                 {corev1.PodFailed, corev1.PodSucceeded, nil, "second"},
		"the younger is not bound":      {corev1.PodRunning, corev1.PodPending, unbound, "second"},
		"the younger is being deleted":  {corev1.PodRunning, corev1.PodRunning, leaving, ""},
		"it is, and finished meanwhile": {corev1.PodRunning, corev1.PodSucceeded, leaving, ""},
	} {
		w := newWorld(t, 1, policy(appsv1beta1.FailurePolicyContinue))
		w.pod("n1", test.first, named("first"))
		second := w.pod("n1", test.second, named("second"))
		if test.change != nil {
			test.change(second)
		}
		plan := Make(w.Snapshot)
		if got := strings.Join(deleted(plan), " "); got != test.deleted || (plan.Tell[ToldDuplicate].Type == "Warning") != (test.deleted != "") {
			t.Errorf("%s: deletes %q, tells %v\n%s", name, got, plan.Tell, plan)
		}
	}
}

// TestBadSpecs shows that a job which was stored before anybody checked it does nothing, and says why.
func TestBadSpecs(t *testing.T) {
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
		if plan.Tell[ToldBadSpec].Message == "" || plan.ScaleError == "" || plan.After != 0 {
			t.Errorf("%s: %v", name, plan.Tell)
		}
	}
}

// held is a budget that lets none go.
type held struct{}

func (held) Take(*corev1.Pod, disruption.Operation) string { return "budget b allows 0" }

// TestBudgets shows BJ-172: what a budget holds, of a job that fails and of a node that does not fit, is
// tried again, and the phase does not wait for it.
func TestBudgets(t *testing.T) {
	w := newWorld(t, 2)
	w.Disruptions = held{}
	w.pod("n1", corev1.PodFailed)
	w.pod("n2", corev1.PodRunning)
	for range 2 {
		plan := w.expect("held", "", "", failed, "1 active, 0 succeeded, 2 failed of 2")
		if !plan.HeldByBudget || plan.Waiting == nil || !strings.Contains(plan.Waiting.String(), "budget b allows 0") || plan.After != time.Second {
			t.Errorf("%v after %s", plan.Waiting, plan.After)
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

// TestFinalStatus shows BJ-074 and BJ-140: the status counts what was done, not what was tried.
func TestFinalStatus(t *testing.T) {
	w := newWorld(t, 3)
	w.node("bad", tainted("bad", corev1.TaintEffectNoExecute))
	w.pod("n1", corev1.PodSucceeded)
	w.pod("bad", corev1.PodRunning)
	plan := Make(w.Snapshot)
	if len(plan.Create) != 2 {
		t.Fatal(plan)
	}
	for created, want := range []string{"0 active, 1 succeeded, 0 failed of 3", "1 active, 1 succeeded, 0 failed of 3"} {
		if status, changed := plan.FinalStatus(created, carriedOut(plan)); sums(status) != want || !changed {
			t.Errorf("%d created: %s", created, sums(status))
		}
	}
	if status, _ := plan.FinalStatus(0, nil); status.Active != 1 {
		t.Error(sums(status))
	}
	if OnlyNumbers(&w.Job.Status, &plan.Status) != true || OnlyNumbers(&w.Job.Status, &appsv1beta1.BroadcastJobStatus{}) {
		t.Error("only numbers")
	}
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
		t.Error(errs)
	}
	plan := w.expect("all changed", "n4", "", running, "2 active, 1 succeeded, 0 failed of 3")
	if spec := plan.Create[0].Pod["spec"].(map[string]any); spec["restartPolicy"] != "OnFailure" {
		t.Errorf("%v", spec)
	}
	policy(appsv1beta1.FailurePolicyFailFast)(w.Job)
	w.pod("n4", corev1.PodFailed)
	w.expect("the policy, too", "", "on-n2", failed, "1 active, 1 succeeded, 2 failed of 3")
	bad := w.Job.DeepCopy()
	bad.Spec.FailurePolicy.Type = "Cry"
	if errs := Validate(WrittenInV1beta1(bad), WrittenInV1beta1(w.Job)); len(errs) != 1 {
		t.Error(errs)
	}
	w = newWorld(t, 2, over(completed, time.Hour))
	w.pod("n1", corev1.PodSucceeded)
	template(`{"spec":{"restartPolicy":"Never","containers":[{"name":"main","image":"check:2"}]}}`)(w.Job)
	w.expect("a job that has ended", "", "", completed, "0 active, 0 succeeded, 0 failed of 0")
}
