package registry

import (
	"slices"
	"strings"
	"testing"

	"github.com/afloat-project/afloat/internal/platform/features"
)

// PPS-095, PPS-017: PersistentPodStates have no gate, and three workers; the gate of their upkeep is there
// and off. The three rights on listed kinds that the manager needs are granted by who lists them, as the
// manual says.
func TestPersistentPodStatesNeedNoGate(t *testing.T) {
	kind := kindNamed(t, "PersistentPodState")
	if kind.Gates != nil || kind.Workers != 3 || kind.Controller != "persistentpodstate" || kind.Setup == nil || kind.Workload {
		t.Errorf("%+v", kind)
	}
	known, is := features.Known()[features.PersistentPodStateAutoCleanup]
	if !is || known.Default || known.PreRelease != "ALPHA" {
		t.Errorf("%+v", known)
	}
	if !strings.Contains(text(t, "docs/kinds/persistentpodstate.md"), "needs the rights `get`, `list` and `watch` on it") {
		t.Error("the manual does not say which rights a listed kind needs")
	}
}

// PPS-002, PPS-106, PPS-109: what users expected elsewhere stands in the manual, and no example has two keys
// in one.
func TestTheManualOfPersistentPodStatesSaysWhatTheyDoNot(t *testing.T) {
	page := text(t, "docs/kinds/persistentpodstate.md")
	for _, said := range []string{"It assigns no addresses and moves no data.", "A fixed IP needs a network plugin", "one key an item",
		"or a kind that an administrator lists"} {
		if !strings.Contains(page, said) {
			t.Errorf("the manual does not say: %s", said)
		}
	}
	if slices.ContainsFunc(strings.Split(page, "\n"), func(line string) bool {
		_, keys, is := strings.Cut(line, "keys: [")
		return is && strings.ContainsAny(keys, "\"'") && strings.Contains(keys, ",")
	}) {
		t.Error("an example has two keys in one")
	}
}
