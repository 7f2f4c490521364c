package broadcastjob

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
)

// TestPodsFollowTheChangesOfTheirNodes shows BJ-131, BJ-132, BJ-133, BJ-134 and BJ-135: what becomes of pods
// whose node changes.
func TestPodsFollowTheChangesOfTheirNodes(t *testing.T) {
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
		got := len(deleted(plan)) > 0
		if got != test.deleted {
			t.Errorf("%s: pods are deleted: got %t, want %t; deleted %t, %s\n%s", name, got, test.deleted, got,
				sums(&plan.Status), plan)
		}
		if plan.Status.Desired != test.desired {
			t.Errorf("%s: desired: got %d, want %d; deleted %t, %s\n%s", name, plan.Status.Desired, test.desired, got,
				sums(&plan.Status), plan)
		}
		if len(plan.Create) > 0 {
			t.Errorf("%s: created: got %v, want none; deleted %t, %s\n%s", name, plan.Create, got, sums(&plan.Status),
				plan)
		}
		if test.deleted && plan.Status.Failed > 0 {
			t.Errorf("%s: failed: got %d, want 0; deleted %t, %s\n%s", name, plan.Status.Failed, got,
				sums(&plan.Status), plan)
		}
		if status, _ := plan.FinalStatus(0, carriedOut(plan)); test.deleted && status.Active+status.Failed > 0 {
			t.Errorf("%s: number active and failed: got %d, want 0\n%s", name, status.Active+status.Failed,
				sums(status))
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

// TestOfTwoPodsOnANodeTheFinishedOneStays shows BJ-044: of two pods on a node the finished one stays, or else
// the older.
func TestOfTwoPodsOnANodeTheFinishedOneStays(t *testing.T) {
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
		got := strings.Join(deleted(plan), " ")
		if got != test.deleted {
			t.Errorf("%s: deleted: got %q, want %q; deletes %q, tells %v\n%s", name, got, test.deleted, got,
				plan.Tell, plan)
		}
		if (plan.Tell[ToldDuplicate].Type == "Warning") != (test.deleted != "") {
			t.Errorf("%s: a warning of the duplicate is told: got %t, want %t; deletes %q, tells %v\n%s", name,
				plan.Tell[ToldDuplicate].Type == "Warning", test.deleted != "", got, plan.Tell, plan)
		}
	}
}
