package controller

import (
	"testing"

	"github.com/afloat-project/afloat/internal/simulation/simulationtest"
)

// TestSoak plays days of the budgets of one namespace, with managers some of whose requests fail.
func TestSoak(t *testing.T) {
	r := newRun(1)
	r.Apart, r.immortal = true, true
	simulationtest.Soak(t, r.Now, func() string {
		r.undisturbed = false
		r.Writes, r.View.Feed, r.told = nil, nil, nil // these are the test's: every manager has a view of its own
		r.oracle = newOracle(r)
		r.oracle.observe()
		if r.play(300); r.failure == "" {
			r.finish()
		}
		return r.failure
	})
}
