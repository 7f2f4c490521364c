package framework

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	"gomodules.xyz/jsonpatch/v2"
)

// patchedBy is the maximum number of elements in the path of a change; deeper changes replace the value at
// that depth. Users choose how deep an object is and how long its keys are: a path for each of its values
// would take many times the memory of the object.
const patchedBy = 4

// PatchBetween returns the changes that turn one document into the other.
func PatchBetween(before, after []byte) ([]jsonpatch.Operation, error) {
	from, err := DecodeDocument(before)
	if err != nil {
		return nil, err
	}
	to, err := DecodeDocument(after)
	if err != nil {
		return nil, err
	}
	return changesOf(from, to, nil), nil
}

func changesOf(from, to Document, path []string) (all []jsonpatch.Operation) {
	keys := maps.Clone(from)
	maps.Copy(keys, to)
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		before, was := from[key]
		after, is := to[key]
		inner, wasObject := before.(Document)
		changed, isObject := after.(Document)
		switch at := below(path, key); {
		case !is:
			all = append(all, jsonpatch.NewOperation("remove", pointer(at), nil))
		case !was:
			all = append(all, jsonpatch.NewOperation("add", pointer(at), after))
		case wasObject && isObject && len(at) < patchedBy:
			all = append(all, changesOf(inner, changed, at)...)
		case !reflect.DeepEqual(before, after):
			all = append(all, jsonpatch.NewOperation("replace", pointer(at), after))
		}
	}

	return all
}

// pointer formats a path as a JSON pointer.
func pointer(path []string) string {
	text := strings.Builder{}
	for _, step := range path {
		text.WriteString("/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(step))
	}
	return text.String()
}
