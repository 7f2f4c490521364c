package controller

import (
	"testing"
	"time"

	"github.com/afloat-project/afloat/internal/simulation/simulationtest"
)

// TestSoak plays days of one life with one manager, some of whose requests fail.
func TestSoak(t *testing.T) {
	r := newUpgrade(1)
	r.Apart = true
	faults := r.Faults
	faults.Die = 0 // a manager that starts again forgets what it should not have kept
	simulationtest.Soak(t, r.Now, func() string {
		r.Faults = faults
		r.Writes, r.Recorded = nil, nil // these are the test's
		clear(r.disturbed)
		for range 500 {
			r.play(1)
			r.Pass(time.Duration(r.Rand.IntN(2000)) * time.Millisecond)
			if pods := r.AllPods(); len(pods) > 10 {
				r.EndGracefully(podKey(pods[r.Rand.IntN(len(pods))].Name))
			}
		}
		if r.failure == "" {
			r.failure = r.end()
		}
		return r.failure
	})
}
