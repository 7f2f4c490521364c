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
		if len(got) > Most || !utf8.ValidString(got) || (got == text) != (len(text) <= Most) ||
			!strings.HasPrefix(text, strings.TrimSuffix(got, "…")) {
			t.Errorf("%d: %d bytes of %d", n, len(got), len(text))
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
			t.Errorf("%s: %s", text, got)
		}
	}
}
