package podapply

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/afloat-project/afloat/internal/engine/podplan"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// What was refused once comes last for ten minutes, what was refused again for longer, and only for the spec that it
// was refused for.
func TestRefusalsAreForgotten(t *testing.T) {
	for _, test := range []struct {
		refused    []time.Duration
		generation int64
		later      time.Duration
		known      bool
	}{
		{[]time.Duration{0}, 1, firstRefusal - time.Second, true},
		{[]time.Duration{0}, 1, firstRefusal, false},
		{[]time.Duration{0}, 2, 0, false},
		{[]time.Duration{0, time.Hour}, 1, time.Hour + 4*firstRefusal - time.Second, true},
		{[]time.Duration{0, time.Hour}, 1, time.Hour + 4*firstRefusal, false},
		{[]time.Duration{0, refusalLasts}, 1, refusalLasts + firstRefusal, false}, // the first one is forgotten
	} {
		m, snapshot := &Memory{}, &podplan.Snapshot{}
		for _, at := range test.refused {
			m.rememberRefusals(1, &Result{}, noon.Add(at))
			m.rememberRefusals(1, &Result{RefusedObjects: map[types.UID]podplan.Action{"a": podplan.Delete}}, noon.Add(at))
		}
		m.rememberRefusals(test.generation, &Result{}, noon.Add(test.later))
		m.HoldBack(snapshot, test.generation)
		if _, known := snapshot.Refused["a"]; known != test.known {
			t.Errorf("refused after %v, in generation %d, %s later: known %t, want %t",
				test.refused, test.generation, test.later, known, test.known)
		}
	}
}

// What is remembered of nodes for which pods could not be created is bounded, and forgotten after a while or when one
// was created.
func TestWhatIsRememberedOfFailedNodesIsBounded(t *testing.T) {
	const mostNodes = podplan.MostFailedNodes
	m, s := &Memory{}, &podplan.Snapshot{}
	known := func() int {
		m.HoldBack(s, 1)
		return len(s.FailedNodes)
	}
	for i := range 3 * mostNodes {
		m.learn(1, &Result{Nodes: map[string]bool{fmt.Sprint(i): false}}, noon.Add(time.Duration(i)*time.Second))
	}
	if n, last := known(), s.FailedNodes[fmt.Sprint(3*mostNodes-1)]; n != mostNodes || last.IsZero() {
		t.Errorf("number of failed nodes: got %d, want %d; the last failed at %v", n, mostNodes, last)
	}
	m.learn(1, &Result{Nodes: map[string]bool{fmt.Sprint(3*mostNodes - 1): true}}, noon)
	if got := known(); got != mostNodes-1 {
		t.Errorf("number of failed nodes after one got a pod: got %d, want %d", got, mostNodes-1)
	}
	m.learn(1, &Result{}, noon.Add(24*time.Hour))
	if got := known(); got > 0 {
		t.Errorf("failed nodes after a day: got %d, want none", got)
	}
}

// Passes after a refusal follow each other within milliseconds at first, because the back-off of the queue begins there. Refusals of one second are one
// refusal: the pod comes last for ten minutes, not for half a day.
func TestRefusalsOfOneSecondAreOne(t *testing.T) {
	m, snapshot := &Memory{}, &podplan.Snapshot{}
	last := noon
	for i := range 7 { // 5 ms, 10 ms, 20 ms ...
		last = noon.Add(5 * time.Millisecond << i)
		m.rememberRefusals(1, &Result{RefusedObjects: map[types.UID]podplan.Action{"a": podplan.Delete}}, last)
	}
	m.rememberRefusals(1, &Result{}, last.Add(firstRefusal))
	m.HoldBack(snapshot, 1)
	if _, known := snapshot.Refused["a"]; known {
		t.Errorf("refused %s long, it still comes last ten minutes later; for how long: %s", last.Sub(noon), m.refused.of["a"].lasts)
	}
}
