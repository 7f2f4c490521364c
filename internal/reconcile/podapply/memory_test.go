package podapply

import (
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
