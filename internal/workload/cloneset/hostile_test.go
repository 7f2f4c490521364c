package cloneset

import (
	"testing"
	"time"

	"github.com/afloat-project/afloat/internal/simulation"
)

// TestRefusedCreationIsNoLoop: pods that the server refuses have other names in each attempt. Neither the condition that tells of it nor
// claims that find no pod call for the next attempt at once, and what else is to be done goes on (CS-072, CS-225).
func TestRefusedCreationIsNoLoop(t *testing.T) {
	set := makeSet(3, claims("1Gi"), maxUnavailable(2))
	set.Spec.ScaleStrategy.EnablePVCReuse = false
	s := simulate(1, set, Features{})
	if err := s.settle(100); err != nil {
		t.Fatal(err)
	}
	s.Refused = func(w simulation.Write) bool { return w.Key.Kind == "Pod" && w.Verb == "create" }
	s.change(both(replicas(4), image("nginx:2")))
	writes, start := len(s.Writes), s.Now()
	for s.Now().Sub(start) < 10*time.Minute {
		if !s.round() {
			s.Pass(s.due.Sub(s.Now()))
		}
		if len(s.Writes)-writes > 200 {
			t.Fatalf("%d writes in %s: %v", len(s.Writes)-writes, s.Now().Sub(start), s.Writes[writes:])
		}
	}
	if status := s.set().Status; status.UpdatedReadyReplicas != 3 {
		t.Errorf("%d pods updated", status.UpdatedReadyReplicas)
	}
	s.Refused = nil
	if err := s.settle(100); err != nil {
		t.Fatal(err)
	}
	if status := s.set().Status; status.UpdatedAvailableReplicas != 4 || len(status.Conditions) > 0 {
		t.Errorf("%+v", status)
	}
}
