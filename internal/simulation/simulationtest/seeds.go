// Package simulationtest runs simulations as tests: from seeds that are printed, and as narratives that are
// stored.
package simulationtest

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"testing"
)

// Seeds plays runs of a simulation, each as a subtest with its own seed, and as many concurrently as there
// are processors. It stops after five failures. By default the seeds are 1 to runs. The environment variable
// SIM sets their number, FIRST sets the first one, and SEED selects a single one. TRACE makes the simulation
// itself print every step.
//
// It reports whether it played many runs, 50 or more. Only then must the rare things that a simulation is
// about have happened in one of them.
func Seeds(t *testing.T, runs int, play func(t *testing.T, seed uint64)) (many bool) {
	t.Helper()
	return Some(t, runs, 1, play)
}

// Some is like Seeds for one of several simulations of a kind, or for one whose runs take long. It plays SIM
// divided by share runs, but at least five.
func Some(t *testing.T, runs int, share uint64, play func(t *testing.T, seed uint64)) (many bool) {
	t.Helper()
	first, count := number(t, "FIRST", 1), number(t, "SIM", uint64(runs)*share)
	count = max(5, count/share)
	if seed := number(t, "SEED", 0); seed > 0 {
		first, count = seed, 1
	}

	seeds, failed := make(chan uint64), make(chan struct{}, 5)
	var players sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		players.Go(func() {
			for seed := range seeds {
				if t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) { play(t, seed) }) {
					continue
				}
				select {
				case failed <- struct{}{}:
				default:
				}
			}
		})
	}

	played := uint64(0)
	for ; played < count && len(failed) < cap(failed); played++ {
		seeds <- first + played
	}

	close(seeds)
	players.Wait()
	t.Logf("%d runs", played)
	return played >= 50
}

// number returns a number from the environment.
func number(t *testing.T, name string, otherwise uint64) uint64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	value, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return value
}
