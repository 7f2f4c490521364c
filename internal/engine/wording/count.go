package wording

import (
	"strconv"
	"strings"
)

// Count returns the number with its noun, such as "1 pod" or "3 pods".
func Count[N int | int32 | int64](n N, noun string) string {
	return strconv.FormatInt(int64(n), 10) + " " + Form(n, noun, severalOf(noun))
}

// Form returns the first form for one and the second for any other number, such as Form(n, "is", "are").
func Form[N int | int32 | int64](n N, one, several string) string {
	if n == 1 {
		return one
	}
	return several
}

// Few joins the first few names, and adds how many more there are.
func Few(names []string, few int) string {
	if len(names) > few {
		return strings.Join(names[:few], ", ") + " and " + strconv.Itoa(len(names)-few) + " more"
	}
	return strings.Join(names, ", ")
}

func severalOf(noun string) string {
	stem, ends := strings.CutSuffix(noun, "y")
	if ends && !strings.HasSuffix(stem, "a") && !strings.HasSuffix(stem, "e") &&
		!strings.HasSuffix(stem, "o") {
		return stem + "ies"
	}
	return noun + "s"
}
