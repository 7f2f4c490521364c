package daemonset

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/afloat-project/afloat/internal/engine/podplan"
)

// TestNodesOfASet shows ADS-080, ADS-081 (part), ADS-082, ADS-083 and ADS-090: where pods are created, where
// they stay, and where they are deleted. n1 has a pod and n2 has none; "+" is an eligible node, "." one that
// is only tolerable, "-" neither.
func TestNodesOfASet(t *testing.T) {
	const affinity = `"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[` +
		`{"matchExpressions":[{"key":"disk","operator":"In","values":["ssd"]}]}]}}}`
	const notReady, noSchedule = corev1.TaintNodeNotReady, corev1.TaintEffectNoSchedule
	for name, tt := range map[string]struct {
		spec, node string
		state      nodeState
	}{
		"any node":                    {"", "+", labelled("a", "b")},
		"the selector matches":        {`"nodeSelector":{"disk":"ssd"}`, "+", labelled("disk", "ssd")},
		"the selector does not":       {`"nodeSelector":{"disk":"ssd"}`, "-", labelled("disk", "hdd")},
		"the affinity matches":        {affinity, "+", labelled("disk", "ssd")},
		"the affinity does not":       {affinity, "-", labelled("disk", "hdd")},
		"another node is named":       {`"nodeName":"n9"`, "-", labelled("a", "b")},
		"a taint that evicts":         {"", "-", evicting},
		"tolerated":                   {`"tolerations":[{"key":"broken","operator":"Exists"}]`, "+", evicting},
		"a taint against new pods":    {"", ".", closed},
		"both":                        {"", "-", func(node *corev1.Node) { evicting(node); closed(node) }},
		"a wish":                      {"", "+", tainted("wish", corev1.TaintEffectPreferNoSchedule)},
		"cordoned":                    {"", "+", cordoned},
		"cordoned and tainted":        {"", "+", tainted(corev1.TaintNodeUnschedulable, noSchedule)},
		"not ready":                   {"", "+", tainted(notReady, corev1.TaintEffectNoExecute)},
		"not ready, against new pods": {"", ".", tainted(notReady, noSchedule)},
		"unreachable":                 {"", "+", tainted(corev1.TaintNodeUnreachable, corev1.TaintEffectNoExecute)},
		"short of disk":               {"", "+", tainted(corev1.TaintNodeDiskPressure, noSchedule)},
		"short of memory":             {"", "+", tainted(corev1.TaintNodeMemoryPressure, noSchedule)},
		"short of processes":          {"", "+", tainted(corev1.TaintNodePIDPressure, noSchedule)},
		"without a network":           {"", ".", tainted(corev1.TaintNodeNetworkUnavailable, noSchedule)},
		"which the pod does not need": {`"hostNetwork":true`, "+", tainted(corev1.TaintNodeNetworkUnavailable, noSchedule)},
		"too small, and its ports used": {`"hostNetwork":true,"volumes":[{"name":"d","persistentVolumeClaim":{"claimName":"gone"}}],` +
			`"affinity":{"podAntiAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[{"topologyKey":"kubernetes.io/hostname",` +
			`"labelSelector":{}}]}},"resources":{"requests":{"cpu":"99"}}`, "+", labelled("a", "b")},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 2)
			var members []string
			if tt.spec != "" {
				members = append(members, tt.spec)
			}
			w.at("a:1", members...)
			for _, node := range []string{"n1", "n2"} {
				w.node(node, tt.state)
			}
			w.pod("n1", "a:1")
			plan := w.does(map[string]string{"+": "+n2", ".": "", "-": "-n1"}[tt.node])
			if want := map[string]int32{"+": 2}[tt.node]; plan.Status.DesiredNumberScheduled != want {
				t.Errorf("%d nodes are desired", plan.Status.DesiredNumberScheduled)
			}
			if _, reason, words := why(plan, "n1"); tt.node == "-" && (reason != ReasonNode || !strings.Contains(words, "node n1")) {
				t.Errorf("n1: got %s: %s, want %s with its name", reason, words, ReasonNode)
			}
		})
	}
	w := newWorld(t, 2)
	w.at("a:1", `"nodeName":"n1"`)
	w.expect("+n1 a:1")
}

// TestPodsOfANode shows ADS-090 (part), ADS-091 (part), ADS-093, ADS-094 and ADS-095: what becomes of the
// pods of a node, without a surge and with one. Of pods too many one that is available is kept.
func TestPodsOfANode(t *testing.T) {
	second := func(d time.Duration) state { return born(d) }
	for name, tt := range map[string]struct {
		node          nodeState
		pods          func(*world)
		plain, surged string
	}{
		"none":                   {nil, func(*world) {}, "+n1", "+n1"},
		"one":                    {nil, func(w *world) { w.pod("n1", "a:2") }, "", ""},
		"one that is deleted":    {nil, func(w *world) { w.pod("n1", "a:2", terminating) }, "", "+n1"},
		"two that are":           {nil, func(w *world) { w.pod("n1", "a:2", terminating); w.pod("n1", "a:2", terminating) }, "", "+n1"},
		"deleted, on a closed":   {closed, func(w *world) { w.pod("n1", "a:2", terminating) }, "", ""},
		"deleted, on an evicted": {evicting, func(w *world) { w.pod("n1", "a:2", terminating); w.pod("n1", "a:2") }, "-n1-2", "-n1-2"},
		"failed":                 {nil, func(w *world) { w.pod("n1", "a:2", failed) }, "-n1", "-n1"},
		"failed, on a closed":    {closed, func(w *world) { w.pod("n1", "a:2", failed) }, "-n1", "-n1"},
		"failed beside another":  {nil, func(w *world) { w.pod("n1", "a:2", failed); w.pod("n1", "a:2") }, "-n1", "-n1"},
		"the older one": {nil, func(w *world) { w.pod("n1", "a:2", second(time.Minute)); w.pod("n1", "a:2", second(time.Hour)) },
			"-n1", "-n1"},
		"the scheduled one": {nil, func(w *world) {
			w.pod("n1", "a:2", unscheduled, second(time.Hour))
			w.pod("n1", "a:2", notReadyPod, second(time.Minute))
		}, "-n1", "-n1"},
		"by name": {nil, func(w *world) { w.pod("n1", "a:2", named("b")); w.pod("n1", "a:2", named("a")) }, "-b", "-b"},
		"the available one": {nil, func(w *world) {
			w.pod("n1", "a:2", notReadyPod, second(time.Hour))
			w.pod("n1", "a:2", second(time.Minute))
		}, "-n1", "-n1"},
		"an old and a new one": {nil, func(w *world) { w.pod("n1", "a:1"); w.pod("n1", "a:2", second(time.Minute)) }, "-n1-2", "-n1"},
		"the new one is not available": {nil, func(w *world) {
			w.pod("n1", "a:1")
			w.pod("n1", "a:2", notReadyPod, second(time.Minute))
		}, "-n1-2", ""},
		"neither is": {nil, func(w *world) {
			w.pod("n1", "a:1", notReadyPod)
			w.pod("n1", "a:2", notReadyPod, second(time.Minute))
		}, "-n1-2", "-n1"},
		"two of each": {nil, func(w *world) {
			w.pod("n1", "a:1", named("old1"), second(4*time.Minute))
			w.pod("n1", "a:1", named("old2"), second(3*time.Minute))
			w.pod("n1", "a:2", named("new1"), notReadyPod, second(2*time.Minute))
			w.pod("n1", "a:2", named("new2"), notReadyPod, second(time.Minute))
		}, "-old2 -new1 -new2", "-old2 -new2"},
		"preparing, and let go": {nil, func(w *world) { w.pod("n1", "a:2", preparing) }, "-n1", "-n1 +n1"},
		"preparing, and held":   {nil, func(w *world) { w.pod("n1", "a:2", preparing, draining) }, "", "+n1"},
		"two preparing, and held": {nil, func(w *world) {
			w.pod("n1", "a:1", preparing, draining)
			w.pod("n1", "a:2", preparing, draining)
		}, "", ""},
		"preparing, held, a closed": {closed, func(w *world) { w.pod("n1", "a:2", preparing, draining) }, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			for surge, want := range map[int]string{0: tt.plain, 1: tt.surged} {
				w := newWorld(t, 1, maxSurge(surge), hooked)
				w.at("a:1")
				w.at("a:2")
				if tt.node != nil {
					w.node("n1", tt.node)
				}
				tt.pods(w)
				w.does(want)
			}
		})
	}
}

// TestTheNewPodBecomesAvailable shows ADS-095 (part) and ADS-163 (part): while the new pod is ready, but not
// for long enough, the set is looked at again when it will be.
func TestTheNewPodBecomesAvailable(t *testing.T) {
	w := newWorld(t, 1, maxSurge(1), minReady(30))
	w.at("a:1")
	w.at("a:2")
	w.pod("n1", "a:1")
	w.pod("n1", "a:2", readyFor(10*time.Second), born(time.Minute))
	plan := w.does("")
	if plan.After < 20*time.Second {
		t.Errorf("time to the next pass: got %v, want at least %v", plan.After, 20*time.Second)
	}
	if plan.After > 21*time.Second {
		t.Errorf("time to the next pass: got %v, want at most %v", plan.After, 21*time.Second)
	}
	w.Now = planTime.Add(plan.After)
	w.does("-n1")
}

// TestFailuresBackOff shows ADS-091 (part) and ADS-164 (part): a pod that failed stays as long as the
// back-off of its node lasts, and no pod comes beside another one there. The time ends that.
func TestFailuresBackOff(t *testing.T) {
	w := newWorld(t, 2, maxSurge(2))
	w.at("a:1")
	w.at("a:2")
	until := planTime.Add(8 * time.Second)
	w.FailedUntil = map[string]time.Time{"n1": until}
	w.pod("n1", "a:2", failed)
	w.pod("n2", "a:2", failed).Status.Reason = "Evicted"
	plan := w.does("-n2")
	w.holds(plan, "n1", podplan.ReasonFailed)
	if _, _, words := why(plan, "n2"); words != "it ended with phase Failed (Evicted)" {
		t.Errorf("words: got %q, want %q", words, "it ended with phase Failed (Evicted)")
	}
	if plan.After != 8*time.Second {
		t.Errorf("time to the next pass: got %v, want %v; after %s, failures %+v", plan.After, 8*time.Second,
			plan.After, plan.Failures)
	} else if len(plan.Failures) != 1 {
		t.Errorf("number of failures: got %d, want 1; after %s, failures %+v", len(plan.Failures), plan.After,
			plan.Failures)
	} else if plan.Failures[0].Node != "n2" {
		t.Errorf("node of the first failure: got %q, want %q; after %s, failures %+v", plan.Failures[0].Node, "n2",
			plan.After, plan.Failures)
	}
	w.Pods = nil
	w.on("n1 n2", "a:1")
	plan = w.does("+n2")
	w.holds(plan, "n1", podplan.ReasonFailed)
	if plan.After != 8*time.Second {
		t.Errorf("looked at again after %s", plan.After)
	}
	w.Now = until
	w.does("+n1 +n2")
	w.Pods = nil
	w.pod("n1", "a:2", failed)
	w.pod("n2", "a:2")
	w.does("-n1")
	w = newWorld(t, 2) // what the rollout replaces need not wait
	w.at("a:1")
	w.at("a:2")
	w.FailedUntil = map[string]time.Time{"n1": until}
	w.pod("n1", "a:1", failed)
	w.pod("n2", "a:2")
	w.does("-n1")
	paused(w.Set)
	w.holds(w.does(""), "n1", podplan.ReasonFailed)
}

// TestAPodThatEndedWellIsReplacedWithinTheBackOff shows ADS-092 (part): a pod that ended well is deleted as
// one that failed, so that another takes its place, within the same back-off.
func TestAPodThatEndedWellIsReplacedWithinTheBackOff(t *testing.T) {
	w := newWorld(t, 2)
	w.at("a:1")
	w.on("n1 n2", "a:1", succeeded)
	w.FailedUntil = map[string]time.Time{"n2": planTime.Add(time.Second)}
	w.holds(w.does("-n1"), "n2", podplan.ReasonFailed)
	w.Pods = w.Pods[1:]
	w.FailedUntil = nil
	w.does("-n2 +n1")
}

// TestPodsOfNodesThatAreGone shows ADS-096: a pod that is meant for a node that does not exist, and is on
// none, is deleted. One that was there goes with its node. Pods that are meant for no node are left alone.
func TestPodsOfNodesThatAreGone(t *testing.T) {
	w := newWorld(t, 1)
	w.at("a:1")
	w.pod("n1", "a:1")
	w.pod("n8", "a:1", unscheduled)
	w.pod("n9", "a:1")
	w.pod("nowhere", "a:1", func(pod *corev1.Pod) { pod.Spec.NodeName = "" })
	w.holds(w.does("-n8"), "n9", ReasonNode)
}

// TestNewPodsAreOfTheUpdateRevision shows ADS-097 and ADS-098: whatever holds the rollout, new pods are of
// the current revision, a pod that is lost comes back as a new one, and what is too much, has failed or may
// not stay goes.
func TestNewPodsAreOfTheUpdateRevision(t *testing.T) {
	for name, held := range map[string]option{"partition": partition("100%"), "a selector that selects none": chosen, "paused": paused,
		"OnDelete": onDelete} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 5, held)
			w.at("a:1")
			w.at("a:2")
			w.node("n3", evicting)
			w.on("n2 n3 n4 n4", "a:1")
			w.pod("n5", "a:1", failed)
			w.expect("+n1 a:2", "-n3", "-n4-2", "-n5")
		})
	}
}

// TestPartitionKeepsNodesWithoutPods shows ADS-100, ADS-101, ADS-102, ADS-103 and ADS-104: how many nodes get
// a pod while a partition keeps the others without one, and which.
func TestPartitionKeepsNodesWithoutPods(t *testing.T) {
	all := "node-0 node-1 node-2 node-3 node-4 node-5 node-6 node-7 node-8 node-9"
	for name, tt := range map[string]struct {
		nodes   string
		p       any
		new     string
		old     string
		option  option
		created string
	}{
		"all of them":               {all, 10, "", "", nil, ""},
		"more than all":             {all, 99, "", "", nil, ""},
		"all but one":               {all, 9, "", "", nil, "node-0"},
		"one is there":              {all, 5, "node-0", "", nil, "node-1 node-2 node-3 node-4"},
		"five of twelve":            {all + " node-10 node-11", 5, "node-0 node-1 node-10 node-11 node-2", "", nil, "node-3 node-4"},
		"as many as there are":      {all[7:], 5, "node-1 node-2 node-3 node-4", "", nil, ""},
		"more than there may be":    {all[7:], 5, "node-1 node-2 node-3 node-4 node-5", "", nil, ""},
		"ten comes before five":     {"node-5 node-10", 1, "", "", nil, "node-10"},
		"half, rounded down":        {"node-0 node-1 node-2", "50%", "", "", nil, "node-0 node-1"},
		"of all":                    {all, "100%", "", "", nil, ""},
		"old pods do not count":     {all[:20], 2, "", "node-0 node-1", nil, "node-2"},
		"no partition":              {all[:20], 0, "", "", nil, "node-0 node-1 node-2"},
		"none of a hundredth":       {all[:20], "1%", "", "", nil, "node-0 node-1 node-2"},
		"OnDelete":                  {all[:20], 3, "", "", onDelete, "node-0 node-1 node-2"},
		"paused":                    {all[:20], 3, "", "", paused, ""},
		"an old pod that was lost":  {all[:20], 2, "node-2", "node-1", nil, ""},
		"and the partition is less": {all[:20], 1, "node-2", "node-1", maxUnavailable(1), "node-0"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 0, partition(tt.p), partitioned)
			if tt.option != nil {
				tt.option(w.Set)
			}
			for node := range strings.FieldsSeq(tt.nodes) {
				w.node(node)
			}
			w.at("a:1")
			w.at("a:2")
			w.on(tt.new, "a:2")
			w.on(tt.old, "a:1")
			w.Set.Status.DesiredNumberScheduled = 1 // which is stale
			var want []string
			for node := range strings.FieldsSeq(tt.created) {
				want = append(want, "+"+node+" a:2")
			}
			w.expect(want...)
		})
	}
	w := newWorld(t, 3, partition(3))
	w.at("a:1")
	w.does("+n1 +n2 +n3") // without partitionedScaling
	w = newWorld(t, 4, partition(2), partitioned, maxSurge(1))
	w.at("a:1")
	w.at("a:2")
	w.on("n3", "a:1")
	w.pod("n3", "a:2", notReadyPod)
	plan := w.does("+n1") // of four nodes two are kept, and n3 is updated, although its old pod is there
	if said := strings.Join(plan.Sentences, "\n"); !strings.Contains(said, "2 nodes without a pod: partition 2 keeps them so") {
		t.Errorf("sentences: got %q, want it to contain %q", said,
			"2 nodes without a pod: partition 2 keeps them so")
	}
	hooked(w.Set)
	w.pod("n3", "a:1", preparing, draining)
	w.does("+n1 +n2") // with a second old one it does not count as that
}

// TestANodeGetsItsPodBackWhilePartitionKeepsOthersEmpty shows ADS-100 (part): while the pod of a node goes,
// no other node gets one in its place, and afterwards it comes first.
func TestANodeGetsItsPodBackWhilePartitionKeepsOthersEmpty(t *testing.T) {
	for name, tt := range map[string]struct {
		option option
		state  state
		first  string
	}{
		"somebody deleted it":               {nil, terminating, ""},
		"it failed":                         {nil, failed, "-n3"},
		"it ended":                          {nil, succeeded, "-n3"},
		"it is specified for deletion":      {nil, specified, "-n3"},
		"it prepares its deletion":          {hooked, preparing, "-n3"},
		"with a surge, which comes at once": {maxSurge(1), terminating, "+n3"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 4, partitioned, partition(2))
			if tt.option != nil {
				tt.option(w.Set)
			}
			w.at("a:1")
			w.pod("n2", "a:1")
			w.pod("n3", "a:1", tt.state)
			w.does(tt.first) // and none for n1
			w.Pods, w.Had = w.Pods[:1], map[string]bool{"n2": true, "n3": true}
			w.does("+n3")
			w.Had = nil
			w.does("+n1") // as a new manager would
		})
	}
	w := newWorld(t, 4, partitioned, partition(2))
	w.at("a:1")
	w.pod("n2", "a:1")
	w.pod("n3", "a:1", terminating)
	w.node("n3", closed)
	w.does("") // three nodes are eligible, of which one has a pod
	w.Set.Spec.UpdateStrategy.RollingUpdate.Partition = amount(1)
	w.does("+n1") // for n3 gets none
}

// TestEmptyNodesAreNotUnavailable shows ADS-104 (part), ADS-130 (part) and ADS-175 (part): a node that the
// partition keeps empty costs nothing of maxUnavailable, and is filled when the partition is lowered.
func TestEmptyNodesAreNotUnavailable(t *testing.T) {
	w := newWorld(t, 5, partition(2), partitioned)
	w.at("a:1")
	w.at("a:2")
	w.node("n4", closed)
	w.node("n5", closed)
	w.on("n2 n4 n5", "a:1")
	w.pod("n3", "a:2")
	w.does("-n5") // n3, n1 and n5 are those to be updated
	specified(w.Pods[0])
	w.does("-n2")
	w.Pods = w.Pods[1:]
	w.pod("n2", "a:1")
	w.Set.Spec.UpdateStrategy.RollingUpdate.Partition = amount(1)
	w.does("+n1")
}

// TestAPodWhoseTargetIsNotKnown shows ADS-090 (part): a pod that is not scheduled is on the site that its
// affinity names, and else in none.
func TestAPodWhoseTargetIsNotKnown(t *testing.T) {
	w := newWorld(t, 2)
	w.at("a:1")
	w.pod("n1", "a:1", unscheduled)
	w.does("+n2")
	w.Pods[0].Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchFields[0].Operator =
		corev1.NodeSelectorOpNotIn
	w.does("+n1 +n2")
}
