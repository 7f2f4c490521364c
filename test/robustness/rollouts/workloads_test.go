package rollouts

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// A workload that is changed in turn gets all changes, again and again.
func TestChangesInTurn(t *testing.T) {
	what := func(text string) func(*rand.Rand) string { return func(*rand.Rand) string { return text } }
	change := inTurn(what("a"), what("b"), what("c"))
	draw := rand.New(rand.NewPCG(1, 1)) //nolint:gosec // chance that can be repeated
	var got []string
	for range 4 {
		got = append(got, change[draw.IntN(len(change))](draw))
	}
	if !slices.Equal(got, []string{"a", "b", "c", "a"}) {
		t.Errorf("the changes are %v", got)
	}
}
