package controller

import (
	"testing"

	"github.com/afloat-project/afloat/internal/simulation/simulationtest"
)

// TestSoak plays days of one life with one manager, some of whose requests fail.
func TestSoak(t *testing.T) {
	r := newSpreads(1)
	r.Apart = true
	faults := r.Faults
	faults.Die = 0 // a manager that starts again forgets what it should not have kept
	simulationtest.Soak(t, r.Now, func() string {
		r.Faults = faults
		r.Writes, r.Recorded = nil, nil // these are the test's
		if r.play(1000); r.failure == "" {
			r.failure = r.end()
		}
		return r.failure
	})
}
