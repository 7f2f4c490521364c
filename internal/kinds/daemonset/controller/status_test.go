package controller

import (
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/simulation"
)

// TestConflictsOfTheStatus shows ADS-192, with TestFinalStatus of the planner: a status that changes is
// written, also when somebody changes the set just then, and one that does not is not written.
func TestConflictsOfTheStatus(t *testing.T) {
	s := started(t, makeSet(), everything, "n1", "n2")
	writes, meddled := 0, false
	s.Answer = func(r *simulation.Request) error {
		if r.Key == setKey && r.Subresource == "status" {
			if writes++; !meddled {
				meddled = true
				s.Change(setKey, func(o client.Object) { o.SetLabels(map[string]string{"changed": "meanwhile"}) })
			}
		}
		return nil
	}
	for range 10 {
		s.Queue.Add()
		s.RunFor(time.Minute)
	}
	if writes != 0 {
		t.Errorf("%d writes of a status that is right", writes)
	}
	s.Edit(func(set *appsv1beta1.DaemonSet) { set.Spec.MinReadySeconds = 1 })
	s.addNode("n3", nil)
	s.RunFor(time.Minute)
	if is := s.set().Status; !meddled {
		t.Errorf("meddled: got false, want true\n%+v", is)
	} else if is.DesiredNumberScheduled != 3 {
		t.Errorf("desired pods: got %d, want 3\n%+v", is.DesiredNumberScheduled, is)
	} else if is.NumberAvailable != 3 {
		t.Errorf("available pods: got %d, want 3\n%+v", is.NumberAvailable, is)
	} else if want := s.set().Generation; is.ObservedGeneration != want {
		t.Errorf("observed generation: got %d, want %d\n%+v", is.ObservedGeneration, want, is)
	} else if got := s.set().Labels["changed"]; got == "" {
		t.Errorf("label changed: got nothing, want some text\n%+v", is)
	}
}
