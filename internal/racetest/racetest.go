// Package racetest leaves to runs without the race detector what takes it minutes and one goroutine: tests in
// which nothing can race.
package racetest

import "testing"

// SkipAlone skips a test under the race detector. `make test-unit` runs it again without.
func SkipAlone(t *testing.T) {
	t.Helper()
	if enabled {
		t.Skip("it has one goroutine, and the race detector multiplies its time: it runs without")
	}
}
