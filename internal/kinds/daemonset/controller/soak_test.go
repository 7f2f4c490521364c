package controller

import (
	"testing"

	"github.com/afloat-project/afloat/internal/simulation/simulationtest"
)

// TestSoak plays days of one life with one manager, some of whose requests fail.
func TestSoak(t *testing.T) {
	r := newRun(1)
	r.Apart, r.calm = true, false
	faults := r.Faults
	faults.Die = 0 // a manager that starts again forgets what it should not have kept
	simulationtest.Soak(t, r.Now, func() string {
		r.Faults, r.Others = faults, nil
		r.Writes, r.Recorded = nil, nil // these are the test's
		r.play(1000)
		if r.failure == "" {
			r.finish()
		}
		return r.failure
	})
}
