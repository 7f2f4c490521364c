package revision

import (
	"strings"
	"testing"
)

// IPU-041 (part): two revisions are equal apart from their templates only if both can be parsed.
func TestSameBeside(t *testing.T) {
	for name, tt := range map[string]struct {
		a, b string
		want bool
	}{
		"other templates":           {`{"spec":{"template":{"a":1},"x":1}}`, `{"spec":{"template":{"a":2},"x":1}}`, true},
		"other claims":              {`{"spec":{"template":{},"x":1}}`, `{"spec":{"template":{},"x":2}}`, false},
		"the first is unreadable":   {`{`, `{}`, false},
		"the second is unreadable":  {`{}`, `{`, false},
		"neither can be read":       {`{`, `{`, false},
		"unreadable and null":       {`null`, `{`, false},
		"without a spec, the same":  {`{"a":1}`, `{"a":1}`, true},
		"without a spec, different": {`{"a":1}`, `{"a":1.0}`, false},
	} {
		if got := SameBeside([]byte(tt.a), []byte(tt.b)); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// CS-081 (part): the name of a revision keeps at most 223 characters of its owner's name.
func TestTheLongestOwnerInTheNameOfARevision(t *testing.T) {
	for length, want := range map[int]int{222: 222, 223: 223, 224: 223} {
		got := Name(strings.Repeat("a", length), "hash")
		if kept, _, _ := strings.Cut(got, "-"); len(kept) != want {
			t.Errorf("of %d characters %d are kept", length, len(kept))
		}
	}
}
