package podplan

import (
	"slices"
	"strings"
)

// maxConditionMessage bounds the message of a condition, because thousands of pods may fail at once.
const maxConditionMessage = 2048

// FailureWords returns the message of an error, or text if the error is nil. The errors of several pods come
// in any order; they are sorted, so that the order does not change the message.
func FailureWords(err error, text string) string {
	if err != nil {
		lines := strings.Split(err.Error(), "\n")
		slices.Sort(lines)
		text = strings.Join(slices.Compact(lines), "\n")
	}
	if len(text) > maxConditionMessage {
		text = strings.ToValidUTF8(text[:maxConditionMessage], "") + "…"
	}
	return text
}
