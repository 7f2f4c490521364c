package template

import (
	"encoding/json"
	"fmt"
	"reflect"
)

// mergeChanges applies to document the difference between two encodings of the typed view, then and now. Whatever the types do
// not show stays in place.
//
// Strategic merge patches would be the usual tool, but they identify list items by keys that need not be unique (a container may
// have one port number for TCP and UDP, and one variable name twice) and they read large numbers as floating point.
func mergeChanges(document, then, now []byte) ([]byte, error) {
	var values [3]any
	for i, data := range [][]byte{document, then, now} {
		value, err := parse(data)
		if err != nil {
			return nil, fmt.Errorf("merging template changes: %w", err)
		}
		values[i] = value
	}
	return json.Marshal(merge(values[0], values[1], values[2]))
}

// merge returns raw with the change from then to now. raw and then describe the same value: one with, one without unknown fields.
func merge(raw, then, now any) any {
	if same(then, now) {
		return raw
	}
	switch now := now.(type) {
	case map[string]any:
		rawMap, ok := raw.(map[string]any)
		thenMap, ok2 := then.(map[string]any)
		if ok && ok2 {
			return mergeMaps(rawMap, thenMap, now)
		}
	case []any:
		rawList, ok := raw.([]any)
		thenList, ok2 := then.([]any)
		// The types decode a list item by item, so the lengths differ only if raw is not the document of then.
		if ok && ok2 && len(rawList) == len(thenList) {
			return mergeLists(rawList, thenList, now)
		}
	}
	return now
}

func mergeMaps(raw, then, now map[string]any) map[string]any {
	merged := make(map[string]any, len(raw))
	for key, value := range raw {
		if _, shown := then[key]; shown {
			if _, kept := now[key]; !kept {
				continue
			}
		}
		merged[key] = value
	}
	for key, value := range now {
		before, shown := then[key]
		if !shown {
			merged[key] = value
			continue
		}
		if rawValue, ok := raw[key]; ok {
			merged[key] = merge(rawValue, before, value)
		} else if !same(before, value) {
			// The types show a value where the document has none (an empty struct): write it only once it was changed.
			merged[key] = value
		}
	}
	return merged
}

// mergeLists finds for every item of now the item of then that it was, and merges the two.
func mergeLists(raw, then, now []any) []any {
	origin := match(then, now)
	merged := make([]any, len(now))
	for i, item := range now {
		if from := origin[i]; from >= 0 {
			merged[i] = merge(raw[from], then[from], item)
		} else {
			merged[i] = item
		}
	}
	return merged
}

// match pairs items of now with items of then: equal ones first, then those of one name in their order, and finally, if nothing was
// added or removed, the rest by position. It returns for each item of now the index in then, or -1 for a new item.
func match(then, now []any) []int {
	origin := make([]int, len(now))
	for i := range origin {
		origin[i] = -1
	}
	taken := make([]bool, len(then))
	pair := func(key func(item any) string) {
		places := map[string][]int{}
		for j, before := range then {
			if k := key(before); !taken[j] && k != "" {
				places[k] = append(places[k], j)
			}
		}
		for i, after := range now {
			if origin[i] >= 0 {
				continue
			}
			k := key(after)
			if free := places[k]; k != "" && len(free) > 0 {
				origin[i], taken[free[0]], places[k] = free[0], true, free[1:]
			}
		}
	}
	pair(textOf)
	pair(nameOf)
	if len(then) == len(now) {
		for i := range now {
			if origin[i] < 0 && !taken[i] && (nameOf(then[i]) == "" || nameOf(now[i]) == "") {
				origin[i], taken[i] = i, true
			}
		}
	}
	return origin
}

// textOf is the same for equal items: members are in the order of their keys.
func textOf(item any) string {
	text, err := json.Marshal(item)
	if err != nil {
		return "" // it was read from JSON
	}
	return string(text)
}

func nameOf(item any) string {
	object, _ := item.(map[string]any)
	name, _ := object["name"].(string)
	return name
}

func same(a, b any) bool { return reflect.DeepEqual(a, b) }
