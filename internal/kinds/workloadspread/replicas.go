package workloadspread

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/afloat-project/afloat/internal/engine/wording"
)

// Replicas returns the sum of the integers at the given paths in an object. An empty path counts as 0
// (WS-015).
func Replicas(object map[string]any, paths []string) (int32, error) {
	var sum int64
	for _, path := range paths {
		if path == "" {
			continue
		}
		value, err := integerAt(object, path)
		if err != nil {
			return 0, fmt.Errorf("path %s: %w", wording.Bound(path), err)
		}
		if sum += value; sum < math.MinInt32 || sum > math.MaxInt32 {
			return 0, fmt.Errorf("path %s: the sum of replicas is out of range", wording.Bound(path))
		}
	}

	return int32(sum), nil
}

func integerAt(object any, path string) (int64, error) {
	at := object
	for segment := range strings.SplitSeq(path, ".") {
		switch inside := at.(type) {
		case map[string]any:
			value, ok := inside[segment]
			if !ok {
				return 0, fmt.Errorf("there is no %q", wording.Bound(segment))
			}
			at = value
		case []any:
			index, err := strconv.Atoi(segment)
			if err != nil || index < 0 || index >= len(inside) {
				return 0, fmt.Errorf("%q is no index of a list of %d", wording.Bound(segment), len(inside))
			}
			at = inside[index]
		default:
			return 0, fmt.Errorf("%q is looked for in %T", wording.Bound(segment), at)
		}
	}

	switch number := at.(type) {
	case int64:
		if number < math.MinInt32 || number > math.MaxInt32 {
			return 0, fmt.Errorf("%d is out of range", number)
		}
		return number, nil
	case nil:
		return 0, fmt.Errorf("there is null, not an integer")
	}

	return 0, fmt.Errorf("there is a %T, not an integer", at)
}

// ordinalOf returns the number after the last dash of a pod's name.
func ordinalOf(pod string) (int, bool) {
	dash := strings.LastIndexByte(pod, '-')
	if dash < 0 {
		return 0, false
	}
	digits := pod[dash+1:]
	if digits == "" || strings.Trim(digits, "0123456789") != "" {
		return 0, false
	}
	ordinal, err := strconv.ParseInt(digits, 10, 32)
	return int(ordinal), err == nil
}
