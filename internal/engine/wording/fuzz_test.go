package wording

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// FuzzBound: a text has a bound, begins like the text that was given, and stays valid UTF-8; a second time
// changes nothing.
func FuzzBound(f *testing.F) {
	for _, text := range []string{"", "short", strings.Repeat("é", 700), strings.Repeat("a", 999) + "é",
		"\xff" + strings.Repeat("\xe2\x82", 600)} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		bound := Bound(text)
		if len(bound) > Most || Bound(bound) != bound || utf8.ValidString(text) && !utf8.ValidString(bound) {
			t.Errorf("%q is cut to %q", text, bound)
		}
		if kept := strings.TrimSuffix(bound, "…"); utf8.ValidString(text) && !strings.HasPrefix(text, kept) {
			t.Errorf("%q is cut to %q", text, bound)
		}
	})
}

// FuzzWithoutSecrets: a user, a password and a query of a URL are gone, whatever stands around it.
func FuzzWithoutSecrets(f *testing.F) {
	f.Add("pulling: Get \"", "https", "user:hunter2", "registry.example.com/v2/a", "sig=hunter2", "\": EOF")
	f.Add("", "http", "hunter2", "[::1]:5000", "X-Amz-Signature=hunter2&b=c", "")
	f.Fuzz(func(t *testing.T, ahead, scheme, user, host, query, rest string) {
		const secret = "hunter2"
		for _, part := range []string{ahead, host, rest, scheme} {
			if strings.Contains(part, secret) {
				return
			}
		}
		if !plain(scheme, false) || !plain(user, true) || !plain(host, false) || !plain(query, true) ||
			scheme == "" || host == "" ||
			scheme[0] < 'A' {
			return // no URL
		}
		text := ahead + " " + scheme + "://" + user + "@" + host + "?" + query + " " + rest
		if got := WithoutSecrets(text); strings.Contains(got, secret) {
			t.Errorf("%q became %q", text, got)
		}
		if got := WithoutSecrets(text); WithoutSecrets(got) != got {
			t.Errorf("%q became %q, and then %q", text, got, WithoutSecrets(got))
		}
	})
}

// plain reports whether a text has only letters, digits and the signs that are in URLs.
func plain(text string, signs bool) bool {
	return !strings.ContainsFunc(text, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && (!signs ||
			!strings.ContainsRune(":=-._~!$&*+;,%", r))
	})
}
