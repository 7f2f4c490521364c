package admission

import (
	"encoding/json"
	"errors"
	"fmt"
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
const alphaStrategy, betaStrategy = "spec.updateStrategy.", "spec.updateStrategy.rollingUpdate."

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
		place := path
		if rest, ok := strings.CutPrefix(path, betaStrategy); ok {
			place = alphaStrategy + rest
		} else if rest, ok := strings.CutPrefix(path, alphaStrategy); ok {
			place = betaStrategy + rest
		}
		if value, ok := lookUp(source, steps(path)); ok {
			insert(target, steps(place), value)
		}
	}
	return json.Marshal(target)
}

// steps splits a path such as spec.conditions[0].type.
func steps(path string) []string {
	return strings.Split(strings.NewReplacer("[", ".", "]", "").Replace(path), ".")
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
