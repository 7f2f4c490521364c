package timing

import (
	"math"
	"testing"
	"time"
)

// CRR-061, IMG-093: what is far away stays in the future, and what is negative in the past.
func TestDuration(t *testing.T) {
	for n, want := range map[int64]time.Duration{0: 0, 300: 5 * time.Minute, -1: -time.Second} {
		if got := Seconds(n); got != want {
			t.Errorf("%d seconds: got %s, want %s", n, got, want)
		}
	}
	for _, n := range []int64{most, 9999999999, 99999999999, math.MaxInt64} {
		if got := Seconds(n); got != most*time.Second {
			t.Errorf("%d seconds: got %s, want %s", n, got, most*time.Second)
		}
		if got := Seconds(-n); got != -most*time.Second {
			t.Errorf("%d seconds: got %s, want %s", -n, got, -most*time.Second)
		}
	}
}
