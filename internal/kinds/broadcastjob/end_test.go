package broadcastjob

import (
	"strings"
	"testing"
	"time"

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
		if plan = Make(w.Snapshot); plan.Status.Failed != 2 || plan.Status.Active != 0 {
			t.Errorf("%s: %s", name, sums(&plan.Status))
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
			t.Error(text)
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
		if plan := Make(w.Snapshot); plan.Status.Phase != tt.want || plan.After != tt.after {
			t.Errorf("%s: %s, %s; again after %s", name, plan.Status.Phase, sums(&plan.Status), plan.After)
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
