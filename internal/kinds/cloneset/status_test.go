package cloneset

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/podplan"
	"github.com/afloat-project/afloat/internal/kinds/cloneset/clonesettest"
	"github.com/afloat-project/afloat/internal/reconcile/podapply"
)

// storedRevision is the revision that stores the template that the change gives a set.
func storedRevision(number int64, change func(*appsv1beta1.CloneSet)) *appsv1.ControllerRevision {
	plan := planFor(clonesettest.Set(1, change))
	plan.NewRevision.Revision = number
	return plan.NewRevision
}

func unready(pod *corev1.Pod) { pod.Status.Conditions = nil }

// progressing returns the condition with the times given, relative to planTime.
func progressing(status corev1.ConditionStatus, reason string, updated, transition time.Duration) *appsv1beta1.CloneSetCondition {
	return &appsv1beta1.CloneSetCondition{Type: appsv1beta1.CloneSetConditionProgressing, Status: status, Reason: reason,
		LastUpdateTime: metav1.NewTime(clonesettest.Now.Add(updated)), LastTransitionTime: metav1.NewTime(clonesettest.Now.Add(transition))}
}

func TestProgressing(t *testing.T) {
	const (
		yes, no = corev1.ConditionTrue, corev1.ConditionFalse
		minute  = time.Minute
	)
	deadline := func(seconds int32) func(*appsv1beta1.CloneSet) {
		return func(set *appsv1beta1.CloneSet) { set.Spec.ProgressDeadlineSeconds = &seconds }
	}
	paused := clonesettest.Rolling(func(s *appsv1beta1.RollingUpdateCloneSetStrategy) { s.Paused = true })
	// generation 2 is observed unless the case says that the user just changed something.
	changed := func(set *appsv1beta1.CloneSet) { set.Generation = 3 }
	tests := map[string]struct {
		set      func(*appsv1beta1.CloneSet)
		updated  int // of two pods
		broken   bool
		previous *appsv1beta1.CloneSetCondition
		want     *appsv1beta1.CloneSetCondition
		after    time.Duration
	}{
		"CS-226 no deadline: no condition": {func(*appsv1beta1.CloneSet) {}, 2, false,
			progressing(yes, "CloneSetUpdated", -minute, -minute), nil, 0},
		"CS-015, CS-226 2147483647 means none": {deadline(math.MaxInt32), 2, false, progressing(yes, "CloneSetUpdated", -minute, -minute),
			nil, 0},
		"CS-226, CS-227 all updated and available": {deadline(600), 2, false, nil, progressing(yes, "CloneSetAvailable", 0, 0), 0},
		"CS-226, CS-276 (part) paused": {clonesettest.Both(deadline(600), paused), 1, false, nil, progressing(yes, "CloneSetPaused", 0, 0),
			0},
		"CS-226 all available goes before paused": {clonesettest.Both(deadline(600), paused), 2, false, nil,
			progressing(yes, "CloneSetAvailable", 0, 0),
			0},
		"CS-226 the partition's share is available": {clonesettest.Both(deadline(600), clonesettest.Partition(1)), 1, false, nil, progressing(yes,
			"ProgressPartitionAvailable", 0, 0), 0},
		"CS-226 paused goes before the partition": {clonesettest.Both(deadline(600), clonesettest.Both(clonesettest.Partition(1), paused)), 1,
			false, nil,
			progressing(yes, "CloneSetPaused", 0, 0), 0},
		"CS-226, CS-231 under way: back when due": {deadline(600), 1, false, nil, progressing(yes, "CloneSetUpdated", 0, 0),
			10 * minute},
		"CS-228, CS-231 progress keeps both times": {deadline(600), 1, false, progressing(yes, "CloneSetUpdated", -minute, -5*minute),
			progressing(yes, "CloneSetUpdated", -minute, -5*minute), 9 * minute},
		"CS-228 another reason: its update time": {deadline(600), 2, false, progressing(yes, "CloneSetUpdated", -minute, -5*minute),
			progressing(yes, "CloneSetAvailable", 0, -5*minute), 0},
		"CS-226, CS-278 the deadline passed": {deadline(60), 2, true, progressing(yes, "CloneSetUpdated", -minute, -minute),
			progressing(no, "ProgressDeadlineExceeded", 0, 0), 0},
		"CS-226 just before the deadline": {deadline(60), 2, true, progressing(yes, "CloneSetUpdated", -minute+time.Second,
			-minute), progressing(yes, "CloneSetUpdated", -minute+time.Second, -minute), time.Second},
		"CS-226 exceeded stays": {deadline(60), 2, true, progressing(no, "ProgressDeadlineExceeded", -minute, -minute),
			progressing(no, "ProgressDeadlineExceeded", -minute, -minute), 0},
		"CS-226 exceeded, then available": {deadline(60), 2, false, progressing(no, "ProgressDeadlineExceeded", -minute,
			-minute), progressing(yes, "CloneSetAvailable", 0, 0), 0},
		"CS-228 time spent paused does not count": {deadline(60), 2, true, progressing(yes, "CloneSetPaused", -time.Hour, -time.Hour),
			progressing(yes, "CloneSetUpdated", 0, -time.Hour), minute},
		"CS-228 nor time at the partition": {deadline(60), 2, true, progressing(yes, "ProgressPartitionAvailable", -time.Hour,
			-time.Hour), progressing(yes, "CloneSetUpdated", 0, -time.Hour), minute},
		"CS-229, CS-351 a new goal restarts it": {clonesettest.Both(deadline(60), changed), 2, true,
			progressing(yes, "CloneSetUpdated", -time.Hour,
				-time.Hour), progressing(yes, "CloneSetUpdated", 0, -time.Hour), minute},
		"CS-229, CS-351 also when it was exceeded": {clonesettest.Both(deadline(60), changed), 2, true,
			progressing(no, "ProgressDeadlineExceeded",
				-time.Hour, -time.Hour), progressing(yes, "CloneSetUpdated", 0, 0), minute},
		"CS-228 available, then a pod is lost again": {deadline(60), 2, true, progressing(yes, "CloneSetAvailable", -time.Hour, -time.Hour),
			progressing(yes, "CloneSetUpdated", 0, -time.Hour), minute},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			set := clonesettest.Set(2, clonesettest.Image("nginx:2"), tt.set)
			if set.Generation == 0 {
				set.Generation = 2
			}
			from, to := storedRevision(1, clonesettest.Image("nginx:1")), storedRevision(2, clonesettest.Image("nginx:2"))
			set.Status.ObservedGeneration, set.Status.CurrentRevision = 2, from.Name
			if tt.previous != nil {
				set.Status.Conditions = []appsv1beta1.CloneSetCondition{*tt.previous}
			}
			var pods []*corev1.Pod
			for i := range 2 {
				pod := clonesettest.Pod(fmt.Sprintf("web-%d", i), map[bool]string{true: to.Name, false: from.Name}[i < tt.updated])
				if tt.broken {
					unready(pod)
				}
				pods = append(pods, pod)
			}
			plan := planFor(set, func(s *Snapshot) { s.Pods, s.Revisions = pods, []*appsv1.ControllerRevision{from, to} })
			got := Condition(&plan.Status, appsv1beta1.CloneSetConditionProgressing)
			if got != nil {
				got.Message = "" // its words are shown by the narratives
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if plan.After != tt.after {
				t.Errorf("looks again after %v, want %v", plan.After, tt.after)
			}
		})
	}
}

// CS-225, CS-339, CS-223: the conditions stand while their step fails, with the present error, and vanish
// when it succeeds.
func TestConditionsStandWhileTheirStepFails(t *testing.T) {
	failed := func(kind appsv1beta1.CloneSetConditionType, message string, updated time.Duration) appsv1beta1.CloneSetCondition {
		return appsv1beta1.CloneSetCondition{Type: kind, Status: corev1.ConditionTrue, Message: message,
			LastUpdateTime: metav1.NewTime(clonesettest.Now.Add(updated)), LastTransitionTime: metav1.NewTime(clonesettest.Now.Add(updated))}
	}
	const scale, update = appsv1beta1.CloneSetConditionFailedScale, appsv1beta1.CloneSetConditionFailedUpdate
	tests := map[string]struct {
		previous                []appsv1beta1.CloneSetCondition
		scaleError, updateError error
		planned                 string
		want                    []appsv1beta1.CloneSetCondition
		changed                 bool
	}{
		"no errors": {nil, nil, nil, "", nil, false},
		"both fail": {nil, errors.New("s"), errors.New("u"), "",
			[]appsv1beta1.CloneSetCondition{failed(scale, "s", 0), failed(update, "u", 0)}, true},
		"still fails": {[]appsv1beta1.CloneSetCondition{failed(scale, "s", -time.Hour)}, errors.New("s"), nil, "",
			[]appsv1beta1.CloneSetCondition{failed(scale, "s", -time.Hour)}, false},
		"fails otherwise": {[]appsv1beta1.CloneSetCondition{failed(scale, "s", -time.Hour)}, errors.New("t"), nil, "",
			[]appsv1beta1.CloneSetCondition{failed(scale, "t", -time.Hour)}, true},
		"succeeds": {[]appsv1beta1.CloneSetCondition{failed(scale, "s", -time.Hour), failed(update, "u", -time.Hour)}, nil, errors.New("u"),
			"",
			[]appsv1beta1.CloneSetCondition{failed(update, "u", -time.Hour)}, true},
		"CS-096, IPU-173 what the plan found wrong": {nil, nil, nil, "bad partition",
			[]appsv1beta1.CloneSetCondition{failed(update, "bad partition", 0)}, true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			set := clonesettest.Set(1)
			set.Status.Conditions = tt.previous
			plan := &Plan{Set: set, Status: *set.Status.DeepCopy(), Plan: podplan.Plan{UpdateError: tt.planned}}
			status, changed := plan.FinalStatus(tt.scaleError, tt.updateError, clonesettest.Now)
			var got []appsv1beta1.CloneSetCondition
			got = append(got, status.Conditions...)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if changed != tt.changed {
				t.Errorf("changed %v", changed)
			}
		})
	}
}

// CS-048, CS-086, CS-220, CS-221 (part), CS-222 (part): what the status counts, and when the update revision
// becomes the current one.
func TestTheStatusCountsPods(t *testing.T) {
	from, to := storedRevision(1, clonesettest.Image("nginx:1")), storedRevision(2, clonesettest.Image("nginx:2"))
	failedPod := func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodFailed }
	succeeded := func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodSucceeded }
	terminating := func(pod *corev1.Pod) { pod.DeletionTimestamp = &metav1.Time{Time: clonesettest.Now} }
	updating := func(pod *corev1.Pod) { pod.Labels[pub.LifecycleState] = "Updating" }
	preparing := func(pod *corev1.Pod) { pod.Labels[pub.LifecycleState] = "PreparingDelete" }
	tests := map[string]struct {
		replicas int32
		previous string
		pods     []*corev1.Pod
		want     appsv1beta1.CloneSetStatus
	}{
		"inactive pods do not count; ready but not settled is not available": {4, from.Name,
			[]*corev1.Pod{clonesettest.Pod("a", from.Name), clonesettest.Pod("b", to.Name, updating), clonesettest.Pod("c", to.Name, unready),
				clonesettest.Pod("d", from.Name, preparing),
				clonesettest.Pod("e", to.Name, failedPod), clonesettest.Pod("f", to.Name, terminating), clonesettest.Pod("g", to.Name, succeeded)},
			appsv1beta1.CloneSetStatus{Replicas: 4, ReadyReplicas: 3, AvailableReplicas: 1, UpdatedReplicas: 2, UpdatedReadyReplicas: 1,
				ExpectedUpdatedReplicas: 4, CurrentRevision: from.Name}},
		"pods that are not active are replaced at once": {4, from.Name,
			[]*corev1.Pod{clonesettest.Pod("a", to.Name), clonesettest.Pod("e", to.Name, failedPod),
				clonesettest.Pod("f", to.Name, terminating), clonesettest.Pod("g", to.Name, succeeded)},
			appsv1beta1.CloneSetStatus{Replicas: 1, ReadyReplicas: 1, AvailableReplicas: 1, UpdatedReplicas: 1, UpdatedReadyReplicas: 1,
				UpdatedAvailableReplicas: 1, ExpectedUpdatedReplicas: 4, CurrentRevision: from.Name}},
		"CS-086 all updated, ready or not: current": {2, from.Name,
			[]*corev1.Pod{clonesettest.Pod("a", to.Name, unready), clonesettest.Pod("b", to.Name)},
			appsv1beta1.CloneSetStatus{Replicas: 2, ReadyReplicas: 1, AvailableReplicas: 1, UpdatedReplicas: 2, UpdatedReadyReplicas: 1,
				UpdatedAvailableReplicas: 1, ExpectedUpdatedReplicas: 2, CurrentRevision: to.Name}},
		"CS-086 all updated, but one is missing": {3, from.Name, []*corev1.Pod{clonesettest.Pod("a", to.Name), clonesettest.Pod("b", to.Name)},
			appsv1beta1.CloneSetStatus{Replicas: 2, ReadyReplicas: 2, AvailableReplicas: 2, UpdatedReplicas: 2, UpdatedReadyReplicas: 2,
				UpdatedAvailableReplicas: 2, ExpectedUpdatedReplicas: 3, CurrentRevision: from.Name}},
		"CS-086 the current one is not stored any more, but a pod carries another": {1, "web-gone",
			[]*corev1.Pod{clonesettest.Pod("a", from.Name)}, appsv1beta1.CloneSetStatus{Replicas: 1, ReadyReplicas: 1,
				AvailableReplicas: 1, ExpectedUpdatedReplicas: 1, CurrentRevision: from.Name}},
		"CS-086 no status, and a pod that ends carries another": {2, "", []*corev1.Pod{clonesettest.Pod("a", to.Name),
			clonesettest.Pod("b", from.Name, terminating)}, appsv1beta1.CloneSetStatus{Replicas: 1, ReadyReplicas: 1, AvailableReplicas: 1,
			UpdatedReplicas: 1, UpdatedReadyReplicas: 1, UpdatedAvailableReplicas: 1, ExpectedUpdatedReplicas: 2, CurrentRevision: from.Name}},
		"CS-086 neither a status nor a pod that knows": {2, "", []*corev1.Pod{clonesettest.Pod("a", "web-gone")},
			appsv1beta1.CloneSetStatus{Replicas: 1, ReadyReplicas: 1, AvailableReplicas: 1, ExpectedUpdatedReplicas: 2,
				CurrentRevision: to.Name}},
		"CS-051 labels in the short style": {1, from.Name, []*corev1.Pod{clonesettest.Pod("a", to.Name[len("web-"):])},
			appsv1beta1.CloneSetStatus{Replicas: 1, ReadyReplicas: 1, AvailableReplicas: 1, UpdatedReplicas: 1, UpdatedReadyReplicas: 1,
				UpdatedAvailableReplicas: 1, ExpectedUpdatedReplicas: 1, CurrentRevision: to.Name}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			set := clonesettest.Set(tt.replicas, clonesettest.Image("nginx:2"))
			set.Generation, set.Status.CurrentRevision = 7, tt.previous
			plan := planFor(set, func(s *Snapshot) { s.Pods, s.Revisions = tt.pods, []*appsv1.ControllerRevision{from, to} })
			tt.want.ObservedGeneration, tt.want.UpdateRevision, tt.want.LabelSelector = 7, to.Name, "app=web"
			if diff := cmp.Diff(tt.want, plan.Status); diff != "" {
				t.Errorf("status (-want +got):\n%s", diff)
			}
			if want := int(tt.replicas - tt.want.Replicas); len(plan.Create) != want {
				t.Errorf("%d pods are created, want %d", len(plan.Create), want)
			}
		})
	}
	controlled := func(uid types.UID) *corev1.Pod {
		return clonesettest.Pod("a", to.Name, func(pod *corev1.Pod) {
			yes := true
			pod.OwnerReferences = []metav1.OwnerReference{{Kind: "CloneSet", UID: "owns it, but does not control it"},
				{Kind: "CloneSet", UID: uid, Controller: &yes}}
		})
	}
	if got := podapply.IndexByController(controlled("set-uid")); !slices.Equal(got, []string{"set-uid"}) {
		t.Errorf("the pod is found as one of %v", got)
	}
}

// CS-088: what nothing carries goes, oldest first, beyond the limit.
func TestWhatNothingCarriesGoesBeyondTheLimit(t *testing.T) {
	var stored []*appsv1.ControllerRevision
	for i := int64(1); i <= 6; i++ {
		stored = append(stored, storedRevision(i, clonesettest.Image(fmt.Sprintf("nginx:%d", i))))
	}
	limit := func(n int32) *int32 { return &n }
	tests := map[string]struct {
		limit   *int32
		carried []int
		want    []int
	}{
		"the default keeps ten":            {nil, nil, nil},
		"as many as the limit":             {limit(4), nil, nil},
		"one too many":                     {limit(3), nil, []int{1}},
		"none kept":                        {limit(0), nil, []int{1, 2, 3, 4}},
		"those that pods carry stay":       {limit(1), []int{1, 3}, []int{2}},
		"CS-347 a negative limit is none":  {limit(-5), []int{1}, []int{2, 3, 4}},
		"carried ones do not use it up":    {limit(2), []int{3, 4}, nil},
		"CS-051 carried by the short hash": {limit(0), []int{-2}, []int{1, 3, 4}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			set := clonesettest.Set(2, clonesettest.Image("nginx:6"))
			set.Spec.RevisionHistoryLimit = tt.limit
			set.Status.CurrentRevision = stored[4].Name // so that 5 is current and 6 the update revision
			var pods []*corev1.Pod
			for _, n := range tt.carried {
				label := stored[max(n, -n)-1].Name
				if n < 0 {
					label = label[len("web-"):]
				}
				pods = append(pods, clonesettest.Pod(fmt.Sprintf("web-%d", n), label))
			}
			plan := planFor(set, func(s *Snapshot) { s.Pods, s.Revisions = pods, stored })
			var got []int
			for _, r := range plan.History {
				got = append(got, int(r.Revision))
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// CS-222: which generation and which selector the status is of, its revisions, and how many names collided so
// far.
func TestWhatTheStatusIsOf(t *testing.T) {
	from, to, other := storedRevision(1, clonesettest.Image("nginx:1")), storedRevision(2, clonesettest.Image("nginx:2")),
		storedRevision(3, clonesettest.Image("nginx:9"))
	other.Name = to.Name
	for name, test := range map[string]struct {
		newest        *appsv1.ControllerRevision
		before, after *int32
	}{"no name collides": {to, new(int32(4)), new(int32(4))}, "the first one does": {other, nil, new(int32(1))}} {
		t.Run(name, func(t *testing.T) {
			set := clonesettest.Set(2, clonesettest.Image("nginx:2"))
			set.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"},
				MatchExpressions: []metav1.LabelSelectorRequirement{
					{Key: "app", Operator: metav1.LabelSelectorOpIn, Values: []string{"web", "a"}}, {Key: "old",
						Operator: metav1.LabelSelectorOpDoesNotExist}}}
			set.Generation, set.Status.ObservedGeneration, set.Status.CurrentRevision, set.Status.CollisionCount = 7, 6, from.Name, test.before
			plan := planFor(set, func(s *Snapshot) {
				s.Pods, s.Revisions = []*corev1.Pod{clonesettest.Pod("a", from.Name)}, []*appsv1.ControllerRevision{from, test.newest}
			})
			want := appsv1beta1.CloneSetStatus{ObservedGeneration: 7, CurrentRevision: from.Name, UpdateRevision: plan.UpdateRevision,
				CollisionCount: test.after, LabelSelector: "app=web,app in (a,web),!old"}
			got := appsv1beta1.CloneSetStatus{ObservedGeneration: plan.Status.ObservedGeneration,
				CurrentRevision: plan.Status.CurrentRevision,
				UpdateRevision:  plan.Status.UpdateRevision, CollisionCount: plan.Status.CollisionCount, LabelSelector: plan.Status.LabelSelector}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s\n%s", diff, plan.UpdateRevision)
			}
			if (plan.UpdateRevision == to.Name) != (test.newest == to) {
				t.Errorf("the update revision is the new one: got %t, want %t\n%s", plan.UpdateRevision == to.Name,
					test.newest == to,
					plan.UpdateRevision)
			}
		})
	}
}

// CS-084: a name that stands for other data is passed over and the collision is counted; equal data are used.
func TestACollisionChoosesAnotherName(t *testing.T) {
	wanted := storedRevision(1, clonesettest.Image("nginx:1"))
	other := storedRevision(3, clonesettest.Image("nginx:9"))
	other.Name = wanted.Name
	set := clonesettest.Set(1)
	plan := planFor(set, func(s *Snapshot) { s.Revisions = []*appsv1.ControllerRevision{other} })
	if plan.NewRevision == nil {
		t.Fatal("new revision: got nil, want a value")
	} else if plan.NewRevision.Name == wanted.Name {
		t.Fatalf("name of the new revision: got %q, want another value; new revision %+v", plan.NewRevision.Name,
			plan.NewRevision)
	} else if plan.NewRevision.Revision != 4 {
		t.Fatalf("revision of the new revision: got %d, want 4; new revision %+v", plan.NewRevision.Revision,
			plan.NewRevision)
	}
	if plan.Status.CollisionCount == nil {
		t.Errorf("collision count: got nil, want a value; status %+v", plan.Status)
	} else if *plan.Status.CollisionCount != 1 {
		t.Errorf("collision count: got %d, want 1; status %+v", *plan.Status.CollisionCount, plan.Status)
	} else if plan.UpdateRevision != plan.NewRevision.Name {
		t.Errorf("update revision: got %q, want %q; status %+v", plan.UpdateRevision, plan.NewRevision.Name,
			plan.Status)
	}
	plan = planFor(clonesettest.Set(1), func(s *Snapshot) { s.Revisions = []*appsv1.ControllerRevision{wanted} })
	if plan.NewRevision != nil {
		t.Errorf("equal data: new revision: got %v, want nil; new revision %v, status %+v", plan.NewRevision,
			plan.NewRevision,
			plan.Status)
	} else if plan.UpdateRevision != wanted.Name {
		t.Errorf("equal data: update revision: got %q, want %q; new revision %v, status %+v", plan.UpdateRevision,
			wanted.Name,
			plan.NewRevision, plan.Status)
	} else if plan.Status.CollisionCount != nil {
		t.Errorf("equal data: collision count: got a value, want nil; new revision %v, status %+v",
			plan.NewRevision, plan.Status)
	}
}
