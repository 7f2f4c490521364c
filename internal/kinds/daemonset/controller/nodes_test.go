package controller

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/kinds/daemonset"
	"github.com/afloat-project/afloat/internal/simulation"
)

// TestWhichNodesCallASet shows ADS-084, ADS-085, ADS-086 and ADS-D14: which sets are called when a node
// comes, goes, or changes. Of the sets, "ssd" has pods on nodes with such a disk, "canary" updates chosen
// nodes, "asleep" would, but is OnDelete, and "patient" leaves nodes out that are not ready for long.
func TestWhichNodesCallASet(t *testing.T) {
	s := simulate(1, makeSet(), everything)
	add := func(name string, options ...option) {
		set := makeSet(options...)
		set.Name = name
		s.Store(simulation.Key{Kind: "DaemonSet", Name: name}, set)
	}
	chosen := rolling(func(r *appsv1beta1.RollingUpdateDaemonSet) {
		r.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"canary": "yes"}}
	})
	add("ssd", func(set *appsv1beta1.DaemonSet) {
		setTemplate(set, `{"metadata":{"labels":{"app":"agent"}},"spec":{"nodeSelector":{"disk":"ssd"},"containers":[{"name":"a","image":"a"}]}}`)
	})
	add("canary", chosen)
	add("any", rolling(func(r *appsv1beta1.RollingUpdateDaemonSet) { r.Selector = &metav1.LabelSelector{} }))
	add("asleep", chosen, onDelete)
	add("patient", annotated(pub.DaemonSetIgnoreNotReadyNodesAfter, "5m"))
	s.Events(1 << 20)
	all := "agent any asleep canary patient"
	node := func(change func(*corev1.Node)) *corev1.Node {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{"zone": "a"}, ResourceVersion: "1"},
			Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}}
		if change != nil {
			change(node)
		}
		return node
	}
	label := func(key, value string) func(*corev1.Node) {
		return func(node *corev1.Node) { node.Labels[key] = value }
	}
	taint := func(key string, effect corev1.TaintEffect) func(*corev1.Node) {
		return func(node *corev1.Node) { node.Spec.Taints = []corev1.Taint{{Key: key, Effect: effect}} }
	}
	plain := node(nil)
	for name, tt := range map[string]struct {
		before, after *corev1.Node
		want          string
	}{
		"it comes":                  {nil, plain, all},
		"one with an SSD comes":     {nil, node(label("disk", "ssd")), all + " ssd"},
		"one that takes none comes": {nil, node(taint("x", corev1.TaintEffectNoExecute)), ""},
		"it goes":                   {plain, nil, all},
		"one with an SSD goes":      {node(label("disk", "ssd")), nil, all + " ssd"},
		"nothing":                   {plain, node(func(n *corev1.Node) { n.ResourceVersion = "2" }), ""},
		"a heartbeat":               {plain, node(func(n *corev1.Node) { n.Status.Conditions[0].LastHeartbeatTime.Time = time.Now() }), ""},
		"another condition": {plain, node(func(n *corev1.Node) {
			n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: "DiskPressure", Status: "True"})
		}), ""},
		"an annotation":             {plain, node(func(n *corev1.Node) { n.Annotations = map[string]string{"a": "b"} }), ""},
		"a label that nobody reads": {plain, node(label("zone", "b")), ""},
		"it gets an SSD":            {plain, node(label("disk", "ssd")), "ssd"},
		"it loses it":               {node(label("disk", "ssd")), plain, "ssd"},
		"it is chosen":              {plain, node(label("canary", "yes")), "canary"},
		"it is chosen no more":      {node(label("canary", "yes")), plain, "canary"},
		"a taint against new pods":  {plain, node(taint("x", corev1.TaintEffectNoSchedule)), all},
		"and one that evicts":       {node(taint("x", corev1.TaintEffectNoSchedule)), node(taint("x", corev1.TaintEffectNoExecute)), all},
		"a lost node takes no pods, and did before": {node(taint(corev1.TaintNodeUnreachable, corev1.TaintEffectNoSchedule)),
			node(taint("x", corev1.TaintEffectNoSchedule)), all},
		"a taint that all tolerate": {plain, node(taint(corev1.TaintNodeUnreachable, corev1.TaintEffectNoExecute)), ""},
		"it is cordoned":            {plain, node(func(n *corev1.Node) { n.Spec.Unschedulable = true }), ""},
		"it is not ready":           {plain, node(func(n *corev1.Node) { n.Status.Conditions[0].Status = "Unknown" }), "patient"},
	} {
		var names []string
		for _, request := range s.kube.setsOfNode(context.Background(), tt.before, tt.after) {
			names = append(names, request.Name)
		}
		slices.Sort(names)
		if got := strings.Join(names, " "); got != tt.want {
			t.Errorf("%s: %q is called, not %q", name, got, tt.want)
		}
	}
	s.Change(simulation.Key{Kind: "DaemonSet", Name: "ssd"}, func(o client.Object) {
		set := o.(*appsv1beta1.DaemonSet)
		set.Generation = 2
		image("agent:2")(set)
	})
	s.Events(1 << 20)
	if n := len(s.kube.setsOfNode(context.Background(), nil, plain)); n != 6 {
		t.Errorf("%d sets are called after one has another template", n)
	}
}

// TestANodeIsLostBeforeItsNewPodComes shows ADS-121 (part): the update deletes a pod, and its node is lost before it gets
// the next one. No other pod goes before the node is back; then the rollout goes on.
func TestANodeIsLostBeforeItsNewPodComes(t *testing.T) {
	for _, pruned := range []bool{true, false} {
		s := started(t, makeSet(), daemonset.Features{PruneIneligible: pruned}, "n1", "n2")
		first := s.only(t, "n2").Name
		s.Node.Frozen[first] = true
		s.Edit(image("agent:2"))
		s.RunFor(time.Minute)
		if pod := s.only(t, "n2"); pod.DeletionTimestamp == nil {
			t.Fatalf("pod %s is not deleted", pod.Name)
		}
		s.taint("n2", corev1.TaintNodeNotReady, corev1.TaintEffectNoSchedule)
		s.Node.Frozen[first] = false
		s.RunFor(time.Minute)
		if got := s.images(); got != "1 " {
			t.Errorf("images while n2 lacks a pod: got %q, want %q; the gate is on: %t", got, "1 ", pruned)
		}
		s.taint("n2", "", "")
		s.RunFor(time.Minute)
		if got := s.images(); got != "2 2" {
			t.Errorf("images when n2 is back: got %q, want %q; the gate is on: %t", got, "2 2", pruned)
		}
	}
}

// TestNodesComeAndGo shows ADS-001 (part), ADS-084 (part), ADS-086 (part) and ADS-190 (part): every eligible
// node gets one pod, and what the status says follows the nodes without any other event.
func TestNodesComeAndGo(t *testing.T) {
	s := started(t, makeSet(), everything, "n1", "n2")
	status := func(desired, current, misscheduled int32) {
		t.Helper()
		s.RunFor(time.Minute)
		is := s.set().Status
		if is.DesiredNumberScheduled != desired {
			t.Errorf("desired pods: got %d, want %d\n%+v", is.DesiredNumberScheduled, desired, is)
		}
		if is.CurrentNumberScheduled != current {
			t.Errorf("scheduled pods: got %d, want %d\n%+v", is.CurrentNumberScheduled, current, is)
		}
		if is.NumberMisscheduled != misscheduled {
			t.Errorf("misscheduled pods: got %d, want %d\n%+v", is.NumberMisscheduled, misscheduled, is)
		}
	}
	s.addNode("n3", nil)
	status(3, 3, 0)
	s.taint("n3", "closed", corev1.TaintEffectNoSchedule)
	status(2, 2, 1)
	s.Remove(nodeKey("n2"))
	status(1, 1, 1)
	s.taint("n3", "broken", corev1.TaintEffectNoExecute)
	status(1, 1, 0)
	if got := len(s.PodsOn("n3")) + len(s.PodsOn("n2")); got > 0 {
		t.Errorf("number of pods on n3 and pods on n2: got %d, want 0\n%s", got, s.describe())
	}
	s.Remove(nodeKey("n3"))
	s.addNode("n3", nil)
	status(2, 2, 0)
}
