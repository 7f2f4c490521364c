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
	if n, err := Writer(out).Write([]byte(hostile)); err != nil || n != len(hostile) {
		t.Error(n, err)
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
	if value.Part.Text != r || value.Parts[0].Text != r || value.Texts[0] != r || value.Map[r] != r || len(value.Map) != 1 ||
		value.Any.(*part).Text != r || value.own != "\x1b" {
		t.Errorf("%+v", value)
	}
}
