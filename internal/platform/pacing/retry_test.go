package pacing

import (
	"testing"
	"time"
)

// ND-059, CRR-098: pauses begin at 0.5 s and double up to a longestRetry one between 50 s and 55 s, which differs
// between limiters; each key has its own.
func TestLimiter(t *testing.T) {
	longestRetry := map[time.Duration]bool{}
	for range 100 {
		l := RetryLimiter[string]()
		for n, want := 0, 500*time.Millisecond; want < 50*time.Second; n, want = n+1, 2*want {
			if got := l.When("a"); got != want {
				t.Fatalf("pause %d is %s, not %s", n, got, want)
			}
		}
		last := l.When("a")
		if last < 50*time.Second || last > 55*time.Second {
			t.Fatalf("the longest pause: got %s, want 50s to 55s", last)
		}
		if next := l.When("a"); next != last {
			t.Fatalf("the pause after the longest: got %s, want %s", next, last)
		}
		if other := l.When("b"); other != 500*time.Millisecond {
			t.Fatalf("pause of another key: got %s, want 500ms", other)
		}
		if l.Forget("a"); l.When("a") != 500*time.Millisecond {
			t.Fatal("a success does not end the back-off")
		}
		longestRetry[last] = true
	}
	if len(longestRetry) < 50 {
		t.Errorf("different pauses of 100 limiters: got %d, want 50 at least", len(longestRetry))
	}
}
