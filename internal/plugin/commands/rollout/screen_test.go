package rollout

import (
	"strings"
	"testing"

	"github.com/afloat-project/afloat/internal/plugin/plugintest/golden"
)

// OPS-140 (part): on a terminal the line is painted anew with a bar, over all lines that it took; elsewhere
// only what is new is written.
func TestScreen(t *testing.T) {
	for name, width := range map[string]func() int{"terminal": func() int { return 60 }, "lines": nil,
		"terminal-of-unknown-width": func() int { return 0 }} {
		var out strings.Builder
		s := &screen{out: &out, width: width}
		for _, p := range []struct {
			Progress
			below string
		}{
			{Progress{Line: "Waiting for spec update to be observed..."}, ""},
			{Progress{Line: "1 out of 4", Updated: 1, Target: 4}, ""},
			{Progress{Line: "1 out of 4", Updated: 1, Target: 4}, ""}, // nothing new
			{Progress{Line: "1 out of 4, which takes more than one line", Updated: 1, Target: 4}, "because:\nno room"},
			{Progress{Line: "4 out of 4", Updated: 5, Target: 4}, "because:\nno room"},
			{Progress{Line: "done", Updated: 4, Target: 4, Done: true}, ""},
		} {
			s.show(p.Progress, p.below)
		}
		golden.Compare(t, "screen-"+name, strings.ReplaceAll(out.String(), "\x1b", "ESC"))
	}
}

// A long line takes several rows of a terminal.
func TestRows(t *testing.T) {
	for text, want := range map[string]int{"\n": 1, "a\n": 1, "123456\n": 1, "1234567\n": 2, "123456789012\n": 2, "1234567890123\nä\n": 4,
		"äääääö\n": 1} {
		if got := rows(text, 6); got != want {
			t.Errorf("%q takes %d rows, want %d", text, got, want)
		}
	}
}
