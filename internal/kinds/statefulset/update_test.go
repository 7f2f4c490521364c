package statefulset

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
)

const (
	possible = appsv1beta1.InPlaceIfPossibleStatefulSetPodUpdatePolicy
	only     = appsv1beta1.InPlaceOnlyStatefulSetPodUpdatePolicy
)

func minReady(seconds int32) option {
	return rollingWith(func(r *appsv1beta1.RollingUpdateStatefulSetStrategy) { r.MinReadySeconds = &seconds })
}

func readyFor(d time.Duration) state {
	return func(pod *corev1.Pod) { pod.Status.Conditions[0].LastTransitionTime = metav1.NewTime(planTime.Add(-d)) }
}

func labelled(key, value string) state {
	return func(pod *corev1.Pod) { pod.Labels[key] = value }
}

var goldFirst = rollingWith(func(r *appsv1beta1.RollingUpdateStatefulSetStrategy) {
	r.UnorderedUpdate = &appsv1beta1.StatefulSetUnorderedUpdate{PriorityStrategy: &pub.UpdatePriorityStrategy{
		WeightPriority: []pub.UpdatePriorityWeightTerm{{Weight: 10,
			MatchSelector: metav1.LabelSelector{MatchLabels: map[string]string{"tier": "gold"}}}}}}
})

func numbered(key string) option {
	return rollingWith(func(r *appsv1beta1.RollingUpdateStatefulSetStrategy) {
		r.UnorderedUpdate = &appsv1beta1.StatefulSetUnorderedUpdate{PriorityStrategy: &pub.UpdatePriorityStrategy{
			OrderPriority: []pub.UpdatePriorityOrderTerm{{OrderedKey: key}}}}
	})
}

func percent(text string) option {
	return rollingWith(func(r *appsv1beta1.RollingUpdateStatefulSetStrategy) {
		value := intstr.FromString(text)
		r.MaxUnavailable = &value
	})
}

func hooks(set *appsv1beta1.StatefulSet) {
	hook := func(label string) *pub.LifecycleHook {
		return &pub.LifecycleHook{LabelsHandler: map[string]string{label: "on"}}
	}
	set.Spec.Lifecycle = &pub.Lifecycle{InPlaceUpdate: hook("update"), PreDelete: hook("delete")}
}

func all(w *world, image string, n int) {
	for i := range n {
		w.pod(i, image)
	}
}

// TestUpdate shows which pods a plan updates, from a:1 to a:2.
func TestUpdate(t *testing.T) {
	for name, tt := range map[string]struct {
		replicas int32
		options  []option
		build    func(*world)
		want     []string
	}{
		"ASTS-148: the highest, one at a time": {4, nil, func(w *world) { all(w, "a:1", 4) }, []string{"-3"}},
		"ASTS-161 (part) in place": {4, []option{policy(possible)}, func(w *world) { all(w, "a:1", 4) },
			[]string{"~3"}},
		"ASTS-147 (part) partition": {3, []option{partition(2)}, func(w *world) {
			all(w, "a:1", 2)
			w.pod(2,
				"a:2")
		}, nil},
		"ASTS-147 (part) partition counts pods, not ordinals": {3, []option{reserve("0-4"), partition(2), policy(possible)},
			func(w *world) { w.pod(5, "a:1"); w.pod(6, "a:1"); w.pod(7, "a:1") }, []string{"~7"}},
		"ASTS-147 (part) partition of all": {3, []option{partition(7)}, func(w *world) { all(w, "a:1", 3) }, nil},
		"ASTS-149: nothing goes back, and what is made anew follows partition": {3, []option{inParallel, partition(2), policy(possible)},
			func(w *world) { w.pod(0, "a:2"); w.pod(2, "a:2") }, []string{"+1 a:1"}},
		"ASTS-149: also where it counts pods": {3, []option{inParallel, unordered, partition(2), policy(possible)},
			func(w *world) { w.pod(1, "a:2"); w.pod(2, "a:2") }, []string{"+0 a:1"}},
		"ASTS-165: under OnDelete pods of the new revision come in the place of those that somebody deletes": {4,
			[]option{inParallel, deletedByHand, policy(possible)},
			func(w *world) { w.pod(0, "a:1"); w.pod(1, "a:1", notReady); w.pod(2, "a:1", terminating) }, []string{"+3 a:2"}},
		"ASTS-164 from any revision": {3, []option{policy(possible)}, func(w *world) {
			all(w, "a:1", 2)
			w.pod(2,
				"a:0")
		}, []string{"~2"}},
		"ASTS-158: those that are down are free": {4, []option{inParallel, policy(possible)}, func(w *world) {
			w.pod(0,
				"a:1", notReady)
			w.pod(1, "a:1", notReady)
			w.pod(2, "a:1")
			w.pod(3, "a:1")
		}, []string{"~0", "~1"}},
		"W1: OrderedReady recovers": {3, []option{policy(possible)}, func(w *world) {
			w.pod(0, "a:1")
			w.pod(1,
				"a:1", pending)
		}, []string{"~1"}},
		"ASTS-150 (part), ASTS-152 (part) by weight": {4, []option{inParallel, goldFirst, policy(possible)}, func(w *world) {
			w.pod(0, "a:1")
			w.pod(1, "a:1", labelled("tier", "gold"))
			w.pod(2, "a:1")
			w.pod(3, "a:1")
		}, []string{"~1"}},
		"ASTS-150 (part) updated ones use up what is to be": {3, []option{inParallel, goldFirst, policy(possible),
			partition(2)}, func(w *world) { w.pod(0, "a:2"); w.pod(1, "a:1", labelled("tier", "gold")); w.pod(2, "a:1") }, nil},
		"ASTS-153 (part) by the number at the end": {4, []option{inParallel, numbered("rank"), policy(possible)}, func(w *world) {
			w.pod(0, "a:1", labelled("rank", "r-9"))
			w.pod(1, "a:1", labelled("rank", "r-10"))
			w.pod(2, "a:1", labelled("rank", "r-1"))
			w.pod(3, "a:1", labelled("rank", "r-2"))
		}, []string{"~1"}},
		"ASTS-153 (part) those without the key first": {3, []option{inParallel, numbered("rank"), policy(possible)}, func(w *world) {
			w.pod(0, "a:1")
			w.pod(1, "a:1", labelled("rank", "r-10"))
			w.pod(2, "a:1", labelled("rank", "r-1"))
		}, []string{"~0"}},
		"ASTS-235 (part), ASTS-236 (part) specified": {3, nil, func(w *world) { all(w, "a:2", 2); w.pod(2, "a:2", specified) },
			[]string{"-2"}},
		"ASTS-236 (part) an available one waits": {6, []option{inParallel, maxUnavailable(3)}, func(w *world) {
			w.pod(0, "a:2", notReady)
			w.pod(1, "a:2", notReady)
			w.pod(2, "a:2", specified)
			w.pod(3, "a:2")
			w.pod(4, "a:2")
			w.pod(5, "a:2", specified)
		}, []string{"-5"}},
		"ASTS-236 (part) one that is down does not": {6, []option{inParallel, maxUnavailable(3)}, func(w *world) {
			w.pod(0, "a:2", notReady, specified)
			w.pod(1, "a:2", notReady)
			w.pod(2, "a:2", specified)
			w.pod(3, "a:2")
			w.pod(4, "a:2")
			w.pod(5, "a:2", specified)
		}, []string{"-0", "-5"}},
		"ASTS-238 (part) paused": {3, []option{paused}, func(w *world) {
			all(w, "a:1", 2)
			w.pod(2, "a:1",
				specified)
		}, []string{"-2"}},
		"ASTS-238 (part) OnDelete, one at a time": {3, []option{inParallel, deletedByHand}, func(w *world) {
			w.pod(0, "a:1",
				specified)
			w.pod(1, "a:1")
			w.pod(2, "a:1", specified)
		}, []string{"-2"}},
		"ASTS-238 (part) OrderedReady, and one is down": {3, nil, func(w *world) {
			w.pod(0, "a:2")
			w.pod(1, "a:2", notReady,
				specified)
			w.pod(2, "a:2", specified)
		}, []string{"-1"}},
		"ASTS-222 (part) the hook comes first": {2, []option{policy(possible), hooks}, func(w *world) {
			w.pod(0,
				"a:1")
			w.pod(1, "a:1", labelled("update",
				"on"))
		}, []string{"1: label lifecycle.apps.kruise.io/state=PreparingUpdate, annotation lifecycle.apps.kruise.io/timestamp"}},
		"ASTS-222 (part) it let go": {2, []option{policy(possible), hooks}, func(w *world) {
			w.pod(0,
				"a:1")
			w.pod(1, "a:1", in(pub.LifecycleStatePreparingUpdate))
		}, []string{"~1"}},
		"ASTS-226 (part) preDelete": {1, []option{hooks}, func(w *world) {
			w.pod(0, "a:2")
			w.pod(1, "a:2",
				labelled("delete", "on"))
		}, []string{"1: label lifecycle.apps.kruise.io/state=PreparingDelete, annotation lifecycle.apps.kruise.io/timestamp"}},
		"ASTS-226 (part) it let go": {1, []option{hooks}, func(w *world) {
			w.pod(0, "a:2")
			w.pod(1, "a:2",
				in(pub.LifecycleStatePreparingDelete))
		}, []string{"-1"}},
		"ASTS-229 (part) it need not go any more": {2, []option{hooks}, func(w *world) {
			w.pod(0, "a:2")
			w.pod(1, "a:2", in(pub.LifecycleStatePreparingDelete), labelled("delete", "on"))
		}, []string{"1: label lifecycle.apps.kruise.io/state=Normal, annotation lifecycle.apps.kruise.io/timestamp"}},
		"ASTS-230 (part) it still has to": {2, []option{policy(possible), hooks}, func(w *world) {
			w.pod(0, "a:1")
			w.pod(1, "a:1",
				in(pub.LifecycleStatePreparingDelete))
		}, []string{"-1"}},
		"ASTS-231 (part), D2: another one that prepares goes on": {3, []option{policy(possible), hooks}, func(w *world) {
			w.pod(0, "a:1", in(pub.LifecycleStatePreparingDelete), labelled("delete", "on"), specified)
			w.pod(1, "a:1")
			w.pod(2, "a:1")
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, tt.replicas, tt.options...)
			w.at("a:0")
			w.Set.Status.CurrentRevision = ""
			w.at("a:1")
			w.at("a:2")
			tt.build(w)
			w.expect(tt.want...)
		})
	}
}

func follow(set *appsv1beta1.StatefulSet) {
	set.Spec.VolumeClaimUpdateStrategy.Type = appsv1beta1.OnPodRollingUpdateStatefulSetClaimUpdate
}

// TestClaimsFollow shows what becomes of PVCs when their template asks for more.
func TestClaimsFollow(t *testing.T) {
	larger := func(w *world) { setClaims(w.Set, "2Gi") }
	size := func(claim *corev1.PersistentVolumeClaim, asked, has string) {
		claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(asked)}
		claim.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(has)}
	}
	remount := func(claim *corev1.PersistentVolumeClaim, since time.Duration) {
		claim.Status.Conditions = []corev1.PersistentVolumeClaimCondition{{Type: corev1.PersistentVolumeClaimFileSystemResizePending,
			Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(planTime.Add(-since))}}
	}
	three := func(w *world) { all(w, "a:1", 3) }
	for name, tt := range map[string]struct {
		options []option
		build   func(*world)
		want    []string
	}{
		"ASTS-270 (part) not by itself":    {nil, func(w *world) { three(w); larger(w) }, nil},
		"ASTS-272 (part), ASTS-273 (part)": {[]option{follow}, func(w *world) { three(w); larger(w) }, []string{"grow 2 2Gi"}},
		"ASTS-156 (part) one grows":        {[]option{follow}, func(w *world) { three(w); larger(w); size(w.claim(2), "2Gi", "1Gi") }, nil},
		"the next": {[]option{follow}, func(w *world) { three(w); larger(w); size(w.claim(2), "2Gi", "2Gi") },
			[]string{"grow 1 2Gi"}},
		"ASTS-276 (part) never smaller": {[]option{follow}, func(w *world) { three(w); size(w.claim(2), "5Gi", "5Gi") }, nil},
		"ASTS-272 (part) two at a time": {[]option{follow, inParallel, maxUnavailable(2)}, func(w *world) { three(w); larger(w) },
			[]string{"grow 2 2Gi", "grow 1 2Gi"}},
		"ASTS-274 (part) first the claim": {[]option{follow, policy(possible)}, func(w *world) { three(w); larger(w); w.at("a:2") },
			[]string{"grow 2 2Gi"}},
		"ASTS-274 (part) it grows": {[]option{follow, policy(possible)}, func(w *world) {
			three(w)
			larger(w)
			size(w.claim(2),
				"2Gi", "1Gi")
			w.at("a:2")
		}, nil},
		"ASTS-274 (part) then the pod": {[]option{follow, policy(possible)}, func(w *world) {
			three(w)
			larger(w)
			size(w.claim(2),
				"2Gi", "2Gi")
			w.at("a:2")
		}, []string{"~2"}},
		"ASTS-274 (part) which may be the mount": {[]option{follow}, func(w *world) {
			three(w)
			larger(w)
			size(w.claim(2), "2Gi", "1Gi")
			remount(w.claim(2), time.Second)
			w.at("a:2")
		}, []string{"-2"}},
		"ASTS-278 (part) it may still come": {[]option{follow}, func(w *world) {
			three(w)
			larger(w)
			size(w.claim(2), "2Gi",
				"1Gi")
			remount(w.claim(2), time.Second)
		}, nil},
		"ASTS-278 (part) it does not": {[]option{follow}, func(w *world) {
			three(w)
			larger(w)
			size(w.claim(2), "2Gi",
				"1Gi")
			remount(w.claim(2), time.Hour)
		}, []string{"-2"}},
		"ASTS-278 (part) its new pod has just come": {[]option{follow}, func(w *world) {
			three(w)
			larger(w)
			size(w.claim(2), "2Gi", "1Gi")
			remount(w.claim(2), time.Hour)
			w.Pods[2].CreationTimestamp = metav1.NewTime(planTime.Add(-time.Second))
		}, nil},
		"ASTS-278 (part) its new pod does not run yet": {[]option{follow}, func(w *world) {
			three(w)
			larger(w)
			size(w.claim(2), "2Gi", "1Gi")
			remount(w.claim(2), time.Hour)
			w.Pods[2].Status.Phase = corev1.PodPending
		}, nil},
		"ASTS-275 (part) what cannot be changed": {[]option{follow},
			func(w *world) { three(w); w.claim(2).Spec.AccessModes = nil; larger(w) }, nil},
		"ASTS-130 (part) a template is added":    {nil, func(w *world) { three(w); w.Pods[2].Spec.Volumes = nil }, []string{"-2"}},
		"ASTS-130 (part) but not under OnDelete": {[]option{deletedByHand}, func(w *world) { three(w); w.Pods[2].Spec.Volumes = nil }, nil},
		"ASTS-130 (part) nor while paused":       {[]option{paused}, func(w *world) { three(w); w.Pods[2].Spec.Volumes = nil }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 3, append([]option{withClaims}, tt.options...)...)
			w.at("a:1")
			tt.build(w)
			w.expect(tt.want...)
		})
	}
}

// TestStorageThatFailsIsTold shows that the set tells what the storage says of a PVC that it cannot grow, as
// long as that holds (ASTS-277 (part)).
func TestStorageThatFailsIsTold(t *testing.T) {
	const pending = corev1.PersistentVolumeClaimFileSystemResizePending
	const volume, node = corev1.PersistentVolumeClaimControllerResizeError, corev1.PersistentVolumeClaimNodeResizeError
	type conditions = []corev1.PersistentVolumeClaimConditionType
	for name, tt := range map[string]struct {
		options    []option
		has        string
		conditions conditions
		told       bool
	}{
		"it grows":                 {[]option{follow}, "1Gi", conditions{corev1.PersistentVolumeClaimResizing}, false},
		"the volume does not":      {[]option{follow}, "1Gi", conditions{volume}, true},
		"the volume does by now":   {[]option{follow}, "1Gi", conditions{volume, pending}, false},
		"the file system does not": {[]option{follow}, "1Gi", conditions{pending, node}, true},
		"it has grown":             {[]option{follow}, "2Gi", conditions{volume}, false},
		"it is not the set's work": {nil, "1Gi", conditions{volume}, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 3, append([]option{withClaims}, tt.options...)...)
			w.at("a:1")
			all(w, "a:1", 3)
			setClaims(w.Set, "2Gi")
			for i := range 3 {
				w.claim(i).Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("2Gi")}
				w.claim(i).Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("2Gi")}
			}
			claim := w.claim(1)
			claim.Status.Capacity[corev1.ResourceStorage] = resource.MustParse(tt.has)
			for _, kind := range tt.conditions {
				claim.Status.Conditions = append(claim.Status.Conditions, corev1.PersistentVolumeClaimCondition{Type: kind,
					Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(planTime), Message: "no room: " + string(kind)})
			}
			plan := Make(w.Snapshot)
			want := "claim data-web-1 does not grow to 2Gi: no room: " + string(tt.conditions[len(tt.conditions)-1])
			if (plan.UpdateError == want) != tt.told {
				t.Errorf("error of the update: got %t, want %t", plan.UpdateError == want, tt.told)
			}
			if !tt.told && plan.UpdateError != "" {
				t.Errorf("update error: got %q, want %q", plan.UpdateError, "")
			}
			if v := plan.Verdicts[1]; tt.told && v.Message != want {
				t.Errorf("the pod waits because %q", v.Message)
			}
		})
	}
}

// TestWhatCannotBeDoneIsTold shows the words that conditions and events get.
func TestWhatCannotBeDoneIsTold(t *testing.T) {
	w := newWorld(t, 2, policy(only))
	w.at("a:1")
	all(w, "a:1", 2)
	document := `{"metadata":{"labels":{"app":"web"}},"spec":{"hostNetwork":true,"containers":[{"name":"main","image":"a:2"}]}}`
	if err := w.Set.Spec.Template.UnmarshalJSON([]byte(document)); err != nil {
		t.Fatal(err)
	}
	plan := Make(w.Snapshot)
	if plan.UpdateError == "" { // ASTS-162 (part)
		t.Errorf("InPlaceOnly and an impossible change: no error is told: %s", plan)
	}
	if len(plan.Verdicts) != 2 {
		t.Errorf("InPlaceOnly and an impossible change: got verdicts for %d pods, want 2: %s", len(plan.Verdicts),
			plan)
	}
	w = newWorld(t, 2, inParallel)
	w.at("a:1")
	w.ForeignPods["web-0"] = true
	plan = Make(w.Snapshot)
	// ASTS-106 (part), ASTS-136 (part)
	if plan.ScaleError == "" {
		t.Errorf("a name is taken: no error is told: %s", plan)
	}
	if plan.Refusal == "" {
		t.Errorf("a name is taken: no refusal is told: %s", plan)
	}
	if len(plan.Create) != 1 || plan.Create[0].Name != "web-1" {
		t.Errorf("a name is taken: want web-1 created alone: %s", plan)
	}
	w = newWorld(t, 2, reserve("a-b"))
	w.revisions["a:1"] = "web-1"
	w.pod(0, "a:1")
	w.pod(7, "a:1")
	w.expect() // ASTS-095 (part)
	if plan := Make(w.Snapshot); plan.UpdateError == "" {
		t.Error("reserved ordinals that cannot be read: ", plan)
	}
}

// TestADeletedSet is left alone (ASTS-073 (part)).
func TestADeletedSet(t *testing.T) {
	w := newWorld(t, 3, withClaims)
	w.at("a:1")
	w.pod(0, "a:1")
	w.pod(7, "a:1", failed)
	end := metav1.NewTime(planTime)
	w.Set.DeletionTimestamp = &end
	w.expect()
}
