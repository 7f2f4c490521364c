package timing

import (
	"errors"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// What fails again and again waits longer each time, up to a minute. Another attempt is made at once, and
// objects that succeed, or are gone, are forgotten.
func TestRetries(t *testing.T) {
	var r Retries
	now, refused := noon, errors.New("no")
	if until, _ := r.Held("a", "x", now); !until.IsZero() || r.Has("a", "x") {
		t.Error("held back before it was tried")
	}
	for _, wait := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60} {
		r.Failed("a", "x", refused, now)
		until, why := r.Held("a", "x", now)
		if until.Sub(now) != wait*time.Second || why != "no" {
			t.Errorf("%s: %q, want %ds", until.Sub(now), why, wait)
		}
		if other, _ := r.Held("a", "y", now); !other.IsZero() {
			t.Error("something else has to wait")
		}
		now = until
		if until, _ := r.Held("a", "x", now); !until.IsZero() || !r.Has("a", "x") {
			t.Error("held back for too long, or forgotten")
		}
	}
	r.Failed("a", "y", refused, now)
	if until, _ := r.Held("a", "y", now); until.Sub(now) != time.Second {
		t.Error("something else waits for longer than a second", until.Sub(now))
	}
	if all := r.All("y", now); len(all) != 1 || all["a"].Sub(now) != time.Second || len(r.All("x", now)) != 0 {
		t.Errorf("%v", all)
	}
	r.Failed("b", "x", refused, now)
	r.Failed("c", "x", refused, now)
	r.Done("b")
	r.Keep(func(uid types.UID) bool { return uid == "c" })
	if len(r.failed) != 1 || !r.Has("c", "x") {
		t.Errorf("%v", r.failed)
	}
}
