package podplan

import (
	"errors"
	"strings"
	"testing"
)

// CS-225 (part): failures that come in any order are told in one, and never without end.
func TestFailureWords(t *testing.T) {
	one, two := errors.New("one"), errors.New("two")
	a, b := FailureWords(errors.Join(one, two), ""), FailureWords(errors.Join(two, one), "")
	if a != b {
		t.Errorf("the same failures in another order: got %q, want %q", b, a)
	}
	if want := "one\ntwo"; a != want {
		t.Errorf("two failures: got %q, want %q", a, want)
	}
	if n := len(FailureWords(errors.New(strings.Repeat("ä", 1<<20)), "")); n > maxConditionMessage+3 {
		t.Errorf("length of many failures: got %d bytes, want %d at most", n, maxConditionMessage+3)
	}
	if text := FailureWords(nil, "planned"); text != "planned" {
		t.Errorf("words without a failure: got %q, want \"planned\"", text)
	}
}
