package main

import (
	"strings"
	"testing"

	"github.com/afloat-project/afloat/internal/plugin/operations/takeover"
)

// Every flag that a takeover carries over from another node daemon is one that this one has: an unknown one
// would keep it from starting.
func TestCarriedFlagsAreKnown(t *testing.T) {
	for _, name := range takeover.DaemonFlags {
		if _, err := parseOptions([]string{"--" + name + "=x"}); err != nil && strings.Contains(err.Error(), "unknown flag") {
			t.Errorf("flag --%s: %v", name, err)
		}
	}
}
