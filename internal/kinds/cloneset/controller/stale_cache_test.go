package controller

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/cloneset"
	"github.com/afloat-project/afloat/internal/kinds/cloneset/clonesettest"
	"github.com/afloat-project/afloat/internal/simulation"
)

// TestAPodThatGoesBeforeItIsShown: a set is scaled out and in again before the cache of pods shows the new
// pod, and shows it alive then. The pod is deleted once, and never counted as one that stays (CS-073 (part)).
func TestAPodThatGoesBeforeItIsShown(t *testing.T) {
	s := simulate(1, clonesettest.Set(3), cloneset.Features{})
	if err := s.Settle(100); err != nil {
		t.Fatal(err)
	}
	requests := 0
	s.Answer = func(r *simulation.Request) error {
		if r.Verb == "delete" && r.Key.Kind == "Pod" {
			requests++
		}
		return nil
	}
	old := map[string]bool{}
	for _, pod := range s.AllPods() {
		old[pod.Name] = true
	}
	scale := func(replicas int32) {
		s.Edit(func(set *appsv1beta1.CloneSet) { set.Spec.Replicas = &replicas })
		s.Show(setKey, s.set())
		if _, _, err := s.Once(); err != nil {
			t.Fatal(err)
		}
	}
	scale(4)
	var alive *corev1.Pod
	for _, pod := range s.AllPods() {
		if !old[pod.Name] {
			alive = pod.DeepCopy()
		}
	}
	scale(3)
	for range 3 {
		if plan, _, err := s.Once(); err != nil {
			t.Errorf("unexpected error: %v; %d pods, %v", err, plan.Status.Replicas, err)
		} else if plan.Status.Replicas != 3 {
			t.Errorf("replicas of the plan: got %d, want 3; %d pods, %v", plan.Status.Replicas, plan.Status.Replicas, err)
		}
		s.Show(podKey(alive.Name), alive)
	}
	if requests != 1 {
		t.Errorf("%d deletions", requests)
	}
	if err := s.Settle(100); err != nil {
		t.Errorf("coming to rest: unexpected error: %v; %d pods, %v", err, len(s.active()), err)
	} else if got := len(s.active()); got != 3 {
		t.Errorf("number active: got %d, want 3; %d pods, %v", got, len(s.active()), err)
	}
}
