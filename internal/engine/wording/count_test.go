package wording

import "testing"

func TestNumbersAgreeWithTheirNouns(t *testing.T) {
	for want, got := range map[string]string{
		"0 pods":          Count(0, "pod"),
		"1 pod":           Count(1, "pod"),
		"2 pods":          Count(int32(2), "pod"),
		"1 entry":         Count(int64(1), "entry"),
		"3 entries":       Count(3, "entry"),
		"2 days":          Count(2, "day"),
		"5 native pods":   Count(5, "native pod"),
		"a, b":            Few([]string{"a", "b"}, 2),
		"a, b and 2 more": Few([]string{"a", "b", "c", "d"}, 2),
		"is":              Form(1, "is", "are"),
		"are":             Form(0, "is", "are"),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
