package waiting

import (
	"strings"
	"testing"
)

// OPS-099 (part): a reason is cut after exactly 200 bytes, and a wait that concerns no pod names none.
func TestWhatAWaitSays(t *testing.T) {
	w := &Wait{Reason: "A", Message: "b"}
	if got := w.String(); got != "A: b" {
		t.Error(got)
	}
	w.Name("p", strings.Repeat("x", 200))
	w.Name("q", strings.Repeat("x", 201))
	if got, want := w.String(), "A: b. pod p: "+strings.Repeat("x", 200)+". pod q: "+strings.Repeat("x", 200)+"…"; got != want {
		t.Error(got)
	}
}
