package daemonset

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

// between is a set on its way from a:1 to a:2.
func between(t *testing.T, nodes int, options ...option) *world {
	w := newWorld(t, nodes, options...)
	w.at("a:1")
	w.at("a:2")
	return w
}

// TestTheUpdateSet shows ADS-120, ADS-123, ADS-124, ADS-125, ADS-126, ADS-133, ADS-D8 and ADS-D12: which
// nodes are updated, and in which order: all of the update set go at once here, or as many as maxUnavailable
// lets.
func TestTheUpdateSet(t *testing.T) {
	for name, tt := range map[string]struct {
		nodes, most int
		p           any
		// old, new, several (two new pods) and canaries are nodes; more is what else there is.
		old, new, several, canaries string
		more                        func(*world)
		want                        string
	}{
		"all":                              {nodes: 4, most: 9, old: "n1 n2 n3 n4", want: "-n1 -n2 -n3 -n4"},
		"in descending order":              {nodes: 4, most: 1, old: "n1 n2 n3 n4", want: "-n4"},
		"two of them":                      {nodes: 4, most: 2, old: "n1 n2 n3 n4", want: "-n4 -n3"},
		"of names, not of numbers":         {nodes: 10, most: 1, old: "n1 n2 n3 n4 n5 n6 n7 n8 n9 n10", want: "-n9"},
		"a partition":                      {nodes: 4, most: 9, p: 3, old: "n1 n2 n3 n4", want: "-n4"},
		"half, rounded down":               {nodes: 5, most: 9, p: "50%", old: "n1 n2 n3 n4 n5", want: "-n5 -n4 -n3"},
		"all of them":                      {nodes: 4, most: 9, p: "100%", old: "n1 n2 n3 n4"},
		"more than all":                    {nodes: 4, most: 9, p: 7, old: "n1 n2 n3 n4"},
		"the example of one":               {nodes: 4, most: 9, p: 1, old: "n1 n3 n4", new: "n2", canaries: "n3", want: "-n3"},
		"the example of two":               {nodes: 4, most: 9, p: 2, old: "n1 n3 n4", new: "n2", canaries: "n1 n3 n4", want: "-n4"},
		"the example of three nodes":       {nodes: 3, most: 9, p: 1, old: "n2 n3", new: "n1", want: "-n3"},
		"the partition counts them all":    {nodes: 4, most: 9, p: 3, old: "n1 n2 n3 n4", canaries: "n1 n2", want: "-n2"},
		"and leaves none":                  {nodes: 4, most: 9, p: 4, old: "n1 n2 n3 n4", canaries: "n1 n2"},
		"updated ones come first":          {nodes: 4, most: 9, p: 3, old: "n2 n3 n4", new: "n1"},
		"also those not selected any more": {nodes: 4, most: 9, p: 2, old: "n2 n3 n4", new: "n1", canaries: "n2 n3", want: "-n3"},
		"then those on their way": {nodes: 4, most: 9, p: 2, old: "n2 n3 n4", canaries: "n3 n4",
			more: func(w *world) { w.pod("n1", "a:1", terminating) }, want: "-n4"},
		"and those that prepare it": {nodes: 4, most: 9, p: 3, old: "n2 n3 n4",
			more: func(w *world) { hooked(w.Set); w.pod("n1", "a:1", preparing, draining) }},
		"nodes with too many": {nodes: 4, most: 9, p: 3, old: "n2 n3 n4",
			more: func(w *world) { maxSurge(1)(w.Set); w.pod("n1", "a:2"); w.pod("n1", "a:1", notReadyPod) }, want: "-n1-2"},
		"also those that are not eligible": {nodes: 4, most: 9, p: 2, old: "n1 n2 n3 n4",
			more: func(w *world) { w.node("n4", closed) }, want: "-n4 -n3"},
		"nodes without a pod of which none is eligible do not count": {nodes: 4, most: 9, p: 2, old: "n1 n2 n3",
			more: func(w *world) { w.node("n4", closed) }, want: "-n3"},
		"nor do nodes that are gone": {nodes: 3, most: 9, p: 2, old: "n1 n2 n3 n9", want: "-n3"},
		"half of those that are eligible": {nodes: 4, most: 9, p: "50%", old: "n1 n2 n3 n4",
			more: func(w *world) { w.node("n4", closed); w.node("n3", closed) }, want: "-n4 -n3 -n2"},
	} {
		t.Run(name, func(t *testing.T) {
			w := between(t, tt.nodes, maxUnavailable(tt.most))
			if tt.p != nil {
				partition(tt.p)(w.Set)
			}
			if tt.canaries != "" {
				chosen(w.Set)
			}
			w.Set.Status.DesiredNumberScheduled = 77 // which is stale
			for node := range strings.FieldsSeq(tt.canaries) {
				w.node(node, canary)
			}
			w.on(tt.old, "a:1")
			w.on(tt.new, "a:2")
			if tt.more != nil {
				tt.more(w)
			}
			w.does(tt.want)
		})
	}
}

// TestPodsWithinThePartitionGetTheirImagesBack: a pod that partition, or the selector, keeps at its revision
// had the image of another one, because somebody patched it or a rollout was interrupted, and kept it for
// ever (IPU-326 (part)).
func TestPodsWithinThePartitionGetTheirImagesBack(t *testing.T) {
	gated := func(pod *corev1.Pod) {
		pod.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: pub.InPlaceUpdateReady}}
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: pub.InPlaceUpdateReady, Status: corev1.ConditionTrue})
	}
	patched := func(pod *corev1.Pod) { pod.Spec.Containers[0].Image = "a:2" }
	mending := func(pod *corev1.Pod) {
		pod.Labels[pub.LifecycleState] = string(pub.LifecycleStateUpdating)
		pod.Annotations = map[string]string{pub.InPlaceUpdateState: `{"revision":"` + pod.Labels[pub.ControllerRevisionHash] +
			`","mended":["main"],"updateTimestamp":"2026-01-02T03:04:00Z","lastContainerStatuses":{"main":{"imageID":"x"}}}`}
	}
	mended := func(pod *corev1.Pod) { // its container was started with its own image, and is not ready
		mending(pod)
		notReadyPod(pod)
		pod.Labels[pub.LifecycleState] = string(pub.LifecycleStateNormal)
	}
	for name, tt := range map[string]struct {
		options []option
		build   func(w *world)
		bare    bool // pods were made without the readiness gate
		want    string
	}{
		"in place": {[]option{inPlace}, func(w *world) { w.pod("n1", "a:1", patched); w.on("n2", "a:1"); w.on("n3", "a:2") }, false, "~n1"},
		"where the selector keeps it": {[]option{inPlace, chosen, partition(0)},
			func(w *world) { w.pod("n1", "a:1", patched); w.on("n2", "a:1"); w.on("n3", "a:2") }, false, "~n1"},
		"one at a time":          {[]option{inPlace}, func(w *world) { w.on("n1 n2", "a:1", patched); w.on("n3", "a:2") }, false, "~n2"},
		"not before the rollout": {[]option{inPlace}, func(w *world) { w.pod("n1", "a:1", patched); w.on("n2 n3", "a:1") }, false, "~n3"},
		"not while a new one is down": {[]option{inPlace},
			func(w *world) { w.pod("n1", "a:1", patched); w.on("n2", "a:1"); w.on("n3", "a:2", notReadyPod) }, false, ""},
		"not while another one gets its own": {[]option{inPlace},
			func(w *world) { w.pod("n1", "a:1", patched); w.on("n2", "a:1", mending); w.on("n3", "a:2") }, false, ""},
		"not while one that got its own is not ready": {[]option{inPlace},
			func(w *world) { w.pod("n1", "a:1", patched); w.on("n2", "a:1", mended); w.on("n3", "a:2") }, false, ""},
		"nor does the rollout go on meanwhile": {[]option{inPlace}, func(w *world) { w.on("n2", "a:1", mending); w.on("n1 n3", "a:1") }, false, ""},
		"it does when that is over":            {[]option{inPlace}, func(w *world) { w.on("n2", "a:1", mended); w.on("n1 n3", "a:1") }, false, "~n3"},
		"also one that was made without a gate": {[]option{inPlace},
			func(w *world) { w.pod("n1", "a:1", patched); w.on("n2", "a:1"); w.on("n3", "a:2") }, true, "~n1"},
		"not where each is made anew": {nil, func(w *world) { w.pod("n1", "a:1", patched); w.on("n2", "a:1"); w.on("n3", "a:2") }, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := between(t, 3, append([]option{partition(2)}, tt.options...)...)
			tt.build(w)
			for _, pod := range w.Pods {
				if !tt.bare {
					gated(pod)
				}
			}
			w.does(tt.want)
			for _, v := range w.plan().Verdicts {
				if v.Action == podplan.UpdateInPlace && v.MayRecreate && v.Pod.Spec.NodeName != "n3" {
					t.Error("a pod made anew, should this be refused, would be of the update revision:", v.Pod.Name)
				}
			}
		})
	}
}

// TestWhatHoldsOldPods shows the reasons: the partition, the selector, and maxUnavailable, each with its
// numbers.
func TestWhatHoldsOldPods(t *testing.T) {
	w := between(t, 4, partition(1), chosen)
	for _, node := range []string{"n2", "n3", "n4"} {
		w.node(node, canary)
	}
	w.on("n1 n2 n3 n4", "a:1")
	plan := w.does("-n4")
	w.holds(plan, "n1", ReasonNodeSelector)
	w.holds(plan, "n2 n3", podplan.ReasonMaxUnavailable)
	partition(3)(w.Set)
	w.holds(w.does("-n4"), "n2 n3", podplan.ReasonPartition)
}

// TestNodesThatAreNotEligibleAreNotCounted shows ADS-121: with the gate, nodes that are not eligible are not
// counted, so that what is down there does not stop the rollout; without it, it does. What may not stay there
// goes either way.
func TestNodesThatAreNotEligibleAreNotCounted(t *testing.T) {
	for pruned, want := range map[bool]string{false: "-n3-2", true: "-n3-2 -n2"} {
		w := between(t, 4)
		w.Features.PruneIneligible = pruned
		w.node("n3", evicting)
		w.node("n4", closed)
		w.on("n1 n2", "a:1")
		w.pod("n3", "a:1", terminating)
		w.pod("n3", "a:1")
		w.pod("n4", "a:1")
		plan := w.does(want)
		if pruned {
			w.holds(plan, "n4", ReasonNode)
		}
	}
	w := between(t, 4, partition(2), maxUnavailable(9))
	w.Features.PruneIneligible = true
	w.node("n4", closed)
	w.on("n1 n2 n3 n4", "a:1")
	w.does("-n3") // of three nodes two stay
}

// TestPodsOfLostNodesCount shows ADS-121: with the gate, too, a pod that an update took out of service counts while its
// node is lost, so that no other pod goes meanwhile. What its node alone took costs nothing, and nothing else of the
// rollout changes: the partition, and whether it is complete.
func TestPodsOfLostNodesCount(t *testing.T) {
	lost := tainted(corev1.TaintNodeUnreachable, corev1.TaintEffectNoSchedule)
	outOfService := func(pod *corev1.Pod) {
		gated(pod)
		pod.Status.Conditions[0].Status, pod.Status.Conditions[1].Status = corev1.ConditionFalse, corev1.ConditionFalse
		pod.Status.Conditions = append(pod.Status.Conditions,
			corev1.PodCondition{Type: corev1.ContainersReady, Status: corev1.ConditionTrue})
	}
	down := func(pod *corev1.Pod) { // as a node that is lost leaves it
		outOfService(pod)
		pod.Status.Conditions[1].Status = corev1.ConditionTrue
	}
	back := func(pod *corev1.Pod) { // it is back in service, and kubelet did not say so any more
		down(pod)
		pod.Status.Conditions[1].LastTransitionTime = pod.Status.Conditions[0].LastTransitionTime
	}
	ran := func(pod *corev1.Pod) { // a pod without the gate, on a node that is lost
		notReadyPod(pod)
		pod.Status.Conditions = append(pod.Status.Conditions,
			corev1.PodCondition{Type: corev1.ContainersReady, Status: corev1.ConditionTrue})
	}
	for name, tt := range map[string]struct {
		node          nodeState
		options       []option
		pod           func(w *world)
		pruned, whole string
	}{
		"a new pod that is not ready":  {lost, nil, func(w *world) { w.pod("n3", "a:2", notReadyPod) }, "", ""},
		"a new pod that the node took": {lost, nil, func(w *world) { w.pod("n3", "a:2", ran) }, "-n2", ""},
		"which has the gate":           {lost, nil, func(w *world) { w.pod("n3", "a:2", down) }, "-n2", ""},
		"a new pod that is out of it":  {lost, nil, func(w *world) { w.pod("n3", "a:2", outOfService) }, "patch", "patch"},
		"a new pod that is back":       {lost, nil, func(w *world) { w.pod("n3", "a:2", back) }, "", ""},
		"an old pod that is back":      {lost, nil, func(w *world) { w.pod("n3", "a:1", back) }, "", "-n3"},
		"an old pod that is not ready": {lost, nil, func(w *world) { w.pod("n3", "a:1", notReadyPod) }, "-n2", "-n3 -n2"},
		"a new pod that is ready a moment": {lost, []option{minReady(60)},
			func(w *world) { w.pod("n3", "a:2", readyFor(time.Second)) }, "", ""},
		"a new pod that ended":      {lost, nil, func(w *world) { w.pod("n3", "a:2", failed) }, "-n3", "-n3"},
		"a new pod that serves":     {lost, nil, func(w *world) { w.pod("n3", "a:2") }, "-n2", "-n2"},
		"one that is being deleted": {lost, nil, func(w *world) { w.pod("n3", "a:1", terminating) }, "", ""},
		"an old pod that an update took out of service": {lost, nil, func(w *world) { w.pod("n3", "a:1", outOfService) },
			"patch", "-n3"},
		"an old pod that the node took": {lost, nil, func(w *world) { w.pod("n3", "a:1", down) }, "-n2", "-n3"},
		"which is counted strictly":     {lost, []option{strictly}, func(w *world) { w.pod("n3", "a:1", down) }, "", "-n3"},
		"an old pod that serves":        {lost, nil, func(w *world) { w.pod("n3", "a:1") }, "-n2", "-n3"},
		"none":                          {lost, nil, func(*world) {}, "-n2", "-n2"},
		"none, since it was deleted":    {lost, nil, func(w *world) { w.Had = map[string]bool{"n3": true} }, "", ""},
		"a node that is not ready": {tainted(corev1.TaintNodeNotReady, corev1.TaintEffectNoSchedule), nil,
			func(w *world) { w.pod("n3", "a:2", notReadyPod) }, "", ""},
		"a node without a network": {tainted(corev1.TaintNodeNetworkUnavailable, corev1.TaintEffectNoSchedule), nil,
			func(w *world) { w.pod("n3", "a:2", notReadyPod) }, "-n2", ""},
		"a node that is closed, too": {func(node *corev1.Node) { lost(node); closed(node) }, nil,
			func(w *world) { w.pod("n3", "a:2", notReadyPod) }, "-n2", ""},
		"a node that is left out after a while": {func(node *corev1.Node) { lost(node); downFor(time.Hour)(node) },
			[]option{annotated(pub.DaemonSetIgnoreNotReadyNodesAfter, "5m")},
			func(w *world) { w.pod("n3", "a:2", notReadyPod) }, "-n2", "-n2"},
		"another pod is to go by request": {lost, []option{onDelete}, func(w *world) {
			w.pod("n3", "a:2", notReadyPod)
			specified(w.Pods[0])
		}, "", ""},
		"which is left out after a while": {func(node *corev1.Node) { lost(node); downFor(time.Hour)(node) },
			[]option{onDelete, annotated(pub.DaemonSetIgnoreNotReadyNodesAfter, "5m")}, func(w *world) {
				w.pod("n3", "a:2", notReadyPod)
				specified(w.Pods[0])
			}, "-n1", "-n1"},
		"two are to go by request, one of them there": {lost, []option{onDelete}, func(w *world) {
			w.pod("n3", "a:2", specified)
			specified(w.Pods[0])
		}, "-n1", "-n1"},
		"of many a part stays": {lost, []option{partition("100%"), maxUnavailable(9)}, func(w *world) { w.pod("n3", "a:1") }, "", "-n3"},
		"two pods, with a surge": {lost, []option{maxSurge(1)}, func(w *world) {
			w.pod("n3", "a:1")
			w.pod("n3", "a:2", notReadyPod)
		}, "", ""},
		"with a surge": {lost, []option{maxSurge(1)}, func(w *world) { w.pod("n3", "a:1") }, "+n2", "+n2"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, pruned := range []bool{true, false} {
				w := between(t, 3, tt.options...)
				w.Features.PruneIneligible = pruned
				w.node("n3", tt.node)
				w.on("n1 n2", "a:1")
				tt.pod(w)
				want := tt.whole
				if pruned {
					want = tt.pruned
				}
				if w.does(want); t.Failed() {
					t.Fatalf("the gate is on: %t", pruned)
				}
			}
		})
	}
}

// TestLostNodesChangeNothingElse shows ADS-121 (part): what the numbers of a wait count, that a partition keeps as many
// pods while nodes are lost, and that a rollout is complete without the pods that wait for their nodes.
func TestLostNodesChangeNothingElse(t *testing.T) {
	lost := tainted(corev1.TaintNodeUnreachable, corev1.TaintEffectNoSchedule)
	w := between(t, 3)
	w.Features.PruneIneligible = true
	w.node("n3", lost)
	w.on("n1 n2", "a:1")
	w.pod("n3", "a:2", notReadyPod)
	if _, _, words := why(w.does(""), "n2"); words != "2 of 3 pods must stay available (maxUnavailable 1), and only 2 are" {
		t.Error("the pod waits, it says:", words)
	}

	w = between(t, 10, maxUnavailable(9), partition("50%"))
	w.Features.PruneIneligible = true
	w.on("n1 n2 n3 n4 n5", "a:1")
	w.on("n6 n7 n8 n9 n10", "a:2")
	w.does("")
	for _, node := range []string{"n1", "n2", "n3"} {
		w.node(node, lost)
	}
	w.does("")

	w = between(t, 3)
	w.Features.PruneIneligible = true
	w.node("n3", lost)
	w.on("n1 n2", "a:2")
	w.pod("n3", "a:1", notReadyPod)
	if plan := w.plan(); !plan.Settled() {
		t.Errorf("the rollout is not complete: %d of %d nodes have a pod of it\n%s", plan.arrived, plan.updates, plan)
	}

	w = between(t, 5, strictly, maxUnavailable(2))
	w.Features.PruneIneligible = true
	w.node("n4", lost)
	w.node("n5", lost)
	w.on("n1 n2", "a:1")
	w.on("n3 n4 n5", "a:1", notReadyPod)
	w.does("-n3") // which is down anyway; none of those that serve
}

// TestMaxUnavailableBoundsHowManyPodsGo shows ADS-122, ADS-127, ADS-130, ADS-131 and ADS-D13: how many pods
// go, by what there is. n1 to n6 have old pods that are available, unless said otherwise.
func TestMaxUnavailableBoundsHowManyPodsGo(t *testing.T) {
	old := func(list string, states ...state) func(*world) {
		return func(w *world) { w.on(list, "a:1", states...) }
	}
	now := func(list string, states ...state) func(*world) {
		return func(w *world) { w.on(list, "a:2", states...) }
	}
	all := func(of ...func(*world)) func(*world) {
		return func(w *world) {
			for _, do := range of {
				do(w)
			}
		}
	}
	for name, tt := range map[string]struct {
		most    any
		options []option
		pods    func(*world)
		want    string
	}{
		"one":                        {1, nil, old("n1 n2 n3 n4 n5 n6"), "-n6"},
		"a third, rounded up":        {"30%", nil, old("n1 n2 n3 n4 n5 n6"), "-n6 -n5"},
		"none at all is one":         {0, nil, old("n1 n2 n3 n4 n5 n6"), "-n6"},
		"0% is one":                  {"0%", nil, old("n1 n2 n3 n4 n5 n6"), "-n6"},
		"a new one is not available": {2, nil, all(old("n1 n2 n3 n4 n5"), now("n6", notReadyPod)), "-n5"},
		"a new one is available":     {2, nil, all(old("n1 n2 n3 n4 n5"), now("n6")), "-n5 -n4"},
		"two are not":                {2, nil, all(old("n1 n2 n3 n4"), now("n5 n6", notReadyPod)), ""},
		"none is there":              {2, nil, old("n1 n2 n3 n4 n5"), "+n6 -n5"},
		"one is being deleted":       {2, nil, all(old("n1 n2 n3 n4 n5"), old("n6", terminating)), "-n5"},
		"two are, on one node":       {2, nil, all(old("n1 n2 n3 n4 n5"), old("n6 n6", terminating)), "-n5"},
		"a new and an old one":       {2, nil, all(old("n1 n2 n3 n4 n5 n6"), now("n6", born(0))), "-n6-2 -n5"},
		"two old ones":               {2, nil, old("n1 n2 n3 n4 n5 n6 n6"), "-n6-2 -n6 -n5"},
		"an old one that prepares":   {2, nil, all(old("n1 n2 n3 n4 n5"), old("n6", preparing, draining)), "-n5"},
		"a new one that prepares":    {2, nil, all(old("n1 n2 n3 n4 n5"), now("n6", preparing, draining)), "-n5"},
		"a new one that prepares, and an old one": {2, nil,
			all(old("n1 n2 n3 n4 n5 n6"), now("n6", preparing, draining)), "-n5"},
		"a new one beside an old one that prepares": {2, nil,
			all(old("n1 n2 n3 n4 n5"), old("n6", preparing, draining), now("n6")), "-n5 -n4"},
		"and is not available": {2, nil,
			all(old("n1 n2 n3 n4 n5"), old("n6", preparing, draining), now("n6", notReadyPod)), "-n5"},
		"old ones are not available":     {2, nil, all(old("n1 n2 n3 n4"), old("n5 n6", notReadyPod)), "-n6 -n5 -n4 -n3"},
		"none but these":                 {1, nil, old("n1 n2 n3 n4 n5 n6", notReadyPod), "-n1 -n2 -n3 -n4 -n5 -n6"},
		"nor is a new one":               {1, nil, all(old("n1 n2 n3 n4"), old("n5", notReadyPod), now("n6", notReadyPod)), "-n5"},
		"not ready for long enough":      {1, []option{minReady(60)}, all(old("n1 n2 n3 n4 n5"), now("n6", readyFor(time.Second))), ""},
		"two, of which one goes later":   {2, []option{burst(1)}, all(old("n1 n2 n3 n4 n5 n6 n6"), old("n4", named("n4-2"))), "-n4-2"},
		"a new one beyond the partition": {1, []option{partition(5)}, all(now("n1", notReadyPod), old("n2 n3 n4 n5 n6")), ""},
		"one beyond it is being deleted": {1, []option{partition(5)}, all(old("n1", terminating), old("n2 n3 n4 n5 n6")), ""},
		"none is there, beyond it":       {1, []option{partition(5)}, old("n2 n3 n4 n5 n6"), "+n1"},
		"old ones beyond the partition":  {1, []option{partition(3)}, all(old("n1 n2 n3", notReadyPod), old("n4 n5 n6")), "-n6"},
		"two beyond the selector":        {9, []option{chosen}, all(old("n1"), old("n1"), old("n3 n4 n5 n6"), now("n2")), "-n1-2 -n3 -n4 -n5 -n6"},
		"two, of which one prepares": {9, []option{chosen}, all(old("n1"), old("n1", draining), old("n3 n4 n5 n6"), now("n2")),
			"prepare:n1-2 -n3 -n4 -n5 -n6"},
		"two of the update set, of which one prepares": {2, nil, all(old("n1 n2 n3 n4 n5 n6"), old("n6", draining)), "prepare:n6-2 -n6 -n5"},
		"old ones beyond the selector":                 {1, []option{chosen}, all(old("n1 n2", notReadyPod), old("n3 n4 n5 n6")), "-n6"},
		"a new one beyond the selector":                {1, []option{chosen}, all(now("n1", notReadyPod), old("n2 n3 n4 n5 n6")), ""},
		"and paused":                                   {3, []option{paused}, old("n1 n2 n3 n4 n5 n6"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := between(t, 6, append([]option{maxUnavailable(tt.most), hooked}, tt.options...)...)
			for _, node := range []string{"n3", "n4", "n5", "n6"} {
				w.node(node, canary)
			}
			tt.pods(w)
			w.does(tt.want)
		})
	}
	w := between(t, 0)
	if plan := w.does(""); plan.Limits.MaxUnavailable != 1 {
		t.Errorf("maxUnavailable %d without nodes", plan.Limits.MaxUnavailable)
	}
}

// TestStrictAccountingCountsPodsThatAreNotAvailable shows ADS-132 and ADS-W1: with the annotation pods that
// are not available cost maxUnavailable as well, and go first, so that never more nodes than that lack an
// available pod because of the update.
func TestStrictAccountingCountsPodsThatAreNotAvailable(t *testing.T) {
	for name, tt := range map[string]struct {
		most int
		down string // old pods that are not available
		new  string // new ones that are not
		want string
	}{
		"none is down":      {2, "", "", "-n6 -n5"},
		"one is":            {2, "n1", "", "-n1 -n6"},
		"as many as may be": {2, "n1 n2", "", "-n2 -n1"},
		"more":              {2, "n1 n2 n3", "", "-n3 -n2"},
		"all":               {1, "n1 n2 n3 n4 n5 n6", "", "-n6"},
		"a new one is, too": {2, "n1 n2", "n6", "-n2"},
		"as many new ones":  {2, "n1", "n5 n6", ""},
		"only new ones":     {2, "", "n6", "-n5"},
	} {
		t.Run(name, func(t *testing.T) {
			w := between(t, 6, maxUnavailable(tt.most), strictly)
			for _, node := range w.Nodes {
				switch {
				case strings.Contains(tt.down, node.Name):
					w.pod(node.Name, "a:1", notReadyPod)
				case strings.Contains(tt.new, node.Name):
					w.pod(node.Name, "a:2", notReadyPod)
				default:
					w.pod(node.Name, "a:1")
				}
			}
			w.does(tt.want)
			w.Set.Annotations[pub.DaemonSetStrictMaxUnavailable] = "yes" // which is not what is asked for
			if loose := w.words(w.plan()); tt.down != "" && tt.most == 1 && len(loose) != 6 {
				t.Errorf("number of the loose: got %d, want 6\n%q", len(loose), loose)
			}
		})
	}
	w := between(t, 3, strictly, partition(2))
	w.pod("n1", "a:1", notReadyPod)
	w.on("n2 n3", "a:1")
	w.does("") // what is down beyond the partition costs as well
}

// TestPodsOnDeadNodesUseUpMaxUnavailable shows ADS-136: pods on nodes that are dead use up maxUnavailable,
// unless the set says how long such nodes are waited for.
func TestPodsOnDeadNodesUseUpMaxUnavailable(t *testing.T) {
	for name, tt := range map[string]struct {
		patience string
		down     time.Duration
		surge    int
		want     string
		after    time.Duration
		said     bool
	}{
		"counted":                {"", time.Hour, 0, "", 0, false},
		"left out":               {"5m", 5 * time.Minute, 0, "-n3", 0, true},
		"not yet":                {"5m", 4 * time.Minute, 0, "", time.Minute, false},
		"at once":                {"0s", 0, 0, "-n3", 0, true},
		"what is no duration":    {"soon", time.Hour, 0, "", 0, false},
		"nor is a negative one":  {"-5m", time.Hour, 0, "", 0, false},
		"left out, with a surge": {"5m", 5 * time.Minute, 1, "+n3", 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := between(t, 4, maxSurge(tt.surge))
			if tt.patience != "" {
				annotated(pub.DaemonSetIgnoreNotReadyNodesAfter, tt.patience)(w.Set)
			}
			w.node("n4", downFor(tt.down))
			w.on("n1 n2 n3", "a:1")
			if tt.surge == 0 {
				w.pod("n4", "a:2", terminating)
			} else {
				w.pod("n4", "a:1", notReadyPod)
			}
			plan := w.does(tt.want)
			if plan.After != tt.after {
				t.Errorf("time to the next pass: got %v, want %v", plan.After, tt.after)
			}
			if (plan.LeftOut != "") != tt.said {
				t.Errorf(`something is left out: got %t, want %t`, plan.LeftOut != "", tt.said)
			}
			if tt.said && !strings.Contains(plan.LeftOut, "n4") {
				t.Errorf("left out: got %q, want it to contain %q", plan.LeftOut, "n4")
			}
		})
	}
	w := between(t, 3, maxSurge(1), annotated(pub.DaemonSetIgnoreNotReadyNodesAfter, "1m")) // what is on dead nodes is no surge
	w.node("n3", downFor(time.Hour))
	w.on("n1 n2 n3", "a:1")
	w.pod("n3", "a:2", notReadyPod, born(0))
	w.does("+n2")
	w = between(t, 7, annotated(pub.DaemonSetIgnoreNotReadyNodesAfter, "1m"))
	for i, want := range []string{"", "1: n1", "2: n1, n2", "3: n1, n2, n3", "4: n1, n2, n3, n4", "5: n1, n2, n3, n4, n5",
		"6: n1, n2, n3, n4, n5 and others"} {
		if i > 0 {
			w.node(w.Nodes[i-1].Name, downFor(time.Hour))
		}
		got := w.plan().LeftOut
		if (got == "") != (i == 0) {
			t.Errorf(`no result: got %t, want %t; %d are left out: %q`, got == "", i == 0, i, got)
		}
		if !strings.HasSuffix(got, want) {
			t.Errorf("left out of the plan: got %q, want it to end with %q; %d are left out: %q", got, want, i, got)
		}
	}
	w = between(t, 2, annotated(pub.DaemonSetIgnoreNotReadyNodesAfter, "1m"))
	w.node("n2", downFor(time.Hour))
	w.on("n1 n2", "a:1")
	w.holds(w.does("-n1"), "n2", ReasonNodeNotReady)
}

// TestBurstReplicasBoundCreationAndDeletion shows ADS-110: how many pods are created and deleted at a time,
// and that the rest follows.
func TestBurstReplicasBoundCreationAndDeletion(t *testing.T) {
	for name, tt := range map[string]struct {
		burst any
		most  int
	}{"three": {3, 3}, "a third, rounded down": {"39%", 3}, "at least one": {"1%", 1}, "not given": {nil, 10}, "none is one": {0, 1}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 10, maxUnavailable("100%"))
			if tt.burst != nil {
				burst(tt.burst)(w.Set)
			}
			w.Set.Status.DesiredNumberScheduled = 100 // which is stale
			w.at("a:1")
			plan := w.plan()
			if len(plan.Create) != tt.most {
				t.Errorf("number created: got %d, want %d", len(plan.Create), tt.most)
			}
			if plan.More != (tt.most < 10) {
				t.Errorf("more to do: got %t, want %t", plan.More, tt.most < 10)
			}
			w.on("n1 n2 n3 n4 n5 n6 n7 n8 n9 n10", "a:1")
			w.at("a:2")
			if plan = w.plan(); len(w.words(plan)) != tt.most || plan.More != (tt.most < 10) {
				t.Errorf("got %d deletions, more %t; want %d", len(w.words(plan)), plan.More, tt.most)
			}
			inPlace(w.Set)
			for _, pod := range w.Pods {
				gated(pod)
			}
			if plan = w.plan(); len(w.words(plan)) != tt.most || plan.More != (tt.most < 10) || w.words(plan)[0][0] != '~' { // ADS-135 (part)
				t.Errorf("%d updates in place, more %t: %q", len(w.words(plan)), plan.More, w.words(plan))
			}
		})
	}
	w := newWorld(t, 4, inPlace, burst(2), maxUnavailable(9)) // deletions and updates together
	w.at("a:1")
	w.node("n4", evicting)
	w.on("n1 n2 n3 n4", "a:1", gated)
	w.at("a:2")
	w.holds(w.does("-n4 ~n3"), "n1 n2", ReasonBurst)
	w = newWorld(t, 300)
	w.at("a:1")
	if n := len(w.plan().Create); n != 250 {
		t.Errorf("%d creations at a time by default", n)
	}
}

// nothing is a budget that allows nothing.
type nothing struct{}

func (nothing) Take(*corev1.Pod, disruption.Operation) string { return "budget b allows 0 more" }

// TestABudgetThatAllowsNothing shows that pods which a budget holds are not looked at all the time.
func TestABudgetThatAllowsNothing(t *testing.T) {
	w := between(t, 3, maxUnavailable(3), burst(1))
	w.on("n1 n2 n3", "a:1")
	w.Disruptions = nothing{}
	plan := w.does("")
	w.holds(plan, "n1 n2 n3", podplan.ReasonBudget)
	if plan.After != time.Second {
		t.Errorf("looked at again after %s", plan.After)
	}
}

// A pod that the rollout took out of service goes on first, and costs: the manager may have died before it wrote
// the update. A pod that is down for a reason of its own costs nothing. ADS-131 (part).
func TestWhatTheRolloutTookOutCosts(t *testing.T) {
	takenOut := func(pod *corev1.Pod) {
		gated(pod)
		pod.Status.Conditions = []corev1.PodCondition{
			{Type: pub.InPlaceUpdateReady, Status: corev1.ConditionFalse},
			{Type: corev1.ContainersReady, Status: corev1.ConditionTrue},
			{Type: corev1.PodReady, Status: corev1.ConditionFalse},
		}
	}
	for name, tt := range map[string]struct {
		options []option
		state   state
		want    string
	}{
		"it goes on, alone": {[]option{maxUnavailable(1)}, takenOut, "~n1"},
		"it is back, and kubelet has not said so yet": {[]option{maxUnavailable(1)}, func(pod *corev1.Pod) {
			takenOut(pod)
			pod.Status.Conditions[0].Status = corev1.ConditionTrue
		}, "~n1"},
		"kubelet has not said so before it is taken out": {[]option{maxUnavailable(1)}, func(pod *corev1.Pod) {
			takenOut(pod)
			pod.Status.Conditions[2].Status = corev1.ConditionTrue
		}, "~n1"},
		"somebody else keeps it out of service": {[]option{maxUnavailable(1)}, func(pod *corev1.Pod) {
			takenOut(pod)
			pod.Status.Conditions[0].Status = corev1.ConditionTrue
			pod.Spec.ReadinessGates = append(pod.Spec.ReadinessGates, corev1.PodReadinessGate{ConditionType: "example.com/balanced"})
		}, "~n1 ~n3"},
		"and others as far as allowed": {[]option{maxUnavailable(2)}, takenOut, "~n1 ~n3"},
		"counted strictly":             {[]option{maxUnavailable(1), strictly}, takenOut, "~n1"},
		"one that is down by itself":   {[]option{maxUnavailable(1)}, func(pod *corev1.Pod) { notReadyPod(pod); gated(pod) }, "~n1 ~n3"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 3, append([]option{inPlace}, tt.options...)...)
			w.at("a:1")
			w.on("n2 n3", "a:1", gated)
			w.on("n1", "a:1", tt.state)
			w.at("a:2")
			w.does(tt.want)
		})
	}
}

// A pod that is not adopted yet is no reason to take another one out of service: what the caches show of it may be
// older than an adoption, and than its end. ADS-130 (part).
func TestPodsThatAreNotAdoptedYetCount(t *testing.T) {
	for name, tt := range map[string]struct {
		orphans int
		want    string
	}{"none": {0, "~n3"}, "one": {1, "adopt"}, "all": {3, "adopt adopt adopt"}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 3, inPlace, maxUnavailable(1))
			w.at("a:1")
			w.on("n1 n2 n3", "a:1", gated)
			w.at("a:2")
			for _, pod := range w.Pods[:tt.orphans] {
				pod.OwnerReferences = nil
				w.Orphans = append(w.Orphans, pod)
			}
			w.Pods = w.Pods[tt.orphans:]
			w.does(tt.want)
		})
	}
}

// TestRecreatedOrInPlace shows ADS-134, ADS-135 and ADS-140 (part): how pods get the new revision, by type
// and by what changes.
func TestRecreatedOrInPlace(t *testing.T) {
	for name, tt := range map[string]struct {
		options []option
		old     []state
		next    []string
		want    string
	}{
		"Standard":                  {nil, []state{gated}, nil, "-n3 -n2"},
		"in place":                  {[]option{inPlace}, []state{gated}, nil, "~n3 ~n2"},
		"made under Standard":       {[]option{inPlace}, nil, nil, "-n3 -n2"},
		"not possible":              {[]option{inPlace}, []state{gated}, []string{`"hostNetwork":true`}, "-n3 -n2"},
		"one of them":               {[]option{inPlace, maxUnavailable(1)}, []state{gated}, nil, "~n3"},
		"what is down goes as well": {[]option{inPlace, maxUnavailable(1)}, []state{gated, notReadyPod}, nil, "-n1 -n2 -n3"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 3, append([]option{maxUnavailable(2)}, tt.options...)...)
			w.at("a:1")
			w.on("n1 n2 n3", "a:1", tt.old...)
			w.at("a:2", tt.next...)
			if name == "what is down goes as well" {
				for _, pod := range w.Pods {
					gated(pod)
				}
				tt.want = "~n1 ~n2 ~n3"
			}
			w.does(tt.want)
		})
	}
	w := newWorld(t, 2, inPlace)
	w.at("a:1")
	w.pod("n1", "a:1", gated)
	w.pod("n2", "a:1", gated)
	w.at("a:2")
	w.Revisions = w.Revisions[1:] // the revision of the pods is gone
	w.does("-n2")
	if _, _, words := why(w.plan(), "n2"); !strings.Contains(words, "deleted") {
		t.Errorf("words: got %q, want it to contain %q", words, "deleted")
	}
}

// TestSurgeGivesNodesASecondPod shows ADS-122 (part), ADS-154 (part), ADS-160, ADS-161 and ADS-162: which
// nodes get a second pod, and which lose their old one.
func TestSurgeGivesNodesASecondPod(t *testing.T) {
	for name, tt := range map[string]struct {
		surge   any
		options []option
		// each node in order: o old, n new; upper case if available; p preparing and held; t being deleted; x
		// not eligible.
		nodes string
		want  string
	}{
		"one":                            {1, nil, "O O O O", "+n4"},
		"a third, rounded up":            {"30%", nil, "O O O O", "+n4 +n3"},
		"all":                            {"100%", nil, "O O O O", "+n4 +n3 +n2 +n1"},
		"a partition":                    {"100%", []option{partition(3)}, "O O O O", "+n4"},
		"old ones are down":              {1, nil, "o o O O", "+n2 +n1 +n4"},
		"one has two":                    {1, nil, "O O O On", ""},
		"one has two, two may":           {2, nil, "O O O On", "+n3"},
		"the new one is available":       {1, nil, "O O O ON", "-n4"},
		"the old one is down":            {1, nil, "O O O on", "-n4"},
		"updated":                        {1, nil, "O O O N", "+n3"},
		"updated, and down":              {1, nil, "O O O n", "+n3"},
		"the old one prepares":           {1, nil, "O O O p", "+n4"},
		"and there is room":              {2, nil, "O O O p", "+n4 +n3"},
		"and the new one is there":       {1, nil, "O O O pn", ""},
		"and is available":               {1, nil, "O O O pN", ""},
		"the old one is being deleted":   {1, nil, "O O O t", "+n4 +n3"},
		"a third never comes":            {4, nil, "O O O tn", "+n3 +n2 +n1"},
		"not beside a node's last place": {1, nil, "O O O x", "+n3"},
		"none is there":                  {1, nil, "O O O -", "+n4 +n3"},
		"two beyond the partition":       {1, []option{partition(2)}, "OO O O O", "-n1-2"},
		"and there is room for another":  {2, []option{partition(2)}, "OO O O O", "-n1-2 +n4"},
	} {
		t.Run(name, func(t *testing.T) {
			w := between(t, 4, append([]option{maxSurge(tt.surge), hooked}, tt.options...)...)
			for i, pods := range strings.Fields(tt.nodes) {
				node := w.Nodes[i].Name
				for _, pod := range pods {
					switch pod {
					case 'O':
						w.pod(node, "a:1")
					case 'o':
						w.pod(node, "a:1", notReadyPod)
					case 'N':
						w.pod(node, "a:2", born(0))
					case 'n':
						w.pod(node, "a:2", notReadyPod, born(0))
					case 'p':
						w.pod(node, "a:1", preparing, draining)
					case 't':
						w.pod(node, "a:1", terminating)
					case 'x':
						w.node(node, closed)
						w.pod(node, "a:1", notReadyPod)
					}
				}
			}
			w.does(tt.want)
		})
	}
}

// TestWhatOldPodsWaitForWithASurge shows the reasons; and that what was decided before stands: pods are
// adopted before a new one comes beside them.
func TestWhatOldPodsWaitForWithASurge(t *testing.T) {
	w := between(t, 4, maxSurge(2))
	w.on("n1 n2 n3 n4", "a:1")
	w.pod("n4", "a:2", notReadyPod, born(0))
	plan := w.does("+n3")
	w.holds(plan, "n4", podplan.ReasonUpdateUnhealthy)
	w.holds(plan, "n3", podplan.ReasonUpdating)
	w.holds(plan, "n1 n2", ReasonSurge)
	for _, pod := range w.Pods {
		pod.OwnerReferences = nil
	}
	w.Orphans, w.Pods = w.Pods, nil
	w.expect("adopt n1", "adopt n2", "adopt n3", "adopt n4", "adopt n4-2")
	for _, pod := range w.Orphans[:2] {
		specified(pod)
	}
	w.expect("adopt n1", "adopt n2", "adopt n3", "adopt n4", "adopt n4-2")
}

// TestStandstill shows ADS-170 and ADS-171 (part): nothing is updated under OnDelete or while paused, and
// why; all else goes on.
func TestStandstill(t *testing.T) {
	for reason, option := range map[podplan.Reason]option{podplan.ReasonOnDelete: onDelete, podplan.ReasonPaused: paused} {
		for surge := range 2 {
			w := between(t, 7, maxSurge(surge), option)
			w.node("n2", evicting)
			w.on("n1 n2", "a:1")
			w.pod("n3", "a:1", failed)
			w.pod("n4", "a:1")
			w.pod("n4", "a:2", born(0))
			w.pod("n5", "a:1", notReadyPod)
			w.pod("n6", "a:1", terminating)
			want := map[int]string{0: "-n2 -n3 -n4-2 +n7", 1: "-n2 -n3 -n4 +n6 +n7"}[surge]
			if reason == podplan.ReasonOnDelete { // which knows no surge
				want = "-n2 -n3 -n4-2 +n7"
			}
			w.holds(w.does(want), "n1 n5", reason)
		}
	}
}

// TestASpecifiedPodGoesWithinMaxUnavailable shows ADS-175: a pod that somebody wants to go goes as long as
// fewer nodes than maxUnavailable lack an available one, whatever holds the rollout, by its hook.
func TestASpecifiedPodGoesWithinMaxUnavailable(t *testing.T) {
	for name, option := range map[string]option{"rolling": func(*appsv1beta1.DaemonSet) {}, "partition": partition("100%"), "selector": chosen,
		"paused": paused, "OnDelete": onDelete} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 4, maxUnavailable(2), option)
			most := map[bool]string{true: "-n1", false: "-n1 -n2"}[name == "OnDelete"] // without maxUnavailable it is one
			w.at("a:1")
			w.on("n1 n2 n3", "a:1", specified)
			w.pod("n4", "a:1")
			w.holds(w.does(most), "n3", podplan.ReasonMaxUnavailable)
			w.Pods = w.Pods[1:]
			if name == "OnDelete" {
				w.holds(w.does("+n1"), "n2 n3", podplan.ReasonMaxUnavailable)
			} else {
				w.holds(w.does("+n1 -n2"), "n3", podplan.ReasonMaxUnavailable)
			}
			notReadyPod(w.Pods[1])
			if plan := w.plan(); !strings.Contains(strings.Join(w.words(plan), " "), "-n3") {
				t.Errorf("what does not serve anyway stays\n%s", plan)
			}
		})
	}
	w := newWorld(t, 2, hooked)
	w.at("a:1")
	w.pod("n1", "a:1", specified, draining)
	w.pod("n2", "a:1")
	w.does("prepare:n1")
}

// TestThePreDeleteHook shows ADS-150, ADS-152, ADS-153, ADS-154 and ADS-155: whatever deletes a pod, its hook
// comes first.
func TestThePreDeleteHook(t *testing.T) {
	for name, tt := range map[string]struct {
		options []option
		world   func(*world, ...state)
		bare    string // what happens to pods without the label
	}{
		"an ineligible node": {nil, func(w *world, s ...state) { w.node("n1", evicting); w.pod("n1", "a:2", s...) }, "-n1"},
		"one too many":       {nil, func(w *world, s ...state) { w.pod("n1", "a:2"); w.pod("n1", "a:2", s...) }, "-n1-2"},
		"failed":             {nil, func(w *world, s ...state) { w.pod("n1", "a:2", append(s, failed)...) }, "-n1"},
		"outdated":           {nil, func(w *world, s ...state) { w.pod("n1", "a:1", s...) }, "-n1"},
		"replaced":           {[]option{maxSurge(1)}, func(w *world, s ...state) { w.pod("n1", "a:1", s...); w.pod("n1", "a:2", born(0)) }, "-n1"},
		"of a lost node":     {nil, func(w *world, s ...state) { w.pod("n9", "a:2", append(s, unscheduled)...); w.pod("n1", "a:2") }, "-n9"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, by := range []string{"label", "finalizer"} {
				w := between(t, 1, append([]option{hooked}, tt.options...)...)
				w.Set.Spec.Lifecycle.PreDelete.FinalizersHandler = []string{"example.org/drain"}
				tt.world(w)
				w.does(tt.bare)
				w.Pods = nil
				held := map[string]state{"label": draining, "finalizer": func(p *corev1.Pod) { p.Finalizers = []string{"example.org/drain"} }}[by]
				tt.world(w, held)
				plan := w.does("prepare:" + tt.bare[1:])
				var pod = plan.Verdicts[0]
				for _, v := range plan.Verdicts {
					if v.Patch != nil {
						pod = v
					}
				}
				patch := pod.Patch.String()
				if !strings.Contains(patch, "PreparingDelete") {
					t.Errorf("patch of the pod: got %q, want it to contain %q", patch, "PreparingDelete")
				}
				if !strings.Contains(patch, pub.LifecycleTimestamp) {
					t.Errorf("patch of the pod: got %q, want it to contain %q", patch, pub.LifecycleTimestamp)
				}
				preparing(pod.Pod)
				w.does("")
				name := strings.TrimPrefix(pod.Pod.Name, "agent-")
				pod.Pod.Finalizers = nil
				delete(pod.Pod.Labels, "drain")
				w.does("-" + name) // it was let go
				held(pod.Pod)
				w.Set.Spec.Lifecycle = nil
				w.does("-" + name) // the hook is gone
			}
		})
	}
	for _, doomed := range []func(*world){func(w *world) { w.at("a:1") }, func(*world) {}} { // rolled back; the node is eligible again
		w := between(t, 1, hooked)
		doomed(w)
		w.pod("n1", "a:1", preparing, draining)
		w.does("")
		delete(w.Pods[0].Labels, "drain")
		w.does("-n1")
		w.Pods = nil
		w.does("+n1")
	}
	w := between(t, 4, hooked, burst(1), maxUnavailable(9))
	w.on("n1 n2 n3 n4", "a:1", draining)
	w.does("prepare:n1 prepare:n2 prepare:n3 prepare:n4")
	for _, pod := range w.Pods {
		preparing(pod)
		delete(pod.Labels, "drain")
	}
	if plan := w.plan(); len(w.words(plan)) != 1 {
		t.Errorf("burstReplicas 1: %q", w.words(plan))
	}
	w = between(t, 1, hooked)
	w.pod("n1", "a:2", draining, terminating) // a user deletes it
	w.does("")
}
