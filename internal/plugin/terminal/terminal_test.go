package terminal

import (
	"bytes"
	"testing"
)

const hostile = "a\x1b[2J\u009b1A\u202eb\tc\nd\r\x00é"

// TestPlain: nothing that is printed steers the terminal; letters and signs of all languages stay.
func TestPlain(t *testing.T) {
	if got, want := Plain(hostile), "a\ufffd[2J\ufffd1A\ufffdb c d \ufffdé"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	out := &bytes.Buffer{}
	n, err := Writer(out).Write([]byte(hostile))
	if err != nil {
		t.Errorf("writing: %v", err)
	}
	if n != len(hostile) {
		t.Errorf("written bytes: got %d, want %d", n, len(hostile))
	}
	if got, want := out.String(), "a\ufffd[2J\ufffd1A\ufffdb\tc\nd\ufffd\ufffdé"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestClean: all texts of a value are made plain, wherever they are.
func TestClean(t *testing.T) {
	type part struct{ Text string }
	value := struct {
		Part  *part
		Parts []part
		Texts []string
		Map   map[string]string
		Any   any
		own   string
	}{&part{"\x1b"}, []part{{"\x1b"}}, []string{"\x1b"}, map[string]string{"\x1b": "\x1b"}, &part{"\x1b"}, "\x1b"}
	Clean(&value)
	const r = "\ufffd"
	for name, got := range map[string]string{"a pointer": value.Part.Text,
		"a list of structures": value.Parts[0].Text, "a list": value.Texts[0],
		"a map": value.Map[r], "an interface": value.Any.(*part).Text} {
		if got != r {
			t.Errorf("text in %s: got %q, want %q", name, got, r)
		}
	}
	if len(value.Map) != 1 {
		t.Errorf("the map: got %q, want one key", value.Map)
	}
	if value.own != "\x1b" {
		t.Errorf("the field that is not exported: got %q, want it unchanged", value.own)
	}
}
