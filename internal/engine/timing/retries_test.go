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
	if until, _ := r.Held("a", "x", now); !until.IsZero() {
		t.Errorf("held back before it was tried: until %s", until)
	}
	if r.Has("a", "x") {
		t.Error("remembered before it was tried")
	}
	for _, wait := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60} {
		r.Failed("a", "x", refused, now)
		until, why := r.Held("a", "x", now)
		if until.Sub(now) != wait*time.Second {
			t.Errorf("after a failure: held back for %s, want %ds", until.Sub(now), wait)
		}
		if why != "no" {
			t.Errorf("after a failure: held back for the reason %q, want \"no\"", why)
		}
		if other, _ := r.Held("a", "y", now); !other.IsZero() {
			t.Error("something else has to wait")
		}
		now = until
		if until, _ := r.Held("a", "x", now); !until.IsZero() {
			t.Errorf("held back for too long: until %s", until)
		}
		if !r.Has("a", "x") {
			t.Error("forgotten when it may be tried again")
		}
	}
	r.Failed("a", "y", refused, now)
	if until, _ := r.Held("a", "y", now); until.Sub(now) != time.Second {
		t.Errorf("something else is held back for %s, want %s", until.Sub(now), time.Second)
	}
	if all := r.All("y", now); len(all) != 1 {
		t.Errorf("who is held back for y: got %v, want a alone", all)
	} else if wait := all["a"].Sub(now); wait != time.Second {
		t.Errorf("a is held back for %s, want %s", wait, time.Second)
	}
	if all := r.All("x", now); len(all) != 0 {
		t.Errorf("who is held back for x: got %v, want none", all)
	}
	r.Failed("b", "x", refused, now)
	r.Failed("c", "x", refused, now)
	r.Done("b")
	r.Keep(func(uid types.UID) bool { return uid == "c" })
	if len(r.failed) != 1 {
		t.Errorf("failures that are remembered: got %v, want those of c alone", r.failed)
	}
	if !r.Has("c", "x") {
		t.Errorf("failures that are remembered: got %v, want x of c among them", r.failed)
	}
}
