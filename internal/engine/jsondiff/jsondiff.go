// Package jsondiff compares JSON documents.
package jsondiff

import (
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"

	"github.com/go-openapi/jsonpointer"
	"gomodules.xyz/jsonpatch/v2"
)

// Depths to which documents are compared, in elements of a path. What differs below is replaced as a whole.
const (
	// Shallow is for documents that somebody else wrote: users choose how deep an object is and how long its keys are, and a path for
	// each of its values would take many times the memory of the object.
	Shallow = 4
	// Deep is as deep as documents can be.
	Deep = math.MaxInt
)

// Between returns the operations of a JSON patch that turn one object into another. Both are as they were decoded, so that numbers keep
// all of their digits. A list that gets longer or keeps its length is compared element by element, and another one is replaced.
func Between(before, after map[string]any, depth int) []jsonpatch.Operation {
	return members(nil, "", before, after, depth)
}

// difference appends the JSON patch operations that turn before into after.
func difference(changes []jsonpatch.Operation, path string, before, after any, depth int) []jsonpatch.Operation {
	if reflect.DeepEqual(before, after) {
		return changes
	}

	switch was := before.(type) {
	case map[string]any:
		if is, ok := after.(map[string]any); ok && depth > 0 {
			return members(changes, path, was, is, depth)
		}
	case []any:
		is, ok := after.([]any)
		if !ok || depth == 0 || len(is) < len(was) {
			break
		}
		if len(is) > len(was) && !reflect.DeepEqual(was, is[:len(was)]) {
			break
		}
		for i := range was {
			changes = difference(changes, path+"/"+strconv.Itoa(i), was[i], is[i], depth-1)
		}
		for _, item := range is[len(was):] {
			changes = append(changes, jsonpatch.NewOperation("add", path+"/-", item))
		}
		return changes
	}

	return append(changes, jsonpatch.NewOperation("replace", path, after))
}

func members(changes []jsonpatch.Operation, path string, before, after map[string]any, depth int) []jsonpatch.Operation {
	for _, key := range slices.Sorted(maps.Keys(before)) {
		if _, kept := after[key]; !kept {
			changes = append(changes, jsonpatch.NewOperation("remove", path+"/"+jsonpointer.Escape(key), nil))
		}
	}

	for _, key := range slices.Sorted(maps.Keys(after)) {
		at := path + "/" + jsonpointer.Escape(key)
		if was, there := before[key]; there {
			changes = difference(changes, at, was, after[key], depth-1)
		} else {
			changes = append(changes, jsonpatch.NewOperation("add", at, after[key]))
		}
	}

	return changes
}
