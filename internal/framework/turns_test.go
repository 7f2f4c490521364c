package framework

import (
	"context"
	"testing"
)

// What is known of a namespace goes with the last turn of it, also if that was given up.
func TestTurnsForgetNamespaces(t *testing.T) {
	turns := NewTurns()
	over, came := turns.Wait(t.Context(), "shop")
	if !came {
		t.Fatal("the first one has no turn")
	}
	for range TurnsOfNamespace - 1 {
		other, _ := turns.Wait(t.Context(), "shop")
		defer other()
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, came := turns.Wait(ctx, "shop"); came {
		t.Error("a turn was given beyond the number of a namespace")
	}
	if got := turns.namespaces["shop"].users; got != TurnsOfNamespace {
		t.Errorf("users after one gave up: got %d, want %d", got, TurnsOfNamespace)
	}

	over()
	if over, came := turns.Wait(t.Context(), "other"); !came {
		t.Error("another namespace has no turn")
	} else if over(); turns.namespaces["other"] != nil {
		t.Error("a namespace is known after its last turn")
	}
}
