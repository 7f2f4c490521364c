package statefulset

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
			plan := Make(w.Snapshot)
			if len(plan.Create) > 0 {
				t.Errorf("created: got %v, want none\n%v", plan.Create, plan)
			}
			if plan.UpdateError == "" {
				t.Errorf("update error: got nothing, want some text\n%v", plan)
			}
		})
	}
}
