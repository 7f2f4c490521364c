package timing_test

import (
	"testing"
	"time"

	"github.com/afloat-project/afloat/internal/engine/timing"
)

// A plan is made again at the earliest time that is still to come; times that have passed, and such as were
// not set, do not count.
func TestTheNextTimeIsOneToCome(t *testing.T) {
	noon := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for name, tt := range map[string]struct {
		at   []time.Time
		want time.Duration
	}{
		"none":               {},
		"not set":            {at: []time.Time{{}}},
		"one to come":        {at: []time.Time{noon.Add(time.Minute)}, want: time.Minute},
		"the earliest":       {at: []time.Time{noon.Add(time.Minute), noon.Add(time.Second), noon.Add(time.Hour)}, want: time.Second},
		"passed":             {at: []time.Time{noon.Add(-time.Second)}},
		"now":                {at: []time.Time{noon}},
		"passed and to come": {at: []time.Time{noon.Add(-time.Second), noon.Add(time.Minute)}, want: time.Minute},
		"just before":        {at: []time.Time{noon.Add(time.Nanosecond)}, want: time.Nanosecond},
	} {
		t.Run(name, func(t *testing.T) {
			var wait time.Duration
			for _, at := range tt.at {
				timing.MinWaitUntil(&wait, noon, at)
			}
			if wait != tt.want {
				t.Errorf("again after %s, want %s", wait, tt.want)
			}
		})
	}
}
