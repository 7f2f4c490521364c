package cloneset

import (
	"testing"

	"github.com/afloat-project/afloat/internal/engine/podplan"
)

// The next plan of a set waits by its pods, and not at all when there is more to be done.
func TestPausing(t *testing.T) {
	plan := &Plan{Plan: podplan.Plan{Verdicts: make([]*podplan.Verdict, 1000)}}
	tests := map[string]struct {
		outcome Outcome
		want    int
	}{
		"a pass":                 {outcome: Outcome{Plan: plan}, want: 1000},
		"there is more to write": {outcome: Outcome{Plan: plan, Unfinished: true}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := pausing(tt.outcome); got != tt.want {
				t.Errorf("waits by %d pods, want %d", got, tt.want)
			}
		})
	}
}
