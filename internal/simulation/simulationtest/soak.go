package simulationtest

import (
	"os"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"
)

// SoakHours is the environment variable that says how many hours Soak simulates. Without it Soak is left out.
const SoakHours = "SOAK"

// Soak plays one life for many simulated hours with one manager, and checks that its memory and the number of
// goroutines stay flat. now returns the simulated time. round plays for a while, lets everything come to rest,
// checks that nothing is written then, and returns what is wrong.
func Soak(t *testing.T, now func() time.Time, round func() (failure string)) {
	t.Helper()
	hours, err := strconv.ParseFloat(os.Getenv(SoakHours), 64)
	if err != nil {
		t.Skip("this simulates days: make soak")
	}
	const samples = 24
	var heap, routines []float64
	begin, began, rounds := now(), time.Now(), 0
	for end := begin.Add(time.Duration(hours * float64(time.Hour))); now().Before(end); rounds++ {
		if failure := round(); failure != "" {
			t.Fatalf("after %s and %d rounds: %s", now().Sub(begin).Round(time.Second), rounds, failure)
		}
		if now().Sub(begin) < end.Sub(begin)*time.Duration(len(heap)+1)/samples {
			continue
		}
		runtime.GC()
		runtime.GC() // what has finalizers is gone only now
		var memory runtime.MemStats
		runtime.ReadMemStats(&memory)
		heap, routines = append(heap, float64(memory.HeapAlloc)/(1<<20)), append(routines, float64(runtime.NumGoroutine()))
	}
	early, late := len(heap)/4, len(heap)*3/4
	t.Logf("%s simulated in %s, %d rounds: heap %.1f MiB and %.0f goroutines in the second quarter, %.1f MiB and %.0f in the last (medians)",
		now().Sub(begin).Round(time.Minute), time.Since(began).Round(time.Second), rounds, median(heap[early:2*early]),
		median(routines[early:2*early]), median(heap[late:]), median(routines[late:]))
	if median(heap[late:]) > median(heap[early:2*early])*1.2+1 {
		t.Errorf("the memory grows: %.1f MiB", heap)
	}
	if median(routines[late:]) > median(routines[early:2*early]) {
		t.Errorf("goroutines are left: %.0f", routines)
	}
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}
