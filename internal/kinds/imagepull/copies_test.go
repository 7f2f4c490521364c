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
	if a, b := CopyMark("mallory-55679"), CopyMark("shop-11788"); a == b || len(a) < 2+20 {
		t.Errorf("marks of two namespaces whose hashes begin with the same 32 bits: got %s and %s, want others with 80 bits", a, b)
	}
}
