package plural

import "testing"

func TestNumbersAgreeWithTheirNouns(t *testing.T) {
	for want, got := range map[string]string{
		"0 pods":          Of(0, "pod"),
		"1 pod":           Of(1, "pod"),
		"2 pods":          Of(int32(2), "pod"),
		"1 entry":         Of(int64(1), "entry"),
		"3 entries":       Of(3, "entry"),
		"2 days":          Of(2, "day"),
		"5 native pods":   Of(5, "native pod"),
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
