package cloneset

import (
	"errors"
	"testing"
)

// The next plan of a set waits by its pods, and not at all when there is more to be done.
func TestPausing(t *testing.T) {
	plan := &Plan{Verdicts: make([]*Verdict, 1000)}
	tests := map[string]struct {
		outcome Outcome
		err     error
		want    int
	}{
		"a pass":                   {outcome: Outcome{Plan: plan}, want: 1000},
		"there is more to write":   {outcome: Outcome{Plan: plan, Unfinished: true}},
		"the queue answers errors": {outcome: Outcome{Plan: plan}, err: errors.New("refused")},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := pausing(tt.outcome, tt.err); got != tt.want {
				t.Errorf("waits by %d pods, want %d", got, tt.want)
			}
		})
	}
}
