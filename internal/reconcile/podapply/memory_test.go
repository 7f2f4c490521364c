package podapply

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/afloat-project/afloat/internal/engine/podplan"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// What was refused comes last for a while, and only for the spec that it was refused for.
func TestRefusalsAreForgotten(t *testing.T) {
	m := &Memory{}
	m.rememberRefusals(1, &Result{RefusedObjects: []types.UID{"a"}}, noon)
	for _, test := range []struct {
		generation int64
		later      time.Duration
		known      bool
	}{{1, refusalLasts - time.Second, true}, {2, 0, false}, {1, refusalLasts, false}} {
		kept, snapshot := *m, &podplan.Snapshot{}
		kept.rememberRefusals(test.generation, &Result{}, noon.Add(test.later))
		kept.HoldBack(snapshot, test.generation)
		if _, known := snapshot.Refused["a"]; known != test.known {
			t.Errorf("refusal for generation %d, %s later: known %t, want %t",
				test.generation, test.later, known, test.known)
		}
	}
}

// What is remembered of nodes for which pods could not be created is bounded, and forgotten after a while or when one
// was created.
func TestWhatIsRememberedOfFailedNodesIsBounded(t *testing.T) {
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
