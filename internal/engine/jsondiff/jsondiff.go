// Package jsondiff compares JSON documents.
package jsondiff

import (
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"gomodules.xyz/jsonpatch/v2"
)

// Between returns the operations of a JSON patch that turn one object into another. Both are as they were decoded, so that numbers keep
// all of their digits. A list that gets longer or keeps its length is compared element by element, and another one is replaced.
func Between(before, after map[string]any) []jsonpatch.Operation {
	return members(nil, "", before, after)
}

// escape escapes a key for use in a JSON pointer.
var escape = strings.NewReplacer("~", "~0", "/", "~1")

// difference appends the JSON patch operations that turn before into after.
func difference(changes []jsonpatch.Operation, path string, before, after any) []jsonpatch.Operation {
	if reflect.DeepEqual(before, after) {
		return changes
	}

	switch was := before.(type) {
	case map[string]any:
		if is, ok := after.(map[string]any); ok {
			return members(changes, path, was, is)
		}
	case []any:
		is, ok := after.([]any)
		if !ok || len(is) < len(was) {
			break
		}
		if len(is) > len(was) && !reflect.DeepEqual(was, is[:len(was)]) {
			break
		}
		for i := range was {
			changes = difference(changes, path+"/"+strconv.Itoa(i), was[i], is[i])
		}
		for _, item := range is[len(was):] {
			changes = append(changes, jsonpatch.NewOperation("add", path+"/-", item))
		}
		return changes
	}

	return append(changes, jsonpatch.NewOperation("replace", path, after))
}

func members(
	changes []jsonpatch.Operation, path string, before, after map[string]any,
) []jsonpatch.Operation {
	for _, key := range slices.Sorted(maps.Keys(before)) {
		if _, kept := after[key]; !kept {
			changes = append(changes, jsonpatch.NewOperation("remove", path+"/"+escape.Replace(key), nil))
		}
	}

	for _, key := range slices.Sorted(maps.Keys(after)) {
		at := path + "/" + escape.Replace(key)
		if was, there := before[key]; there {
			changes = difference(changes, at, was, after[key])
		} else {
			changes = append(changes, jsonpatch.NewOperation("add", at, after[key]))
		}
	}

	return changes
}
