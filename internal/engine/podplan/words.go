package podplan

import (
	"slices"
	"strings"
)

// maxConditionMessage bounds what a condition says: thousands of pods may fail at once.
const maxConditionMessage = 2048

// FailureWords words a failure, or gives the text if there is none. Errors of several pods come in any order,
// which must not make another message.
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
