package jsonfields

import (
	"encoding/json"
	"reflect"
)

// Absent reports whether a decoded JSON value is empty: null, an empty object or list, or an object that has
// only empty fields. Typed clients send such values for fields that are not set, so they count as absent
// wherever the presence of a field matters.
func Absent(value any) bool {
	switch value := value.(type) {
	case nil:
		return true
	case []any:
		return len(value) == 0
	case map[string]any:
		for _, member := range value {
			if !Absent(member) {
				return false
			}
		}
		return true
	}

	return false
}

// Same reports whether two values are the same in JSON, apart from empty fields.
func Same(a, b any) bool {
	left, err := Said(a)
	if err != nil {
		return false
	}
	right, err := Said(b)
	return err == nil && reflect.DeepEqual(left, right)
}

// Said returns the decoded JSON of a value, without empty fields. It returns an error for what JSON cannot express.
func Said(value any) (decoded any, err error) {
	text, err := json.Marshal(value)
	if err == nil {
		err = json.Unmarshal(text, &decoded)
	}
	return pruned(decoded), err
}

func pruned(value any) any {
	switch value := value.(type) {
	case map[string]any:
		for key, member := range value {
			if Absent(member) {
				delete(value, key)
			} else {
				value[key] = pruned(member)
			}
		}
	case []any:
		for i := range value {
			value[i] = pruned(value[i])
		}
	}

	return value
}
