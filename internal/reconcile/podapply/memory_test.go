package podapply

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/afloat-project/afloat/internal/engine/podplan"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// What was refused comes last for ten minutes, and only for the spec that it was refused for.
func TestRefusalsAreForgotten(t *testing.T) {
	m := &Memory{}
	m.rememberRefusals(1, &Result{RefusedObjects: []types.UID{"a"}}, noon)
	for _, test := range []struct {
		generation int64
		later      time.Duration
		known      bool
	}{{1, 10*time.Minute - time.Second, true}, {2, 0, false}, {1, 10 * time.Minute, false}} {
		kept, snapshot := *m, &podplan.Snapshot{}
		kept.rememberRefusals(test.generation, &Result{}, noon.Add(test.later))
		kept.HoldBack(snapshot, test.generation)
		if _, known := snapshot.Refused["a"]; known != test.known {
			t.Errorf("refusal for generation %d, %s later: known %t, want %t",
				test.generation, test.later, known, test.known)
		}
	}
}

// What is remembered of nodes for which pods could not be created is bounded, and forgotten after a while.
func TestWhatIsRememberedOfFailedNodesIsBounded(t *testing.T) {
	m, s, now := &Memory{}, &podplan.Snapshot{}, time.Now()
	for i := range 3 * mostNodes {
		m.learn(1, &Result{FailedNodes: []string{fmt.Sprint(i)}}, now)
	}
	if m.HoldBack(s, 1); len(s.FailedNodes) == 0 || len(s.FailedNodes) > mostNodes {
		t.Errorf("number of failed nodes: got %d, want some, at most %d", len(s.FailedNodes), mostNodes)
	}
	m.learn(1, &Result{}, now.Add(time.Hour))
	if m.HoldBack(s, 1); len(s.FailedNodes) > 0 {
		t.Errorf("failed nodes after an hour: got %d, want none", len(s.FailedNodes))
	}
}
