package statefulset

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
)

func relabelled(pod *corev1.Pod) { pod.Labels["app"] = "debug" }

func orphaned(pod *corev1.Pod) { pod.OwnerReferences = nil }

// ownPod makes the pod of the ordinal an owner of its PVC, as that of a pod that scaling in takes away under
// whenScaled Delete.
func (w *world) ownPod(ordinal int) {
	name := podName("web", ordinal)
	w.claim(ordinal).OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: name, UID: w.Pods[len(w.Pods)-1].UID}}
}

// TestAPodOfNoOrdinalGoes: a user gave a pod of another name an owner reference to the set, and deleted it.
func TestAPodOfNoOrdinalGoes(t *testing.T) {
	w := newWorld(t, 1)
	w.at("a:1")
	w.pod(0, "a:1")
	w.pod(7, "a:1", terminating, func(pod *corev1.Pod) { pod.Name = "other" })
	w.expect()
}

// TestPodsThatEndedAreGivenUpAndAdopted shows that a pod which has ended is released before all, if its
// labels are not the set's any more, and adopted before it is deleted, which looks whether the set lives
// (ASTS-070 (part)).
func TestPodsThatEndedAreGivenUpAndAdopted(t *testing.T) {
	for _, options := range [][]option{nil, {inParallel}} {
		w := newWorld(t, 2, options...)
		w.at("a:1")
		w.pod(0, "a:1", failed, relabelled)
		w.pod(1, "a:1", failed, orphaned)
		w.pod(7, "a:1", failed, relabelled)
		w.expect("adopt 1", "release 0", "release 7")
	}
}

// TestNoPodGoesBeforeItsClaimsSettle shows that no pod is deleted by the plan that changes the owners of its
// PVCs: if that write fails, the PVC of a pod that is made anew would go with it, or that of one that goes
// would stay (ASTS-262 (part), ASTS-263 (part)).
func TestNoPodGoesBeforeItsClaimsSettle(t *testing.T) {
	for name, tt := range map[string]struct {
		options []option
		states  []state
		ordinal int
		want    string
	}{
		"one that has ended":           {nil, []state{failed}, 0, "-0"},
		"one that is specified":        {nil, []state{specified}, 0, "-0"},
		"one that is outdated":         {nil, []state{labelled("controller-revision-hash", "web-old")}, 0, "-0"},
		"one whose hook let go":        {[]option{hooks}, []state{in(pub.LifecycleStatePreparingDelete), specified}, 0, "-0"},
		"one that is no slot":          {nil, nil, 1, "-1"},
		"no slot, and its hook let go": {[]option{hooks}, []state{in(pub.LifecycleStatePreparingDelete)}, 1, "-1"},
		"no slot, and it has ended":    {nil, []state{failed}, 1, "-1"},
	} {
		for _, more := range [][]option{nil, {inParallel}} {
			t.Run(name, func(t *testing.T) {
				w := newWorld(t, 1, append(append([]option{withClaims}, tt.options...), more...)...)
				w.at("a:1")
				if tt.ordinal > 0 {
					w.pod(0, "a:1")
				}
				w.pod(tt.ordinal, "a:1", tt.states...)
				w.ownPod(tt.ordinal)
				owners := fmt.Sprintf("owners %d []", tt.ordinal)
				w.expect(owners)
				w.claim(tt.ordinal).OwnerReferences = nil
				w.expect(tt.want)
			})
		}
	}
}

// TestHistoryKeepsWhatOrphansCarry shows that the revision of pods which are about to be adopted is not
// deleted before: these could not be updated in place any more (ASTS-086 (part)).
func TestHistoryKeepsWhatOrphansCarry(t *testing.T) {
	for name, states := range map[string][]state{"orphans": {orphaned}, "one that goes": {terminating}, "one that has ended": {failed}} {
		t.Run(name, func(t *testing.T) {
			none := int32(0)
			w := newWorld(t, 1, func(set *appsv1beta1.StatefulSet) { set.Spec.RevisionHistoryLimit = &none })
			w.at("a:0")
			w.at("a:1")
			w.at("a:2")
			w.Set.Status.CurrentRevision = ""
			w.pod(0, "a:0", states...)
			if history := Make(w.Snapshot).History; len(history) != 1 || history[0].Name != w.revisions["a:1"] {
				t.Errorf("%d are deleted of %v", len(history), w.revisions)
			}
		})
	}
}

// TestAnUnboundClaimHoldsUpNothing: a broken template keeps the pod from a node, and so its PVC from a
// volume.
func TestAnUnboundClaimHoldsUpNothing(t *testing.T) {
	for name, change := range map[string]func(*world){
		"the same size": func(*world) {},
		"a larger size": func(w *world) { setClaims(w.Set, "2Gi") },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1, withClaims, follow, policy(possible))
			w.at("a:1")
			w.pod(0, "a:1", pending)
			w.claim(0).Status.Capacity = nil
			w.at("a:2")
			change(w)
			w.expect("~0")
		})
	}
}

// TestAPodThatPreparesItsDeletionInItsGracePeriod goes on, though its update does not: scaling in and out
// again during the grace period left it, and under OrderedReady all others, as they were for ever
// (ASTS-229 (part)).
func TestAPodThatPreparesItsDeletionInItsGracePeriod(t *testing.T) {
	inGrace := func(pod *corev1.Pod) {
		pod.Annotations = map[string]string{pub.InPlaceUpdateState: `{"revision":"x","updateTimestamp":"2026-01-02T03:04:00Z"}`,
			pub.InPlaceUpdateGrace: `{"revision":"x"}`}
		notReady(pod)
	}
	for name, tt := range map[string]struct {
		image string
		want  string
	}{
		"it stays":       {"a:2", "0: label lifecycle.apps.kruise.io/state=Updating, annotation lifecycle.apps.kruise.io/timestamp"},
		"it is outdated": {"a:1", "-0"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1, policy(possible), hooks)
			w.at("a:1")
			w.at("a:2")
			w.pod(0, tt.image, in(pub.LifecycleStatePreparingDelete), inGrace)
			w.expect(tt.want)
		})
	}
}

// TestWhatStandsStillIsTold shows that a set is not taken for settled while a slot is down, however many pods
// without a slot are available, and that a pod which outlasts its grace period is told of: nothing comes in
// its place.
func TestWhatStandsStillIsTold(t *testing.T) {
	w := newWorld(t, 3, reserve(1))
	w.at("a:1")
	all(w, "a:1", 3)
	w.pod(3, "a:1", notReady)
	if plan := Make(w.Snapshot); plan.Settled() || plan.Waiting == nil {
		t.Errorf("settled %t, waiting %v: %s", plan.Settled(), plan.Waiting, plan)
	}
	w = newWorld(t, 2, inParallel)
	w.at("a:1")
	all(w, "a:1", 3)
	terminating(w.Pods[2])
	if plan := Make(w.Snapshot); plan.Settled() {
		t.Error("settled with a pod too many: ", plan)
	}
	for name, options := range map[string][]option{"ordered": nil, "parallel": {inParallel}} {
		w := newWorld(t, 2, options...)
		w.at("a:1")
		w.pod(0, "a:1")
		w.pod(1, "a:1", terminating)
		if plan := Make(w.Snapshot); plan.Waiting == nil || plan.Settled() {
			t.Errorf("%s: settled %t, waiting %v", name, plan.Settled(), plan.Waiting)
		}
		w.Now = planTime.Add(-time.Minute)
		if plan := Make(w.Snapshot); plan.Waiting != nil || plan.After != time.Minute {
			t.Errorf("%s: after %s, waiting %v in the grace period", name, plan.After, plan.Waiting)
		}
	}
}

// TestWhoIsWaitedForIsTold shows that what is told of a set that stands still under OrderedReady names the
// pod that holds up the others, and what it lacks: of many pods three of those that waited for it were named.
func TestWhoIsWaitedForIsTold(t *testing.T) {
	pulls := func(pod *corev1.Pod) {
		notReady(pod)
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main",
			State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff"}}}}
	}
	const last = ". pod web-7: container main: ImagePullBackOff"
	for name, tt := range map[string]struct {
		replicas int32
		want     string
	}{
		"an update":     {8, "OrderedReady: it comes after others: pod web-7 is not available" + last},
		"scaling in":    {4, "OrderedReady: it comes after others: pod web-7 goes"},
		"a broken slot": {9, "OrderedReady: it comes after others: pod web-7 is not available" + last},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, tt.replicas, policy(possible))
			w.at("a:1")
			w.at("a:2")
			for i := range 7 {
				w.pod(i, "a:1")
			}
			w.pod(7, "a:2", pulls)
			if wait := Make(w.Snapshot).Waiting; wait == nil || wait.String() != tt.want {
				t.Errorf("%v", wait)
			}
		})
	}
	w := newWorld(t, 2, policy(possible)) // nobody waits for longer than a user asked for
	w.at("a:1")
	w.at("a:2")
	w.pod(0, "a:1")
	w.pod(1, "a:2", in(pub.LifecycleStateUpdating), func(pod *corev1.Pod) {
		pod.Annotations = map[string]string{pub.InPlaceUpdateGrace: `{"revision":"` + w.revisions["a:2"] + `","graceSeconds":60}`,
			pub.InPlaceUpdateState: `{"revision":"` + w.revisions["a:2"] + `","updateTimestamp":"2026-01-02T03:04:00Z"}`}
	})
	if wait := Make(w.Snapshot).Waiting; wait != nil {
		t.Errorf("in its grace period: %v", wait)
	}
}

// TestABrokenPodBelowThePartitionIsNamed: a pod that the partition keeps, and that never became ready, uses
// up maxUnavailable: nobody would find it among those that wait for their turn (OPS-099 (part)).
func TestABrokenPodBelowThePartitionIsNamed(t *testing.T) {
	w := newWorld(t, 3, inParallel, policy(possible), partition(1))
	w.at("a:1")
	w.at("a:2")
	w.pod(0, "a:1", func(pod *corev1.Pod) {
		notReady(pod)
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main",
			State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}}}
	})
	w.pod(1, "a:1")
	w.pod(2, "a:1")
	wait := Make(w.Snapshot).Waiting
	if wait == nil || !strings.HasPrefix(wait.String(), "MaxUnavailable: ") || !strings.HasSuffix(wait.String(), ". pod web-0: container main: CrashLoopBackOff") {
		t.Errorf("%v", wait)
	}
}

// TestASelectorThatLosesItsPods: a selector that asks for labels which controllers set and change would not
// find the pods that are made, or lose them in the midst of a rollout. None is made, and that is told
// (ASTS-043 (part)).
func TestASelectorThatLosesItsPods(t *testing.T) {
	for name, tt := range map[string]struct {
		labels   string
		selector metav1.LabelSelectorRequirement
	}{
		"a label that new pods have": {`"app":"web"`, metav1.LabelSelectorRequirement{Key: pub.LifecycleState, Operator: "DoesNotExist"}},
		"one that new pods have not": {`"app":"web","apps.kruise.io/specified-delete":"no"`,
			metav1.LabelSelectorRequirement{Key: pub.SpecifiedDelete, Operator: "Exists"}},
		"one that changes with an update": {`"app":"web"`,
			metav1.LabelSelectorRequirement{Key: pub.ControllerRevisionHash, Operator: "NotIn", Values: []string{"x"}}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1)
			if err := w.Set.Spec.Template.UnmarshalJSON([]byte(`{"metadata":{"labels":{` + tt.labels + `}},"spec":{}}`)); err != nil {
				t.Fatal(err)
			}
			w.Set.Spec.Selector.MatchExpressions = append(w.Set.Spec.Selector.MatchExpressions, tt.selector)
			if plan := Make(w.Snapshot); len(plan.Create) > 0 || plan.UpdateError == "" {
				t.Error(plan)
			}
		})
	}
}
