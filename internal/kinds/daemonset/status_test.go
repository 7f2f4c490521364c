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
				t.Errorf("(-want +got):\n%s", diff)
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
	if !changed {
		t.Errorf("changed: got false, want true\n%+v", done)
	}
	if done.ObservedGeneration != 5 {
		t.Errorf("observed generation: got %d, want 5\n%+v", done.ObservedGeneration, done)
	}
	if len(done.Conditions) != 0 {
		t.Errorf("number of conditions: got %d, want 0\n%+v", len(done.Conditions), done)
	}
	if done.NumberAvailable != 1 {
		t.Errorf("available pods: got %d, want 1\n%+v", done.NumberAvailable, done)
	}
	if want := w.hash("a:1"); done.UpdateRevision != want {
		t.Errorf("update revision: got %q, want %q\n%+v", done.UpdateRevision, want, done)
	}
	failed, changed := plan.FinalStatus(errors.New("no quota"), nil, planTime)
	want := []appsv1beta1.DaemonSetCondition{{Type: "FailedCreatePod", Status: corev1.ConditionTrue, Message: "no quota",
		LastTransitionTime: metav1.NewTime(planTime)}}
	if diff := cmp.Diff(want, failed.Conditions); diff != "" {
		t.Errorf("conditions (-want +got):\n%s\n%+v", diff, failed)
	}
	if !changed {
		t.Errorf("changed: got false, want true\n%+v", failed)
	}
	if failed.ObservedGeneration != 4 {
		t.Errorf("observed generation: got %d, want 4\n%+v", failed.ObservedGeneration, failed)
	}
	if failed.NumberAvailable != 1 {
		t.Errorf("available pods: got %d, want 1\n%+v", failed.NumberAvailable, failed)
	}
	if want := w.hash("a:1"); failed.UpdateRevision != want {
		t.Errorf("update revision: got %q, want %q\n%+v", failed.UpdateRevision, want, failed)
	}
	w.Set.Status = *failed
	later, changed := w.plan().FinalStatus(errors.New("no quota"), errors.New("refused"), planTime.Add(time.Hour))
	if !changed {
		t.Errorf("changed: got false, want true\n%+v", later.Conditions)
	} else if len(later.Conditions) != 2 {
		t.Errorf("number of conditions: got %d, want 2\n%+v", len(later.Conditions), later.Conditions)
	} else if want := metav1.NewTime(planTime); later.Conditions[0].LastTransitionTime != want {
		t.Errorf("time of the last change of the first condition: got %v, want %v\n%+v",
			later.Conditions[0].LastTransitionTime, want,
			later.Conditions)
	} else if later.Conditions[1].Type != "FailedUpdatePod" {
		t.Errorf("type of the second condition: got %q, want %q\n%+v", later.Conditions[1].Type, "FailedUpdatePod",
			later.Conditions)
	}
	w.Set.Status = *later
	if _, changed = w.plan().FinalStatus(errors.New("no quota"), errors.New("refused"), planTime.Add(2*time.Hour)); changed {
		t.Error("nothing changed, and it is written")
	}
	if done, changed = w.plan().FinalStatus(nil, nil, planTime); !changed {
		t.Errorf("changed: got false, want true\n%+v", done)
	} else if len(done.Conditions) != 0 {
		t.Errorf("number of conditions: got %d, want 0\n%+v", len(done.Conditions), done)
	} else if done.ObservedGeneration != 5 {
		t.Errorf("observed generation: got %d, want 5\n%+v", done.ObservedGeneration, done)
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
			if plan.NewRevision != nil {
				t.Errorf("new revision: got %v, want nil\n%v", plan.NewRevision, plan)
			} else if plan.Renumber != nil {
				t.Errorf("renumbered revision: got %v, want nil\n%v", plan.Renumber, plan)
			} else if len(plan.History)+len(plan.AdoptRevisions)+len(plan.Pulls) > 0 {
				t.Errorf("number of history and adopted revisions and pulls: got %d, want 0\n%v",
					len(plan.History)+len(plan.AdoptRevisions)+len(plan.Pulls), plan)
			} else if plan.SelectsAll != tt.selectsAll {
				t.Errorf("selects all: got %t, want %t\n%v", plan.SelectsAll, tt.selectsAll, plan)
			}
			if status, changed := plan.FinalStatus(nil, nil, planTime); changed {
				t.Errorf("changed: got true, want false\n%+v", status)
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
			if !changed {
				t.Errorf("changed: got false, want true\n%+v", status.Conditions)
			} else if len(status.Conditions) != 1 {
				t.Errorf("number of conditions: got %d, want 1\n%+v", len(status.Conditions), status.Conditions)
			} else if !strings.Contains(status.Conditions[0].Message, tt.says) {
				t.Errorf("message of the first condition: got %q, want it to contain %q\n%+v",
					status.Conditions[0].Message, tt.says,
					status.Conditions)
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
	s := plan.Status
	if s.NumberReady != 2 {
		t.Errorf("ready pods: got %d, want 2; %+v, looked at again after %s", s.NumberReady, s, plan.After)
	}
	if s.NumberAvailable != 0 {
		t.Errorf("available pods: got %d, want 0; %+v, looked at again after %s", s.NumberAvailable, s, plan.After)
	}
	if plan.After < 20*time.Second {
		t.Errorf("time to the next pass: got %v, want at least %v; %+v, looked at again after %s", plan.After,
			20*time.Second, s, plan.After)
	}
	if plan.After > 21*time.Second {
		t.Errorf("time to the next pass: got %v, want at most %v; %+v, looked at again after %s", plan.After,
			21*time.Second, s, plan.After)
	}
	w.Now = planTime.Add(30 * time.Second)
	if plan = w.does(""); plan.Status.NumberAvailable != 2 {
		t.Errorf("available pods: got %d, want 2; %+v, looked at again after %s", plan.Status.NumberAvailable,
			plan.Status,
			plan.After)
	} else if plan.After != 0 {
		t.Errorf("time to the next pass: got %v, want 0; %+v, looked at again after %s", plan.After, plan.Status,
			plan.After)
	}
}

// TestSettled shows when a rollout is complete: every eligible node has an available pod, and those to be
// updated one that is.
func TestSettled(t *testing.T) {
	w := between(t, 3, partition(1))
	w.on("n1 n2", "a:1")
	w.pod("n3", "a:2")
	plan := w.plan()
	if plan.Settled() {
		t.Error("the plan is settled: got true, want false")
	}
	if got := plan.Arrived(); got != 4 {
		t.Errorf("arrived: got %d, want 4", got)
	}
	w.Pods = w.Pods[:0]
	w.pod("n1", "a:1")
	w.on("n2 n3", "a:2")
	if plan := w.plan(); !plan.Settled() {
		t.Errorf("the plan is settled: got false, want true; settled %t, arrived %d", plan.Settled(),
			plan.Arrived())
	} else if got := plan.Arrived(); got != 5 {
		t.Errorf("arrived: got %d, want 5; settled %t, arrived %d", got, plan.Settled(), plan.Arrived())
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
			t.Errorf("%s: numbers alone change: got %t, want %t", name, got, tt.want)
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
		t.Errorf("number of adopted revisions: got %d, want 1\n%v", len(plan.AdoptRevisions), plan)
	}
	w.Orphans = append(w.Orphans, w.pod("n1", "a:1", named("n1-2"), born(0)))
	w.Orphans[2].OwnerReferences = nil
	w.Pods = w.Pods[:1]
	w.expect("adopt n1", "adopt n1-2", "release n2", "+n2 a:1") // which is deleted when it is the set's
}
