package main

import (
	"strings"
	"testing"

	"github.com/afloat-project/afloat/internal/plugin/operations/takeover"
)

// Every flag that a takeover carries over from another manager is one that this manager has: an unknown one
// would keep it from starting, while no other manager runs any more.
func TestCarriedFlagsAreKnown(t *testing.T) {
	for _, name := range takeover.ManagerFlags {
		if _, err := parseOptions([]string{"--" + name + "=x"}); err != nil && strings.Contains(err.Error(), "unknown flag") {
			t.Errorf("flag --%s: %v", name, err)
		}
	}
}
