package imagepull

import "testing"

// IMG-122 (part), IMG-113 (part): the name of a copy tells for whom it may be; that of another secret, and of a copy of an earlier
// release, does not.
func TestNamesOfCopiesTellForWhomTheyAre(t *testing.T) {
	for name, want := range map[string]string{
		"login-0123456789abcdef" + CopyMark("shop"): CopyMark("shop"),
		"login-0123456789abcdef":                    "",
		"login-0a1b2c":                              "",
		"login" + CopyMark("shop") + "-0a1b2c":      "",
	} {
		if got := CopyMarkIn(name); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
	if CopyMark("shop") == CopyMark("mall") {
		t.Error("two namespaces have the same mark")
	}
}
