package podplan

import (
	"errors"
	"strings"
	"testing"
)

// CS-225 (part): failures that come in any order are told in one, and never without end.
func TestFailureWords(t *testing.T) {
	one, two := errors.New("one"), errors.New("two")
	if a, b := FailureWords(errors.Join(one, two), ""), FailureWords(errors.Join(two, one), ""); a != b || a != "one\ntwo" {
		t.Errorf("%q and %q", a, b)
	}
	if n := len(FailureWords(errors.New(strings.Repeat("ä", 1<<20)), "")); n > maxConditionMessage+3 {
		t.Error(n)
	}
	if text := FailureWords(nil, "planned"); text != "planned" {
		t.Error(text)
	}
}
