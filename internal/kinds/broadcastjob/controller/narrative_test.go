package controller

import (
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	policyv1beta1 "github.com/afloat-project/afloat/api/policy/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/broadcastjob"
	"github.com/afloat-project/afloat/internal/kinds/podunavailablebudget/controller/guardtest"
	"github.com/afloat-project/afloat/internal/kinds/podunavailablebudget/podunavailablebudgettest"
	"github.com/afloat-project/afloat/internal/reconcile/podapply"
	"github.com/afloat-project/afloat/internal/simulation/simulationtest"
)

var update = flag.Bool("update", false, "write the golden narratives")

// tale is a job whose every plan is written down.
type tale struct {
	*simulated
	t    *testing.T
	text simulationtest.Narrative
}

// then lets the user do something, and everybody act for two minutes.
func (n *tale) then(title string, do option) {
	fmt.Fprintf(&n.text, "\n# %s\n", title)
	if do != nil {
		n.change(do)
	}
	n.RunFor(2 * time.Minute)
	if n.job() == nil {
		fmt.Fprintf(&n.text, "\nThen: the job is gone.\n")
		return
	}
	is := n.job().Status
	fmt.Fprintf(&n.text, "\nThen: %s: %d active, %d succeeded, %d failed, %d desired; pods: %s.\n", is.Phase, is.Active, is.Succeeded, is.Failed,
		is.Desired, n.counts())
}

// work lets the pods of some nodes run on, those of others fail, and all others succeed.
func (n *tale) work(running, failing string) {
	n.ends = func(pod *corev1.Pod) corev1.PodPhase {
		switch {
		case strings.Contains(running, pod.Spec.NodeName):
			return ""
		case strings.Contains(failing, pod.Spec.NodeName):
			return corev1.PodFailed
		}
		return corev1.PodSucceeded
	}
}

func onFailureRestart(job *appsv1beta1.BroadcastJob) { setTemplate(job, templateOf("OnFailure", "{}")) }

func pause(paused bool) option {
	return func(job *appsv1beta1.BroadcastJob) { job.Spec.Paused = paused }
}

// TestNarratives plays jobs and compares every plan, as printed, with a golden file; -update writes them.
func TestNarratives(t *testing.T) {
	for title, story := range map[string]struct {
		job  *appsv1beta1.BroadcastJob
		tell func(*tale)
	}{
		"two nodes at a time": {makeJob(parallelism(percent("40%"))), func(n *tale) { n.then("created", nil) }},
		"a pod fails": {makeJob(parallelism(number(3))), func(n *tale) {
			n.work("n3", "n2")
			n.then("created", nil)
		}},
		"paused by a failure": {makeJob(parallelism(number(1)), onFailure(appsv1beta1.FailurePolicyPause)), func(n *tale) {
			n.work("", "n2 n4")
			n.then("created", nil)
			n.then("the user pauses it", pause(true))
			n.then("and lets it go on", pause(false))
			n.then("failures are counted from now on", onFailure(appsv1beta1.FailurePolicyContinue))
		}},
		"a deadline and a time to live": {makeJob(func(job *appsv1beta1.BroadcastJob) {
			deadline, ttl := int64(60), int32(150)
			job.Spec.CompletionPolicy.ActiveDeadlineSeconds, job.Spec.CompletionPolicy.TTLSecondsAfterFinished = &deadline, &ttl
		}), func(n *tale) {
			n.work("n1 n5", "")
			n.then("created", nil)
			n.then("two minutes later", nil)
		}},
		"nodes come and go": {makeJob(func(job *appsv1beta1.BroadcastJob) {
			job.Spec.CompletionPolicy.Type, job.Spec.FailurePolicy.Type = appsv1beta1.CompletionNever, appsv1beta1.FailurePolicyContinue
		}), func(n *tale) {
			n.work("n1 n2 n3", "")
			n.then("created", nil)
			n.Change(nodeKey("n1"), toNode(func(node *corev1.Node) { node.Spec.Unschedulable = true }))
			n.Change(nodeKey("n2"), toNode(func(node *corev1.Node) {
				node.Spec.Taints = []corev1.Taint{{Key: "broken", Effect: corev1.TaintEffectNoExecute}}
			}))
			n.Remove(nodeKey("n3"))
			n.Remove(nodeKey("n4"))
			n.addNode("n6")
			n.then("n1 is cordoned, n2 is tainted, n3 and n4 are gone, n6 comes", nil)
			n.Change(nodeKey("n2"), toNode(func(node *corev1.Node) { node.Spec.Taints = nil }))
			n.work("", "")
			n.then("n2 is mended, and all pods end", nil)
		}},
		"restarts over the limit": {makeJob(onFailureRestart, onFailure(appsv1beta1.FailurePolicyContinue), parallelism(number(2)),
			func(job *appsv1beta1.BroadcastJob) { job.Spec.FailurePolicy.RestartLimit = 1 }), func(n *tale) {
			crashes := 0
			n.ends = func(pod *corev1.Pod) corev1.PodPhase {
				switch {
				case pod.Spec.NodeName != "n2":
					return corev1.PodSucceeded
				case crashes == 4:
					return "" // it waits to be started again
				}
				crashes++
				return corev1.PodFailed
			}
			n.then("created", nil)
		}},
		"a budget holds a deletion": {makeJob(), func(n *tale) { // BJ-172 (part)
			n.work("n1 n2 n3 n4 n5", "")
			n.then("created", nil)
			budget := podunavailablebudgettest.Budget(func(b *policyv1beta1.PodUnavailableBudget) {
				b.Namespace = "default"
				b.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "check"}}
			})
			n.guard = &guardtest.Guard{Budget: budget, Now: n.Now, Pods: n.AllPods, Replicas: func() int32 { return int32(len(n.AllPods())) }}
			for _, pod := range n.AllPods() {
				n.Change(podKey(pod.Name), toPod(func(p *corev1.Pod) {
					p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
				}))
			}
			n.kube.Guard = n.guard
			n.work("n1 n2 n3 n4", "n5")
			n.then("a pod fails", nil)
		}},
	} {
		t.Run(title, func(t *testing.T) {
			n := &tale{t: t, simulated: simulate(1, story.job, "n1", "n2", "n3", "n4", "n5")}
			n.Planned = func(plan *broadcastjob.Plan, _ podapply.Outcome) {
				n.text.Plan(n.Now(), plan.Headline())
			}
			story.tell(n)
			simulationtest.Golden(t, title, n.text.String(), n.Recorded, *update)
		})
	}
}
