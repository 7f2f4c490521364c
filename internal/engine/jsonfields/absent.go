package jsonfields

import (
	"bytes"
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
		decoder := json.NewDecoder(bytes.NewReader(text))
		decoder.UseNumber() // a float64 cannot tell all int64 apart
		err = decoder.Decode(&decoded)
	}
	return pruned(decoded), err
}

func pruned(value any) any {
	switch value := value.(type) {
	case map[string]any:
		for key, member := range value {
			// What is left of an object or a list is empty itself, or not at all: nothing is looked at twice.
			if member = pruned(member); empty(member) {
				delete(value, key)
			} else {
				value[key] = member
			}
		}
	case []any:
		for i := range value {
			value[i] = pruned(value[i])
		}
	}

	return value
}

// empty reports whether a value without empty fields is absent.
func empty(value any) bool {
	switch value := value.(type) {
	case nil:
		return true
	case []any:
		return len(value) == 0
	case map[string]any:
		return len(value) == 0
	}
	return false
}
