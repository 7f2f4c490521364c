package wording

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// CRR-105, IMG-141: a long text is cut between characters.
func TestBound(t *testing.T) {
	for _, n := range []int{0, 1, Most / 2, Most/2 + 1, 10 * Most} {
		text := "x" + strings.Repeat("é", n)
		got := Bound(text)
		if len(got) > Most {
			t.Errorf("a text of %d bytes: cut to %d, want %d at most", len(text), len(got), Most)
		}
		if !utf8.ValidString(got) {
			t.Errorf("a text of %d bytes: cut within a character", len(text))
		}
		if cut, want := got != text, len(text) > Most; cut != want {
			t.Errorf("a text of %d bytes: is cut: got %t, want %t", len(text), cut, want)
		}
		if !strings.HasPrefix(text, strings.TrimSuffix(got, "…")) {
			t.Errorf("a text of %d bytes: cut to what is not its beginning", len(text))
		}
	}
}

// What a URL opens beside its host and path is not told.
func TestURLsAreCut(t *testing.T) {
	for text, want := range map[string]string{
		`Get "https://s.io/blob?sig=x": EOF`:           `Get "https://s.io/blob": EOF`,
		"Get https://u:p@s.io:1/blob?sig=x&y=z: EOF":   "Get https://s.io:1/blob EOF",
		"a <https://s.io/b?c>, http://t.io?x":          "a <https://s.io/b>, http://t.io",
		"is this a question? yes: a@b.io":              "is this a question? yes: a@b.io",
		"docker.io/acme/app@sha256:0123: no such host": "docker.io/acme/app@sha256:0123: no such host",
	} {
		if got := WithoutSecrets(text); got != want {
			t.Errorf("%s: told as %s, want %s", text, got, want)
		}
	}
}
