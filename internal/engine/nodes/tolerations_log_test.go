package nodes

import (
	"fmt"
	"testing"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
)

// ADS-083, BJ-032 (part): a tenant's template tolerates taints by numbers, and the taint of a node, here the one of the control plane, has no number as its value. That says that
// it is not tolerated, and nothing of it is for the manager's log: each pass and each event of a node would write a line for each such toleration and node.
func TestTolerationsByNumbersDoNotFillTheLog(t *testing.T) {
	lines := 0
	klog.SetLogger(funcr.New(func(_, _ string) { lines++ }, funcr.Options{}))
	defer klog.ClearLogger()
	spec := &corev1.PodSpec{}
	for i := range 1000 {
		spec.Tolerations = append(spec.Tolerations, corev1.Toleration{Key: "node-role.kubernetes.io/control-plane",
			Operator: corev1.TolerationOpGt, Value: fmt.Sprint(i)})
	}
	node := &corev1.Node{Spec: corev1.NodeSpec{Taints: []corev1.Taint{
		{Key: "node-role.kubernetes.io/control-plane", Effect: corev1.TaintEffectNoSchedule}}}}
	for name, rules := range map[string]*Rules{"DaemonSet": ForDaemon(spec), "BroadcastJob": ForJob(spec)} {
		lines = 0
		if rules.Judge(node).Eligible {
			t.Errorf("%s: the taint is tolerated", name)
		}
		if lines > 0 {
			t.Errorf("%s: one look at one node writes %d errors to the log", name, lines)
		}
	}
}
