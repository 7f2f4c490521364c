package statefulset

import (
	"errors"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
)

// noPhase is a pod that no node knows yet.
func noPhase(pod *corev1.Pod) { pod.Status = corev1.PodStatus{} }

// TestTheStatusCountsSlotsAndCondemnedPods shows ASTS-300 and ASTS-304: slots and condemned pods count, and
// those that go as long as they serve.
func TestTheStatusCountsSlotsAndCondemnedPods(t *testing.T) {
	w := newWorld(t, 6, inParallel, withClaims, paused, minReady(60), func(set *appsv1beta1.StatefulSet) { set.Generation = 7 })
	w.at("a:1")
	w.at("a:2")
	collisions := int32(3)
	w.Set.Status.CollisionCount = &collisions
	w.pod(0, "a:1")
	w.pod(1, "a:1", notReady)
	w.pod(2, "a:2")
	w.pod(3, "a:2", readyFor(0))
	w.pod(4, "a:2", terminating)
	w.pod(5, "a:1", noPhase)
	w.pod(8, "a:1")
	size := func(claim *corev1.PersistentVolumeClaim, asked, has string) {
		claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(asked)}
		claim.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(has)}
	}
	setClaims(w.Set, "2Gi")
	size(w.claim(0), "2Gi", "2Gi")
	size(w.claim(1), "3Gi", "2Gi")
	size(w.claim(8), "2Gi", "2Gi") // no slot
	got := Make(w.Snapshot).Status
	want := appsv1beta1.StatefulSetStatus{UpdatedReadyReplicas: 3, UpdatedAvailableReplicas: 2,
		VolumeClaims: []appsv1beta1.StatefulSetVolumeClaimStatus{{VolumeClaimName: "data", CompatibleReplicas: 2,
			CompatibleReadyReplicas: 1}}}
	want.StatefulSetProgress = appsv1beta1.StatefulSetProgress{ObservedGeneration: 7, Replicas: 6, ReadyReplicas: 5, AvailableReplicas: 4,
		CurrentReplicas: 2, UpdatedReplicas: 2, CurrentRevision: w.revisions["a:1"], UpdateRevision: w.revisions["a:2"],
		CollisionCount: &collisions, LabelSelector: "app=web"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestStatusOfThePass shows ASTS-301: what the plan takes away or moves does not count any more.
func TestStatusOfThePass(t *testing.T) {
	for name, tt := range map[string]struct {
		options          []option
		build            func(*world)
		current, updated int32
	}{
		"deleted":   {nil, func(w *world) { all(w, "a:1", 3) }, 2, 0},
		"in place":  {[]option{policy(possible)}, func(w *world) { all(w, "a:1", 3) }, 2, 0},
		"specified": {nil, func(w *world) { all(w, "a:1", 2); w.pod(2, "a:2", specified) }, 2, 0},
		"nothing":   {[]option{paused}, func(w *world) { all(w, "a:1", 2); w.pod(2, "a:2") }, 2, 1},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 3, tt.options...)
			w.at("a:1")
			w.at("a:2")
			tt.build(w)
			status := Make(w.Snapshot).Status
			if status.CurrentReplicas != tt.current {
				t.Errorf("current replicas: got %d, want %d; %d current, %d updated; want %d, %d",
					status.CurrentReplicas, tt.current,
					status.CurrentReplicas, status.UpdatedReplicas, tt.current, tt.updated)
			}
			if status.UpdatedReplicas != tt.updated {
				t.Errorf("updated replicas: got %d, want %d; %d current, %d updated; want %d, %d",
					status.UpdatedReplicas, tt.updated,
					status.CurrentReplicas, status.UpdatedReplicas, tt.current, tt.updated)
			}
		})
	}
}

// TestARolloutIsCompleteWhenEverySlotIsUpdatedAndReady shows ASTS-302 and ASTS-303.
func TestARolloutIsCompleteWhenEverySlotIsUpdatedAndReady(t *testing.T) {
	for name, tt := range map[string]struct {
		options []option
		build   func(*world)
		done    bool
	}{
		"all are updated and ready":  {nil, func(w *world) { all(w, "a:2", 3) }, true},
		"one is not ready":           {nil, func(w *world) { all(w, "a:2", 2); w.pod(2, "a:2", notReady) }, false},
		"one is old":                 {[]option{partition(1)}, func(w *world) { w.pod(0, "a:1"); w.pod(1, "a:2"); w.pod(2, "a:2") }, false},
		"one is missing":             {nil, func(w *world) { all(w, "a:2", 2) }, false},
		"all are, under OnDelete":    {[]option{deletedByHand}, func(w *world) { all(w, "a:2", 3) }, true},
		"one is old, under OnDelete": {[]option{deletedByHand}, func(w *world) { all(w, "a:2", 2); w.pod(2, "a:1") }, false},
		"one that is condemned goes": {nil, func(w *world) { all(w, "a:2", 4) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 3, tt.options...)
			w.at("a:1")
			w.at("a:2")
			tt.build(w)
			plan := Make(w.Snapshot)
			want, current := w.revisions["a:1"], int32(0)
			if tt.done {
				want, current = w.revisions["a:2"], 3
			}
			if plan.Status.CurrentRevision != want {
				t.Errorf("current revision: got %q, want %q", plan.Status.CurrentRevision, want)
			}
			if tt.done && plan.Status.CurrentReplicas != current {
				t.Errorf("current replicas: got %d, want %d; current revision %s, %d pods; want %s",
					plan.Status.CurrentReplicas, current,
					plan.Status.CurrentRevision, plan.Status.CurrentReplicas, want)
			}
		})
	}
}

// TestAPodThatIsLostAfterOnDelete comes back as it was, within the partition of the rolling updates that
// follow: it came back at the revision from before OnDelete, which no pod had any more (ASTS-303,
// ASTS-108 (part)).
func TestAPodThatIsLostAfterOnDelete(t *testing.T) {
	w := newWorld(t, 3, deletedByHand)
	w.at("a:1")
	w.at("a:2")
	all(w, "a:2", 3)
	w.Set.Status = Make(w.Snapshot).Status
	w.at("a:3")
	w.Set.Spec.UpdateStrategy.Type = appsv1beta1.RollingUpdateStatefulSetStrategyType
	partition(3)(w.Set)
	w.Pods = w.Pods[1:]
	w.expect("+0 a:2")
}

// TestConditionsStandAsLongAsSomethingFails shows ASTS-306 and ASTS-307: they stand as long as something
// fails.
func TestConditionsStandAsLongAsSomethingFails(t *testing.T) {
	w := newWorld(t, 1)
	w.at("a:1")
	all(w, "a:1", 1)
	status, changed := Make(w.Snapshot).FinalStatus(errors.New("no quota"), errors.New("no update"), planTime)
	want := []appsv1beta1.StatefulSetCondition{{Type: "FailedCreatePod", Status: "True", Message: "no quota",
		LastTransitionTime: metav1.NewTime(planTime)}, {Type: "FailedUpdatePod", Status: "True", Message: "no update",
		LastTransitionTime: metav1.NewTime(planTime)}}
	if diff := cmp.Diff(want, status.Conditions); diff != "" {
		t.Errorf("conditions (-want +got):\n%s", diff)
	}
	if !changed {
		t.Error("changed: got false, want true")
	}
	w.Set.Status = *status
	if _, changed := Make(w.Snapshot).FinalStatus(errors.New("no quota"), errors.New("no update"), planTime); changed {
		t.Error("the same is written again")
	}
	status, changed = Make(w.Snapshot).FinalStatus(errors.New("no node"), nil, planTime)
	if len(status.Conditions) != 1 {
		t.Errorf("number of conditions: got %d, want 1\n%+v", len(status.Conditions), status.Conditions)
	} else if status.Conditions[0].Message != "no node" {
		t.Errorf("message of the first condition: got %q, want %q\n%+v", status.Conditions[0].Message, "no node",
			status.Conditions)
	} else if !changed {
		t.Errorf("changed: got false, want true\n%+v", status.Conditions)
	}
	if status, _ = Make(w.Snapshot).FinalStatus(nil, nil, planTime); len(status.Conditions) != 0 {
		t.Errorf("number of conditions: got %d, want 0\n%+v", len(status.Conditions), status.Conditions)
	}
}

// TestWhatIsNotCountedStays: a set that cannot be read keeps its numbers.
func TestWhatIsNotCountedStays(t *testing.T) {
	for name, change := range map[string]option{
		"reserved ordinals that cannot be read": reserve("x"),
		"a selector of others": func(set *appsv1beta1.StatefulSet) {
			set.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "other"}}
		},
	} {
		w := newWorld(t, 3)
		w.at("a:1")
		all(w, "a:1", 3)
		w.Set.Status = Make(w.Snapshot).Status
		w.Set.Status.ReadyReplicas = 2
		change(w.Set)
		status := Make(w.Snapshot).Status
		if status.Replicas != 3 {
			t.Errorf("%s: replicas: got %d, want 3\n%+v", name, status.Replicas, status)
		}
		if status.ReadyReplicas != 2 {
			t.Errorf("%s: ready replicas: got %d, want 2\n%+v", name, status.ReadyReplicas, status)
		}
		if status.UpdateRevision != w.revisions["a:1"] {
			t.Errorf("%s: update revision: got %q, want %q\n%+v", name, status.UpdateRevision, w.revisions["a:1"],
				status)
		}
		w.expect()
	}
}

// TestSettled tells when nothing is left to do.
func TestSettled(t *testing.T) {
	for name, tt := range map[string]struct {
		options []option
		build   func(*world)
		want    bool
	}{
		"all":             {nil, func(w *world) { all(w, "a:2", 3) }, true},
		"one is down":     {nil, func(w *world) { all(w, "a:2", 2); w.pod(2, "a:2", notReady) }, false},
		"one is old":      {nil, func(w *world) { all(w, "a:1", 1); w.pod(1, "a:2"); w.pod(2, "a:2") }, false},
		"one is kept old": {[]option{partition(1)}, func(w *world) { all(w, "a:1", 1); w.pod(1, "a:2"); w.pod(2, "a:2") }, true},
	} {
		w := newWorld(t, 3, tt.options...)
		w.at("a:1")
		w.at("a:2")
		tt.build(w)
		if got := Make(w.Snapshot).Settled(); got != tt.want {
			t.Errorf("%s: the plan is settled: got %t, want %t", name, got, tt.want)
		}
	}
}

// TestOnlyNumbers: a status whose numbers alone change may wait; revisions and conditions may not.
func TestOnlyNumbers(t *testing.T) {
	from := &appsv1beta1.StatefulSetStatus{}
	to := &appsv1beta1.StatefulSetStatus{UpdatedReadyReplicas: 1, UpdatedAvailableReplicas: 1}
	to.Replicas, to.ReadyReplicas, to.AvailableReplicas, to.CurrentReplicas, to.UpdatedReplicas = 1, 2, 3, 4, 5
	to.VolumeClaims = []appsv1beta1.StatefulSetVolumeClaimStatus{{VolumeClaimName: "data"}}
	if !OnlyNumbers(from, to) {
		t.Error("numbers")
	}
	to.UpdateRevision = "web-2"
	if OnlyNumbers(from, to) {
		t.Error("a revision")
	}
}

// TestTheWholeStatusIsCompared shows that a status in which any single field is stale is written anew
// (ASTS-305 (part)).
func TestTheWholeStatusIsCompared(t *testing.T) {
	w := newWorld(t, 2, withClaims)
	w.at("a:1")
	all(w, "a:1", 2)
	status, changed := Make(w.Snapshot).FinalStatus(errors.New("no quota"), nil, planTime)
	if !changed {
		t.Fatal("a first status is none")
	}
	w.Set.Status = *status
	if _, changed := Make(w.Snapshot).FinalStatus(errors.New("no quota"), nil, planTime); changed {
		t.Error("the same is written again")
	}
	fields := func(of reflect.Value) (all []reflect.Value) {
		for i := range of.NumField() {
			if of.Type().Field(i).Anonymous {
				continue
			}
			all = append(all, of.Field(i))
		}
		return all
	}
	stale := func() []reflect.Value {
		value := reflect.ValueOf(&w.Set.Status).Elem()
		return append(fields(value), fields(value.FieldByName("StatefulSetProgress"))...)
	}
	if n := len(stale()); n < 14 {
		t.Fatalf("%d fields", n)
	}
	for i := range stale() {
		w.Set.Status = *status.DeepCopy()
		switch field := stale()[i]; field.Kind() {
		case reflect.Int32, reflect.Int64:
			field.SetInt(field.Int() + 7)
		case reflect.String:
			field.SetString("stale")
		case reflect.Slice:
			field.SetZero()
		case reflect.Pointer:
			continue // the plan begins with the count of collisions that the status has
		default:
			t.Fatalf("field %d is a %s", i, field.Kind())
		}
		if _, changed := Make(w.Snapshot).FinalStatus(errors.New("no quota"), nil, planTime); !changed {
			t.Errorf("%+v is not written", w.Set.Status)
		}
	}
	w.Set.Status = *status.DeepCopy()
	plan := Make(w.Snapshot)
	plan.Status.CollisionCount = new(int32)
	if _, changed := plan.FinalStatus(errors.New("no quota"), nil, planTime); !changed {
		t.Error("a collision is not written")
	}
}
