// Package simulationtest runs simulations as tests: from seeds that are printed, and as narratives that are
// kept.
package simulationtest

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"testing"
)

// Seeds plays runs of a simulation, each from a seed of its own and as a subtest, as many at once as there
// are processors. It ends after five failures. Three variables of the environment choose others than the
// usual runs, which are 1 to runs: SIM is how many, FIRST the first, and SEED plays one alone. TRACE is for
// the simulation itself, which then prints every step.
func Seeds(t *testing.T, runs int, play func(t *testing.T, seed uint64)) {
	t.Helper()
	Some(t, runs, 1, play)
}

// Some is Seeds for one of several simulations of a kind, or for one whose runs take long: it plays SIM
// divided by share, and five at least.
func Some(t *testing.T, runs int, share uint64, play func(t *testing.T, seed uint64)) {
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
}

// number reads a number from the environment.
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
