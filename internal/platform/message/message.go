// Package message cuts foreign texts, such as errors of runtimes and registries, so that they fit into events
// and statuses.
package message

import (
	"regexp"
	"strings"
)

// Most is the length of the longest text in bytes. The API server refuses messages of events above 1 KiB, and
// a status with hundreds of unbounded ones could become too large to be written at all.
const Most = 1000

// secretParts are what URLs in texts may have that opens something: user and password, and the query, which
// signs requests to stores.
var secretParts = regexp.MustCompile(
	`([A-Za-z][A-Za-z0-9+.-]*://)(?:[^\s/?#"'@]*@)?([^\s?"'<>]*)(?:\?[^\s"'<>]*)?`)

// Public returns the text with its URLs cut to host and path: registries redirect to stores by URLs that
// whoever reads them may use.
func Public(text string) string { return secretParts.ReplaceAllString(text, "$1$2") }

// Bound returns the text, cut to at most Most bytes with a mark if it is longer.
func Bound(text string) string {
	const mark = "…"
	if len(text) <= Most {
		return text
	}
	return strings.ToValidUTF8(text[:Most-len(mark)], "") + mark
}
