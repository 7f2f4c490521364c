package admission

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	kjson "sigs.k8s.io/json"
)

// What the types do not have is carried over by conversion as it is: the CRD may be of a newer release than this manager (OPS-112), and
// conversion must not lose what was stored (OPS-072).

// decodeStrictly decodes as an API server does, and returns the paths of the fields that into has no place for.
func decodeStrictly(raw []byte, into any) (unknown []string, err error) {
	strict, err := kjson.UnmarshalStrict(raw, into, kjson.DisallowUnknownFields)
	if err != nil {
		return nil, err
	}
	for _, problem := range strict {
		var at kjson.FieldError
		if errors.As(problem, &at) {
			unknown = append(unknown, at.FieldPath())
		}
	}
	return unknown, nil
}

// Members of these have another place in the other version of a CloneSet (CS-253).
var alphaStrategy, betaStrategy = []string{"spec", "updateStrategy"}, []string{"spec", "updateStrategy", "rollingUpdate"}

// carry copies the fields at the paths from one document to the other, unless they are there.
func carry(from, to []byte, paths []string) ([]byte, error) {
	source, err := decodeDocument(from)
	if err != nil {
		return nil, fmt.Errorf("reading the object: %w", err)
	}
	target, err := decodeDocument(to)
	if err != nil {
		return nil, fmt.Errorf("reading the converted object: %w", err)
	}
	for _, path := range paths {
		from := steps(source, path)
		place := from
		if rest, ok := cutSteps(from, betaStrategy); ok {
			place = slices.Concat(alphaStrategy, rest)
		} else if rest, ok := cutSteps(from, alphaStrategy); ok {
			place = slices.Concat(betaStrategy, rest)
		}
		if value, ok := lookUp(source, from); ok {
			insert(target, place, value)
		}
	}
	return json.Marshal(target)
}

func cutSteps(path, prefix []string) ([]string, bool) {
	if len(path) <= len(prefix) || !slices.Equal(path[:len(prefix)], prefix) {
		return nil, false
	}
	return path[len(prefix):], true
}

// steps splits a path in value such as spec.conditions[0].type. Keys of maps, such as names of images, may have dots in them: the
// longest key that is there counts.
func steps(value any, path string) []string {
	words := strings.Split(strings.NewReplacer("[", ".", "]", "").Replace(path), ".")
	var found []string
	for len(words) > 0 {
		key, used := words[0], 1
		if _, isObject := value.(document); isObject {
			for n := len(words); n > 1; n-- {
				if joined := strings.Join(words[:n], "."); has(value, joined) {
					key, used = joined, n
					break
				}
			}
		}
		value, _ = member(value, key)
		found, words = append(found, key), words[used:]
	}
	return found
}

func has(value any, key string) bool {
	_, ok := member(value, key)
	return ok
}

func lookUp(value any, path []string) (any, bool) {
	for _, key := range path {
		var ok bool
		if value, ok = member(value, key); !ok {
			return nil, false
		}
	}
	return value, true
}

func member(value any, key string) (any, bool) {
	switch value := value.(type) {
	case document:
		found, ok := value[key]
		return found, ok
	case []any:
		if i, err := strconv.Atoi(key); err == nil && i >= 0 && i < len(value) {
			return value[i], true
		}
	}
	return nil, false
}

// insert sets a value where there is none; objects on the way are made, items of lists are not.
func insert(into any, path []string, value any) {
	for len(path) > 1 {
		next, ok := member(into, path[0])
		if object, isObject := into.(document); !ok && isObject {
			next = document{}
			object[path[0]] = next
		}
		into, path = next, path[1:]
	}
	if object, ok := into.(document); ok {
		if _, taken := object[path[0]]; !taken {
			object[path[0]] = value
		}
	}
}
