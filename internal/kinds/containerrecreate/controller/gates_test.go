package controller

import (
	"testing"

	"github.com/afloat-project/afloat/internal/platform/features"
)

// JST-020: the gate is on by default, and must be; it is off without KruiseDaemon, whatever is asked for.
func TestSidecarTerminatorGate(t *testing.T) {
	for list, want := range map[string]bool{"": true, "SidecarTerminator=true": true, "SidecarTerminator=false": false, "KruiseDaemon=false": false,
		"KruiseDaemon=false,SidecarTerminator=true": false} {
		gates, err := features.Parse(list)
		if err != nil {
			t.Fatal(err)
		}
		if got := terminatesSidecars(gates); got != want {
			t.Errorf("%q: %v", list, got)
		}
	}
}
