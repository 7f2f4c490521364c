// Package racetest leaves to runs without the race detector what takes it minutes and says nothing: tests with one
// goroutine, in which nothing can race, and tests that weigh memory, which it multiplies.
package racetest

import "testing"

// SkipAlone skips a test under the race detector. `make test-unit` runs it again without.
func SkipAlone(t *testing.T) {
	t.Helper()
	if enabled {
		t.Skip("the race detector says nothing here, and multiplies time and memory: it runs without")
	}
}
