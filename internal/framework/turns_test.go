package framework

import "testing"

// What is known of a namespace goes with the last turn of it.
func TestTurnsForgetNamespaces(t *testing.T) {
	turns := NewTurns()
	over, came := turns.Wait(t.Context(), "shop")
	if !came {
		t.Fatal("the first one has no turn")
	}
	if over(); len(turns.namespaces) > 0 {
		t.Errorf("namespaces after the last turn: got %v, want none", turns.namespaces)
	}
}
