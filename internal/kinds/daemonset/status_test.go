package daemonset

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
)

// TestStatus shows ADS-190 and ADS-191: what each node adds to the status. n9 is a node with an available pod
// of the update revision.
func TestStatus(t *testing.T) {
	updating := func(pod *corev1.Pod) {
		gated(pod)
		pod.Status.Conditions[1].Status = corev1.ConditionFalse
	}
	for name, tt := range map[string]struct {
		node nodeState
		pods func(*world)
		// desired, current, misscheduled, ready, available, updated
		want [6]int32
	}{
		"no pod":              {nil, func(*world) {}, [6]int32{1}},
		"an old one":          {nil, func(w *world) { w.pod("n1", "a:1") }, [6]int32{1, 1, 0, 1, 1, 0}},
		"a new one":           {nil, func(w *world) { w.pod("n1", "a:2") }, [6]int32{1, 1, 0, 1, 1, 1}},
		"not ready":           {nil, func(w *world) { w.pod("n1", "a:2", notReadyPod) }, [6]int32{1, 1, 0, 0, 0, 1}},
		"not for long enough": {nil, func(w *world) { w.pod("n1", "a:2", readyFor(time.Second)) }, [6]int32{1, 1, 0, 1, 0, 1}},
		"the gate is open":    {nil, func(w *world) { w.pod("n1", "a:2", gated) }, [6]int32{1, 1, 0, 1, 1, 1}},
		"the gate is closed":  {nil, func(w *world) { w.pod("n1", "a:2", updating) }, [6]int32{1, 1, 0, 0, 0, 1}},
		"being deleted":       {nil, func(w *world) { w.pod("n1", "a:2", terminating) }, [6]int32{1, 1, 0, 0, 0, 0}},
		"the next one is judged then": {nil, func(w *world) {
			w.pod("n1", "a:1", terminating)
			w.pod("n1", "a:2", born(0))
		}, [6]int32{1, 1, 0, 1, 1, 1}},
		"the old one of two": {nil, func(w *world) {
			w.pod("n1", "a:1", notReadyPod)
			w.pod("n1", "a:2", born(0))
		}, [6]int32{1, 1, 0, 0, 0, 0}},
		"failed":                {nil, func(w *world) { w.pod("n1", "a:2", failed) }, [6]int32{1, 1, 0, 0, 0, 1}},
		"tolerable, with a pod": {closed, func(w *world) { w.pod("n1", "a:2") }, [6]int32{0, 0, 1}},
		"with two":              {closed, func(w *world) { w.pod("n1", "a:2"); w.pod("n1", "a:2") }, [6]int32{0, 0, 1}},
		"without one":           {closed, func(*world) {}, [6]int32{}},
		"not tolerable":         {evicting, func(w *world) { w.pod("n1", "a:2") }, [6]int32{0, 0, 1}},
		"a pod of a lost node":  {nil, func(w *world) { w.pod("gone", "a:2") }, [6]int32{1}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1, maxSurge(1), minReady(10))
			w.node("n9")
			w.at("a:1")
			w.at("a:2")
			if tt.node != nil {
				w.node("n1", tt.node)
			}
			tt.pods(w)
			w.pod("n9", "a:2")
			s := w.plan().Status
			got := [6]int32{s.DesiredNumberScheduled - 1, s.CurrentNumberScheduled - 1, s.NumberMisscheduled, s.NumberReady - 1,
				s.NumberAvailable - 1, s.UpdatedNumberScheduled - 1}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
			if s.NumberUnavailable != s.DesiredNumberScheduled-s.NumberAvailable {
				t.Errorf("%d are unavailable: %+v", s.NumberUnavailable, s)
			}
		})
	}
}

// TestFinalStatus shows ADS-192 (part) and ADS-194: the generation moves when a pass was complete, counts and
// revision always; a condition stands while its step fails.
func TestFinalStatus(t *testing.T) {
	w := newWorld(t, 2)
	w.Set.Generation, w.Set.Status.ObservedGeneration = 5, 4
	w.at("a:1")
	w.pod("n1", "a:1")
	plan := w.plan()
	done, changed := plan.FinalStatus(nil, nil, planTime)
	if !changed || done.ObservedGeneration != 5 || len(done.Conditions) != 0 || done.NumberAvailable != 1 ||
		done.UpdateRevision != w.hash("a:1") {
		t.Errorf("%+v", done)
	}
	failed, changed := plan.FinalStatus(errors.New("no quota"), nil, planTime)
	want := []appsv1beta1.DaemonSetCondition{{Type: "FailedCreatePod", Status: corev1.ConditionTrue, Message: "no quota",
		LastTransitionTime: metav1.NewTime(planTime)}}
	if diff := cmp.Diff(want, failed.Conditions); diff != "" || !changed || failed.ObservedGeneration != 4 || failed.NumberAvailable != 1 ||
		failed.UpdateRevision != w.hash("a:1") {
		t.Errorf("%+v %s", failed, diff)
	}
	w.Set.Status = *failed
	later, changed := w.plan().FinalStatus(errors.New("no quota"), errors.New("refused"), planTime.Add(time.Hour))
	if !changed || len(later.Conditions) != 2 || later.Conditions[0].LastTransitionTime != metav1.NewTime(planTime) ||
		later.Conditions[1].Type != "FailedUpdatePod" {
		t.Errorf("%+v", later.Conditions)
	}
	w.Set.Status = *later
	if _, changed = w.plan().FinalStatus(errors.New("no quota"), errors.New("refused"), planTime.Add(2*time.Hour)); changed {
		t.Error("nothing changed, and it is written")
	}
	if done, changed = w.plan().FinalStatus(nil, nil, planTime); !changed || len(done.Conditions) != 0 || done.ObservedGeneration != 5 {
		t.Errorf("%+v", done)
	}
}

// TestSetsThatAreLeftAlone shows ADS-041 (part) and ADS-042 (part): of a set that is being deleted nothing is
// changed, nor of one whose selector selects everything.
func TestSetsThatAreLeftAlone(t *testing.T) {
	for name, tt := range map[string]struct {
		change     option
		selectsAll bool
	}{
		"being deleted": {func(set *appsv1beta1.DaemonSet) { set.DeletionTimestamp = &metav1.Time{Time: planTime} }, false},
		"selects all":   {func(set *appsv1beta1.DaemonSet) { set.Spec.Selector = &metav1.LabelSelector{} }, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 4)
			w.at("a:1")
			w.node("n2", evicting)
			w.on("n1 n2 n3 n3", "a:1")
			template(w.Set, "a:2")
			w.Orphans = append(w.Orphans, w.pod("n1", "a:1"))
			w.Orphans[0].OwnerReferences = nil
			w.Pods = w.Pods[:len(w.Pods)-1]
			tt.change(w.Set)
			plan := w.does("")
			if plan.NewRevision != nil || plan.Renumber != nil || len(plan.History)+len(plan.AdoptRevisions)+len(plan.Pulls) > 0 ||
				plan.SelectsAll != tt.selectsAll {
				t.Error(plan)
			}
			if status, changed := plan.FinalStatus(nil, nil, planTime); changed {
				t.Errorf("%+v", status)
			}
		})
	}
}

// TestSpecsThatCannotBeUsed shows what becomes of a set that admission would have refused: nothing is done
// with its pods, and the status says why, with the counts.
func TestSpecsThatCannotBeUsed(t *testing.T) {
	for name, tt := range map[string]struct {
		change option
		says   string
	}{
		"partition":      {partition("many"), "spec.updateStrategy.rollingUpdate.partition"},
		"maxUnavailable": {maxUnavailable("some"), "spec.updateStrategy.rollingUpdate.maxUnavailable"},
		"maxSurge":       {maxSurge("some"), "spec.updateStrategy.rollingUpdate.maxSurge"},
		"burstReplicas":  {burst("few"), "spec.burstReplicas"},
		"the selector": {func(set *appsv1beta1.DaemonSet) {
			set.Spec.Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Near"}}}
		}, "spec.selector"},
		"another selector": {func(set *appsv1beta1.DaemonSet) { set.Spec.Selector.MatchLabels["app"] = "other" }, "spec.selector"},
		"a selector of labels that change": {func(set *appsv1beta1.DaemonSet) {
			set.Spec.Selector.MatchLabels[pub.ControllerRevisionHash] = "x"
		}, "spec.selector"},
		"the selector of nodes": {rollingWith(func(r *appsv1beta1.RollingUpdateDaemonSet) {
			r.Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Near"}}}
		}), "spec.updateStrategy.rollingUpdate.selector"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 3)
			w.at("a:1")
			w.on("n1 n2", "a:1")
			tt.change(w.Set)
			plan := w.does("")
			status, changed := plan.FinalStatus(nil, nil, planTime)
			if !changed || len(status.Conditions) != 1 || !strings.Contains(status.Conditions[0].Message, tt.says) {
				t.Errorf("%+v", status.Conditions)
			}
		})
	}
}

// TestTheStatusIsLookedAtAgain shows ADS-193: while a pod is ready and not available yet, the set is looked
// at when it will be.
func TestTheStatusIsLookedAtAgain(t *testing.T) {
	w := newWorld(t, 2, minReady(30))
	w.at("a:1")
	w.pod("n1", "a:1", readyFor(10*time.Second))
	w.pod("n2", "a:1", readyFor(time.Second))
	plan := w.does("")
	if s := plan.Status; s.NumberReady != 2 || s.NumberAvailable != 0 || plan.After < 20*time.Second || plan.After > 21*time.Second {
		t.Errorf("%+v, looked at again after %s", s, plan.After)
	}
	w.Now = planTime.Add(30 * time.Second)
	if plan = w.does(""); plan.Status.NumberAvailable != 2 || plan.After != 0 {
		t.Errorf("%+v, looked at again after %s", plan.Status, plan.After)
	}
}

// TestSettled shows when a rollout is complete: every eligible node has an available pod, and those to be
// updated one that is.
func TestSettled(t *testing.T) {
	w := between(t, 3, partition(1))
	w.on("n1 n2", "a:1")
	w.pod("n3", "a:2")
	if plan := w.plan(); plan.Settled() || plan.Arrived() != 4 {
		t.Errorf("settled %t, arrived %d", plan.Settled(), plan.Arrived())
	}
	w.Pods = w.Pods[:0]
	w.pod("n1", "a:1")
	w.on("n2 n3", "a:2")
	if plan := w.plan(); !plan.Settled() || plan.Arrived() != 5 {
		t.Errorf("settled %t, arrived %d", plan.Settled(), plan.Arrived())
	}
	notReadyPod(w.Pods[0])
	if w.plan().Settled() {
		t.Error("settled, and a pod is not available")
	}
}

// TestOnlyNumbers shows which changes of a status may wait for others.
func TestOnlyNumbers(t *testing.T) {
	one := int32(1)
	for name, tt := range map[string]struct {
		change func(*appsv1beta1.DaemonSetStatus)
		want   bool
	}{
		"numbers": {func(s *appsv1beta1.DaemonSetStatus) {
			s.CurrentNumberScheduled, s.NumberMisscheduled, s.DesiredNumberScheduled, s.NumberReady = 1, 2, 3, 4
			s.UpdatedNumberScheduled, s.NumberAvailable, s.NumberUnavailable = 5, 6, 7
		}, true},
		"the generation": {func(s *appsv1beta1.DaemonSetStatus) { s.ObservedGeneration = 1 }, false},
		"the revision":   {func(s *appsv1beta1.DaemonSetStatus) { s.UpdateRevision = "x" }, false},
		"collisions":     {func(s *appsv1beta1.DaemonSetStatus) { s.CollisionCount = &one }, false},
		"a condition": {func(s *appsv1beta1.DaemonSetStatus) {
			s.Conditions = []appsv1beta1.DaemonSetCondition{{Type: "FailedCreatePod"}}
		}, false},
	} {
		from, to := &appsv1beta1.DaemonSetStatus{}, &appsv1beta1.DaemonSetStatus{}
		tt.change(to)
		if got := OnlyNumbers(from, to); got != tt.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// TestOrphansAndStrays shows ADS-046 (part): pods of nobody that the selector matches are adopted, and count
// at once, those that it does not match any more are given up, and revisions of nobody become the set's.
func TestOrphansAndStrays(t *testing.T) {
	w := newWorld(t, 3)
	w.at("a:1")
	w.Revisions[0].OwnerReferences = nil
	orphan := w.pod("n1", "a:1")
	orphan.OwnerReferences = nil
	w.pod("n2", "a:1").Labels["app"] = "debug"
	ending := w.pod("n3", "a:1", terminating)
	ending.OwnerReferences = nil
	w.Orphans, w.Pods = append(w.Orphans, orphan, ending), w.Pods[1:2]
	if plan := w.expect("adopt n1", "release n2", "+n2 a:1"); len(plan.AdoptRevisions) != 1 {
		t.Error(plan)
	}
	w.Orphans = append(w.Orphans, w.pod("n1", "a:1", named("n1-2"), born(0)))
	w.Orphans[2].OwnerReferences = nil
	w.Pods = w.Pods[:1]
	w.expect("adopt n1", "adopt n1-2", "release n2", "+n2 a:1") // which is deleted when it is the set's
}
