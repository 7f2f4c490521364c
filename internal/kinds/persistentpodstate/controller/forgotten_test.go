package controller

import (
	"testing"
	"time"
)

// PPS-045 (part), PPS-052 (part): a node was made anew with another label while its pods went on; the former label stayed recorded, and the next pod waited for it for
// ever.
func TestLabelsOfANodeThatWasMadeAnewWereMissed(t *testing.T) {
	w := pinned(t)
	w.make("web", 1, 0, nil)
	w.write("places", "web", nil)
	w.holds("places", "web-0 a z1")
	w.Manage() // what settling has asked for
	w.r.Cleanup = false
	w.Remove(key("Node", "a"))
	w.node("a", "z2")
	w.Events(1 << 20)
	w.Pass(10 * time.Second)
	w.Manage()
	if got := w.places("places"); got != "web-0 a z2" {
		t.Errorf("recorded is %q", got)
	}
}
