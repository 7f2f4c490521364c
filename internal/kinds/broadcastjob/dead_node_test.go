package broadcastjob

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// BJ-110 (part): the template tolerates all taints, as in the first example of the spec, and a node is lost while its pod runs. The pod is never evicted, and the job waits until the
// node comes back or is removed: what it waits for is said.
func TestAJobThatWaitsForALostNodeSaysSo(t *testing.T) {
	w := newWorld(t, 1, template(`{"spec":{"restartPolicy":"Never","tolerations":[{"operator":"Exists"}],"containers":[{"name":"main","image":"check:1"}]}}`))
	w.node("n2", tainted(corev1.TaintNodeUnreachable, corev1.TaintEffectNoExecute), tainted(corev1.TaintNodeUnreachable, corev1.TaintEffectNoSchedule),
		func(node *corev1.Node) {
			node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown,
				LastTransitionTime: metav1.NewTime(planTime.Add(-86400e9))}}
		})
	w.pod("n1", corev1.PodSucceeded)
	w.pod("n2", corev1.PodRunning, func(pod *corev1.Pod) {
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse}}
	})
	plan := Make(w.Snapshot)
	if text := plan.String() + strings.Join(plan.Summary(), "\n"); plan.Waiting == nil && !strings.Contains(text, "unreachable") && !strings.Contains(text, "not ready") {
		t.Errorf("the node was lost a day ago, and nothing says that the job waits for it:\n%s", text)
	}
}
