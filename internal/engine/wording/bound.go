package wording

import (
	"regexp"
	"strings"
	"unicode/utf8"
)

// Most is the maximum length of a text in bytes. The API server rejects event messages longer than 1 KiB, and
// a status with hundreds of unbounded messages could become too large to be written.
const Most = 1000

// secretParts matches URLs. Its groups leave out the parts that may grant access: the user and password, and
// the query, which signs requests to object stores.
var secretParts = regexp.MustCompile(
	`([A-Za-z][A-Za-z0-9+.-]*://)(?:[^\s/?#"'@]*@)?([^\s?"'<>]*)(?:\?[^\s"'<>]*)?`)

// WithoutSecrets returns the text with its URLs reduced to scheme, host and path. Registries redirect to object
// stores by URLs that grant access to everybody who can read them.
func WithoutSecrets(text string) string { return secretParts.ReplaceAllString(text, "$1$2") }

// Bound returns the text. If it is longer than Most bytes, it is truncated and ends with a mark.
func Bound(text string) string {
	const mark = "…"
	if len(text) <= Most {
		return text
	}
	return strings.ToValidUTF8(text[:Most-len(mark)], "") + mark
}

// Clip truncates a text at a character boundary to the maximum length as JSON, where escaped characters
// count with the length of their escape sequence.
func Clip(text string, most int) string {
	length := 0
	for i, r := range text {
		size := utf8.RuneLen(r)
		switch {
		case r == '"' || r == '\\' || r == '\n' || r == '\r' || r == '\t':
			size = 2
		case r < ' ' || r == '<' || r == '>' || r == '&' || r == '\u2028' || r == '\u2029':
			size = 6
		}
		if length += size; length > most {
			return text[:i]
		}
	}

	return text
}
