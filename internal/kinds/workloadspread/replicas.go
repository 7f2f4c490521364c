package workloadspread

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Replicas is the sum of the integers at the paths in an object; an empty path counts 0 (WS-015).
func Replicas(object map[string]any, paths []string) (int32, error) {
	var sum int64
	for _, path := range paths {
		if path == "" {
			continue
		}
		value, err := integerAt(object, path)
		if err != nil {
			return 0, fmt.Errorf("path %s: %w", path, err)
		}
		if sum += value; sum < math.MinInt32 || sum > math.MaxInt32 {
			return 0, fmt.Errorf("path %s: the sum of replicas is out of range", path)
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
				return 0, fmt.Errorf("there is no %q", segment)
			}
			at = value
		case []any:
			index, err := strconv.Atoi(segment)
			if err != nil || index < 0 || index >= len(inside) {
				return 0, fmt.Errorf("%q is no index of a list of %d", segment, len(inside))
			}
			at = inside[index]
		default:
			return 0, fmt.Errorf("%q is looked for in %T", segment, at)
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

// ordinalOf is the number behind the last dash of a pod's name.
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
