package workloadspread

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/afloat-project/afloat/internal/engine/workloadkind"
)

// ReadAdvanced returns how many pods an Advanced StatefulSet wants, its first ordinal, and the ordinals that
// it leaves out (WS-021, WS-061).
func ReadAdvanced(object map[string]any) (desired int32, start int, reserved []Ordinals, err error) {
	wanted := workloadkind.DesiredOf(object)
	desired, start = wanted.Pods(), int(wanted.Start)
	entries, _, _ := unstructured.NestedSlice(object, "spec", "reserveOrdinals")
	for i, entry := range entries {
		r, ok := ordinals(entry)
		if !ok {
			return desired, start, nil,
				fmt.Errorf("spec.reserveOrdinals[%d]: %v is neither an ordinal nor a range", i, entry)
		}
		reserved = append(reserved, r)
	}

	return desired, start, apart(reserved), nil
}

// ordinals parses an entry of reserveOrdinals, which is a number or "first-last".
func ordinals(entry any) (Ordinals, bool) {
	switch value := entry.(type) {
	case int64:
		return Ordinals{int(value), int(value)}, value >= 0
	case string:
		from, to, _ := strings.Cut(value, "-")
		first, err := strconv.ParseUint(from, 10, 31)
		last, err2 := strconv.ParseUint(to, 10, 31)
		return Ordinals{int(first), int(last)}, err == nil && err2 == nil && first <= last
	}
	return Ordinals{}, false
}

// apart sorts ranges and merges those that overlap or touch.
func apart(ranges []Ordinals) []Ordinals {
	slices.SortFunc(ranges, func(a, b Ordinals) int {
		return cmp.Or(cmp.Compare(a.First, b.First), cmp.Compare(a.Last, b.Last))
	})

	var merged []Ordinals
	for _, r := range ranges {
		if last := len(merged) - 1; last >= 0 && r.First <= merged[last].Last+1 {
			merged[last].Last = max(merged[last].Last, r.Last)
			continue
		}
		merged = append(merged, r)
	}
	return merged
}
