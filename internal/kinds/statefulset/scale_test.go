package statefulset

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/podplan"
)

// TestScaleOrdered shows the steps of OrderedReady: ASTS-121, ASTS-122, ASTS-123, ASTS-124, ASTS-126 (part)
// and ASTS-127.
func TestScaleOrdered(t *testing.T) {
	pace := []option{minReady(60)}
	for name, tt := range map[string]struct {
		replicas int32
		options  []option
		build    func(*world)
		want     []string
	}{
		"the first":             {3, nil, func(*world) {}, []string{"+0 a:1"}},
		"the next":              {3, nil, func(w *world) { w.pod(0, "a:1") }, []string{"+1 a:1"}},
		"one is slow":           {3, nil, func(w *world) { w.pod(0, "a:1", notReady) }, nil},
		"one is slow far below": {4, nil, func(w *world) { w.pod(0, "a:1", notReady); w.pod(1, "a:1"); w.pod(2, "a:1") }, nil},
		"one prepares": {3, nil, func(w *world) { w.pod(0, "a:1", in(pub.LifecycleStatePreparingNormal)) },
			[]string{"0: label lifecycle.apps.kruise.io/state=Normal, annotation lifecycle.apps.kruise.io/timestamp"}},
		"minReadySeconds":        {3, pace, func(w *world) { w.pod(0, "a:1", readyFor(30*time.Second)) }, nil},
		"minReadySeconds passed": {3, pace, func(w *world) { w.pod(0, "a:1", readyFor(61*time.Second)) }, []string{"+1 a:1"}},
		"one goes":               {3, nil, func(w *world) { w.pod(0, "a:1"); w.pod(1, "a:1", terminating) }, nil},
		"one goes, and serves":   {3, nil, func(w *world) { w.pod(0, "a:1", terminating); w.pod(1, "a:1") }, nil},
		"one has failed": {3, nil, func(w *world) { w.pod(0, "a:1", failed); w.pod(1, "a:1", failed) },
			[]string{"-0"}},
		"a hole is filled first": {3, nil, func(w *world) { w.pod(1, "a:1"); w.pod(4, "a:1") }, []string{"+0 a:1"}},
		"the highest goes": {1, nil, func(w *world) { w.pod(0, "a:1"); w.pod(1, "a:1"); w.pod(2, "a:1") },
			[]string{"-2"}},
		"none while one goes": {1, nil,
			func(w *world) { w.pod(0, "a:1"); w.pod(1, "a:1"); w.pod(2, "a:1", terminating) }, nil},
		"none while a slot is down": {1, nil, func(w *world) { w.pod(0, "a:1", notReady); w.pod(1, "a:1") }, nil},
		"the lowest unhealthy of all": {1, nil, func(w *world) { w.pod(0, "a:1"); w.pod(1, "a:1"); w.pod(2, "a:1", notReady) },
			[]string{"-2"}},
		"not the higher of two": {1, nil,
			func(w *world) { w.pod(0, "a:1"); w.pod(1, "a:1", notReady); w.pod(2, "a:1", notReady) }, []string{"-1"}},
		"the successor first": {3, []option{reserve(1)}, func(w *world) { w.pod(0, "a:1"); w.pod(1, "a:1"); w.pod(2, "a:1") },
			[]string{"+3 a:1"}},
		"it is not available yet": {3, []option{reserve(1)},
			func(w *world) { w.pod(0, "a:1"); w.pod(1, "a:1"); w.pod(2, "a:1"); w.pod(3, "a:1", notReady) }, nil},
		"then the reserved one": {3, []option{reserve(1)},
			func(w *world) { w.pod(0, "a:1"); w.pod(1, "a:1"); w.pod(2, "a:1"); w.pod(3, "a:1") }, []string{"-1"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, tt.replicas, tt.options...)
			w.at("a:1")
			tt.build(w)
			w.expect(tt.want...)
		})
	}
}

// TestScaleParallel shows what happens at a time under Parallel: ASTS-137, ASTS-138, ASTS-139, ASTS-141 and
// ASTS-142.
func TestScaleParallel(t *testing.T) {
	scalePercent := func(text string) option {
		return func(set *appsv1beta1.StatefulSet) {
			value := intstr.FromString(text)
			set.Spec.ScaleStrategy = &appsv1beta1.StatefulSetScaleStrategy{MaxUnavailable: &value}
		}
	}
	unlabelled := func(pod *corev1.Pod) { delete(pod.Labels, "statefulset.kubernetes.io/pod-name") }
	for name, tt := range map[string]struct {
		replicas int32
		options  []option
		build    func(*world)
		want     []string
	}{
		"all that are missing": {3, nil, func(w *world) { w.pod(1, "a:1", notReady) }, []string{"+0 a:1", "+2 a:1"}},
		"all that are condemned": {1, nil,
			func(w *world) {
				w.pod(0, "a:1", notReady)
				w.pod(1, "a:1")
				w.pod(2, "a:1", notReady)
				w.pod(3, "a:1", failed)
			},
			[]string{"-1", "-2", "-3"}},
		"two at a time": {5, []option{scaleBy(2)}, func(*world) {}, []string{"+0 a:1", "+1 a:1"}},
		"none while both come up": {5, []option{scaleBy(2)},
			func(w *world) { w.pod(0, "a:1", pending); w.pod(1, "a:1", notReady) },
			nil},
		"a third": {5, []option{scaleBy(2)}, func(w *world) { w.pod(0, "a:1"); w.pod(1, "a:1", notReady) },
			[]string{"+2 a:1"}},
		"a percentage of replicas": {5, []option{scalePercent("40%")}, func(*world) {}, []string{"+0 a:1", "+1 a:1"}},
		"rounded down":             {5, []option{scalePercent("59%")}, func(*world) {}, []string{"+0 a:1", "+1 a:1"}},
		"never below one":          {5, []option{scalePercent("19%")}, func(*world) {}, []string{"+0 a:1"}},
		"minReadySeconds counts": {3, []option{scaleBy(1), minReady(60)},
			func(w *world) { w.pod(0, "a:1", readyFor(0)) }, nil},
		"one that goes is no load": {3, []option{scaleBy(1)}, func(w *world) { w.pod(0, "a:1", terminating, notReady) },
			[]string{"+1 a:1"}},
		"nor are many that go": {4, []option{scaleBy(2)},
			func(w *world) { w.pod(0, "a:1", terminating); w.pod(1, "a:1", terminating, notReady) },
			[]string{"+2 a:1", "+3 a:1"}},
		"one that goes beside a slow one": {4, []option{scaleBy(2)},
			func(w *world) { w.pod(0, "a:1", terminating, notReady); w.pod(1, "a:1", notReady) },
			[]string{"+2 a:1"}},
		"one costs one, whatever it lacks": {3, []option{scaleBy(2), minReady(60)}, func(w *world) {
			w.pod(0, "a:1", pending, readyFor(0), specified, in(pub.LifecycleStateUpdating))
			notReady(w.Pods[0])
		}, []string{"+1 a:1", "-0"}},
		"a name that is taken is no load": {3, []option{scaleBy(1)}, func(w *world) { w.ForeignPods["web-0"] = true }, []string{"+1 a:1"}},
		"nor is one whose claim goes": {2, []option{scaleBy(1), withClaims}, func(w *world) {
			end := metav1.NewTime(planTime)
			w.claim(0).DeletionTimestamp = &end
		}, []string{"+1 a:1"}},
		"deletion is not limited": {1, []option{scaleBy(1)},
			func(w *world) { w.pod(0, "a:1", notReady); w.pod(1, "a:1"); w.pod(2, "a:1") }, []string{"-1", "-2"}},
		"beyond the stop others are repaired, updated and deleted": {4, []option{scaleBy(1), policy(possible)}, func(w *world) {
			w.pod(0, "a:1", notReady)
			w.pod(2, "a:0", notReady)
			w.pod(3, "a:1", notReady, unlabelled)
			w.pod(9, "a:1")
		}, []string{"~2", "3: label apps.kubernetes.io/pod-index=3, label statefulset.kubernetes.io/pod-name=web-3", "-9"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, tt.replicas, append([]option{inParallel}, tt.options...)...)
			w.at("a:0")
			w.Set.Status.CurrentRevision = ""
			w.at("a:1")
			tt.build(w)
			w.expect(tt.want...)
		})
	}
}

// TestPodsThatEnded shows ASTS-120 and ASTS-140: a slot without a pod gets one; a pod that has ended goes
// first, through its preDelete hook, and holds up its own successor under no policy, however few may be
// created at a time.
func TestPodsThatEnded(t *testing.T) {
	succeeded := func(pod *corev1.Pod) { failed(pod); pod.Status.Phase = corev1.PodSucceeded }
	const prepares = "0: label lifecycle.apps.kruise.io/state=PreparingDelete, annotation lifecycle.apps.kruise.io/timestamp"
	for policy, options := range map[string][]option{"ordered": nil, "parallel": {inParallel}, "one at a time": {inParallel, scaleBy(1)}} {
		for name, tt := range map[string]struct {
			states []state
			want   []string
		}{
			"failed":               {[]state{failed}, []string{"-0"}},
			"succeeded":            {[]state{succeeded}, []string{"-0"}},
			"its hook holds it":    {[]state{failed, labelled("delete", "on")}, []string{prepares}},
			"its hook holds still": {[]state{failed, labelled("delete", "on"), in(pub.LifecycleStatePreparingDelete)}, nil},
			"its hook let go":      {[]state{failed, in(pub.LifecycleStatePreparingDelete)}, []string{"-0"}},
			"it goes":              {[]state{failed, terminating}, nil},
		} {
			t.Run(policy+", "+name, func(t *testing.T) {
				w := newWorld(t, 2, append([]option{hooks}, options...)...)
				w.at("a:1")
				w.pod(0, "a:1", tt.states...)
				w.pod(1, "a:1")
				w.expect(tt.want...) // nothing is made in its place by this plan
				w.Pods = w.Pods[1:]
				w.expect("+0 a:1")
			})
		}
	}
	// One that has ended uses up nothing of what may be created.
	w := newWorld(t, 3, inParallel, scaleBy(1))
	w.at("a:1")
	w.pod(0, "a:1", failed)
	w.expect("-0", "+1 a:1")
}

// TestBlockedPodsGoOn shows ASTS-125: under OrderedReady a pod that holds up the others goes on itself when
// its hook lets it.
func TestBlockedPodsGoOn(t *testing.T) {
	normal := "0: label lifecycle.apps.kruise.io/state=Normal, annotation lifecycle.apps.kruise.io/timestamp"
	for name, tt := range map[string]struct {
		image  string
		states []state
		want   []string
	}{
		"prepares an update, and is held":    {"a:1", []state{in(pub.LifecycleStatePreparingUpdate), labelled("update", "on")}, nil},
		"prepares an update, and may":        {"a:1", []state{in(pub.LifecycleStatePreparingUpdate)}, []string{"~0"}},
		"prepares its deletion, and is held": {"a:2", []state{in(pub.LifecycleStatePreparingDelete), specified, labelled("delete", "on")}, nil},
		"prepares its deletion, and may":     {"a:2", []state{in(pub.LifecycleStatePreparingDelete), specified}, []string{"-0"}},
		"is updated, and its hook is away":   {"a:2", []state{in(pub.LifecycleStateUpdated)}, nil},
		"is updated, and its hook is back":   {"a:2", []state{in(pub.LifecycleStateUpdated), labelled("update", "on")}, []string{normal}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 3, policy(possible), hooks)
			w.at("a:1")
			w.at("a:2")
			w.pod(0, tt.image, tt.states...)
			w.pod(1, "a:1")
			w.expect(tt.want...) // the third is missing
		})
	}
}

// TestRevisionOfNewPods shows ASTS-107, ASTS-108, ASTS-109 and ASTS-110.
func TestRevisionOfNewPods(t *testing.T) {
	stateless := func(set *appsv1beta1.StatefulSet) {
		set.Spec.UpdateStrategy.RollingUpdate, set.Status.CurrentReplicas = nil, 3
	}
	for name, tt := range map[string]struct {
		options []option
		build   func(*world)
		want    []string
	}{
		"OnDelete":  {[]option{deletedByHand}, func(*world) {}, []string{"+0 a:2", "+1 a:2", "+2 a:2", "+3 a:2"}},
		"partition": {[]option{partition(2)}, func(*world) {}, []string{"+0 a:1", "+1 a:1", "+2 a:2", "+3 a:2"}},
		"partition, by rank": {[]option{partition(2), reserve("0-1", 3)}, func(*world) {},
			[]string{"+2 a:1", "+4 a:1", "+5 a:2", "+6 a:2"}},
		"partition, whatever the others are": {[]option{partition(2)}, func(w *world) { w.pod(2, "a:1"); w.pod(3, "a:1") },
			[]string{"+0 a:1", "+1 a:1"}},
		"no rollingUpdate": {[]option{stateless}, func(*world) {}, []string{"+0 a:1", "+1 a:1", "+2 a:1", "+3 a:2"}},
		"no rollingUpdate, by rank": {[]option{stateless, start(7), reserve(8)}, func(*world) {},
			[]string{"+7 a:1", "+9 a:1", "+10 a:1", "+11 a:2"}},
		"unordered": {[]option{partition(2), unordered}, func(*world) {},
			[]string{"+0 a:1", "+1 a:1", "+2 a:2", "+3 a:2"}},
		"unordered, no partition": {[]option{unordered}, func(*world) {}, []string{"+0 a:2", "+1 a:2", "+2 a:2", "+3 a:2"}},
		"unordered, none is updated": {[]option{partition(2), unordered, paused}, func(w *world) { w.pod(2, "a:1"); w.pod(3, "a:1") },
			[]string{"+0 a:2", "+1 a:2"}},
		"unordered, all are": {[]option{partition(2), unordered, paused}, func(w *world) { w.pod(2, "a:2"); w.pod(3, "a:2") },
			[]string{"+0 a:1", "+1 a:1"}},
		"unordered, one is": {[]option{partition(2), unordered, paused}, func(w *world) { w.pod(3, "a:1"); w.pod(2, "a:2") },
			[]string{"+0 a:1", "+1 a:2"}},
		"unordered, one that goes counts, no slot does not": {[]option{partition(2), unordered, paused}, func(w *world) {
			w.pod(3, "a:1", terminating)
			w.pod(7, "a:1", terminating)
		}, []string{"+0 a:1", "+1 a:2", "+2 a:2"}},
		"paused": {[]option{paused}, func(w *world) { w.pod(3, "a:1") }, []string{"+0 a:2", "+1 a:2", "+2 a:2"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 4, append([]option{inParallel}, tt.options...)...)
			w.at("a:1")
			w.at("a:2")
			tt.build(w)
			w.expect(tt.want...)
		})
	}
}

// TestOwnersOfClaimsComeBeforePodsGo shows ASTS-261 and ASTS-262 (part): owners come before pods go.
func TestOwnersOfClaimsComeBeforePodsGo(t *testing.T) {
	type policy = appsv1beta1.StatefulSetClaimRetentionPolicy
	const keep, remove = appsv1beta1.RetainStatefulSetClaims, appsv1beta1.DeleteStatefulSetClaims
	for _, tt := range []struct {
		policy *policy
		first  []string
		slot   int // owners of the PVC of the pod that stays
	}{
		{nil, []string{"-1"}, 0},
		{&policy{WhenDeleted: keep, WhenScaled: keep}, []string{"-1"}, 0},
		{&policy{WhenDeleted: remove, WhenScaled: keep}, []string{"owners 0 [StatefulSet]", "owners 1 [StatefulSet]"}, 1},
		{&policy{WhenDeleted: keep, WhenScaled: remove}, []string{"owners 1 [Pod]"}, 0},
		{&policy{WhenDeleted: remove, WhenScaled: remove}, []string{"owners 0 [StatefulSet]", "owners 1 [Pod]"}, 1},
	} {
		w := newWorld(t, 1, withClaims, func(set *appsv1beta1.StatefulSet) { set.Spec.PersistentVolumeClaimRetentionPolicy = tt.policy })
		w.at("a:1")
		w.pod(0, "a:1")
		w.pod(1, "a:1")
		w.expect(tt.first...)
		for _, change := range Make(w.Snapshot).ClaimOwners {
			change.Claim.OwnerReferences = change.Owners
		}
		w.expect("-1")
		if got := len(w.claim(0).OwnerReferences); got != tt.slot {
			t.Errorf("%+v: %d owners of what stays", tt.policy, got)
		}
		// The policy changes, and with it the owners.
		w.Set.Spec.PersistentVolumeClaimRetentionPolicy = nil
		want := []string{"-1"}
		if tt.slot > 0 {
			want = []string{"owners 0 []"}
		}
		if len(w.claim(1).OwnerReferences) > 0 {
			want = append(slicesWithout(want, "-1"), "owners 1 []")
		}
		w.expect(want...)
	}
}

func slicesWithout(list []string, word string) (kept []string) {
	for _, one := range list {
		if one != word {
			kept = append(kept, one)
		}
	}
	return kept
}

// TestBrokenPodsBeyondTheReplicasDoNotWaitForEachOther shows ASTS-126: of several condemned pods that are not
// healthy the lowest goes.
func TestBrokenPodsBeyondTheReplicasDoNotWaitForEachOther(t *testing.T) {
	for name, tt := range map[string]struct {
		replicas int32
		states   map[int]state
		want     []string
	}{
		"two, down to none":      {0, map[int]state{1: notReady, 2: notReady}, []string{"-1"}},
		"two, down to one":       {1, map[int]state{1: notReady, 2: notReady}, []string{"-1"}},
		"a healthy one between":  {1, map[int]state{1: notReady, 2: labelled("x", ""), 3: notReady}, []string{"-1"}},
		"the lowest goes":        {1, map[int]state{1: terminating, 2: notReady, 3: notReady}, nil},
		"the highest is healthy": {1, map[int]state{1: notReady, 2: notReady, 3: labelled("x", "")}, []string{"-3"}},
		"a slot is broken":       {1, map[int]state{0: notReady, 1: notReady, 2: notReady}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, tt.replicas)
			w.at("a:1")
			for i := range 4 {
				if tt.states[i] != nil {
					w.pod(i, "a:1", tt.states[i])
				} else if i < int(tt.replicas) {
					w.pod(i, "a:1")
				}
			}
			w.expect(tt.want...)
		})
	}
}

// TestAPodThatEndedBeforeStaysForAWhile shows ASTS-140 (part): a pod that ended goes at once, and stays if
// another one of its name ended a moment ago; also under OrderedReady, where others wait for it.
func TestAPodThatEndedBeforeStaysForAWhile(t *testing.T) {
	for name, option := range map[string]option{"ordered": replicas(2), "parallel": inParallel} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 2, option)
			w.at("a:1")
			w.pod(0, "a:1", failed)
			w.pod(1, "a:1")
			w.expect("-0")
			if ended := Make(w.Snapshot).Ended; len(ended) != 1 {
				t.Errorf("number ended: got %d, want 1\n%v", len(ended), ended)
			} else if ended[0].Name != "web-0" {
				t.Errorf("name of the first of the ended: got %q, want %q\n%v", ended[0].Name, "web-0", ended)
			}
			w.FailedUntil = map[string]time.Time{"web-0": planTime.Add(time.Second), "web-1": planTime}
			w.expect()
			plan := Make(w.Snapshot)
			if v := plan.Verdicts[0]; v.Reason != podplan.ReasonFailed {
				t.Errorf("reason: got %q, want %q\n%v", v.Reason, podplan.ReasonFailed, plan)
			}
			if plan.After != time.Second {
				t.Errorf("time to the next pass: got %v, want %v\n%v", plan.After, time.Second, plan)
			}
			if len(plan.Ended) > 0 {
				t.Errorf("ended: got %v, want none\n%v", plan.Ended, plan)
			}
		})
	}
}

// TestAPodThatIsShownInAMomentIsNoStranger shows ASTS-106 (part): it is waited for, and nobody is told to
// delete it.
func TestAPodThatIsShownInAMomentIsNoStranger(t *testing.T) {
	w := newWorld(t, 2, inParallel)
	w.at("a:1")
	w.pod(0, "a:1")
	w.Late = map[string]bool{"web-1": true}
	w.expect()
	plan := Make(w.Snapshot)
	if plan.Refusal+plan.ScaleError != "" {
		t.Errorf("refusal and error of scaling: got %q, want %q\n%v", plan.Refusal+plan.ScaleError, "", plan)
	}
	if plan.After == 0 {
		t.Errorf("time to the next pass: got %v, want another value\n%v", plan.After, plan)
	}
}
