package message

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
