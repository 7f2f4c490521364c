package cloneset

import (
	"errors"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// TestPace: the next plan of a large set waits for more events, that of a small one hardly, and none when there is more to be done.
func TestPace(t *testing.T) {
	noon := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	of := func(pods int) *Plan { return &Plan{Verdicts: make([]*Verdict, pods)} }
	tests := map[string]struct {
		outcome Outcome
		err     error
		took    time.Duration
		wait    time.Duration
	}{
		"a small set":              {outcome: Outcome{Plan: of(10)}, wait: 2 * time.Millisecond},
		"a large set":              {outcome: Outcome{Plan: of(1000)}, wait: 200 * time.Millisecond},
		"a huge set":               {outcome: Outcome{Plan: of(20_000)}, wait: time.Second},
		"the pass itself counts":   {outcome: Outcome{Plan: of(1000)}, took: 150 * time.Millisecond, wait: 50 * time.Millisecond},
		"a pass that took long":    {outcome: Outcome{Plan: of(1000)}, took: time.Minute},
		"there is more to write":   {outcome: Outcome{Plan: of(1000), Unfinished: true}},
		"the cache lags":           {outcome: Outcome{Pending: "a write"}},
		"the queue answers errors": {outcome: Outcome{Plan: of(1000)}, err: errors.New("refused")},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			key := types.NamespacedName{Namespace: "default", Name: "web"}
			r := &reconciler{paces: map[types.NamespacedName]time.Time{}}
			if wait := r.early(key, noon); wait > 0 {
				t.Errorf("the first plan waits %s", wait)
			}
			r.pace(key, noon, Outcome{Plan: of(20_000)}, nil)
			r.pace(key, noon, tt.outcome, tt.err)
			if wait := max(r.early(key, noon.Add(tt.took)), 0); wait != tt.wait {
				t.Errorf("waits %s, want %s", wait, tt.wait)
			}
		})
	}
}
