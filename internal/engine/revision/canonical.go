package revision

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/afloat-project/afloat/internal/engine/jsonfields"
)

// Document is a JSON object as decoded by [Parse]: numbers are json.Number, so that they survive unchanged.
type Document = map[string]any

// Parse decodes a JSON object without loss.
func Parse(raw []byte) (Document, error) {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	var doc Document
	if err := decoder.Decode(&doc); err != nil {
		return nil, fmt.Errorf("parsing JSON object: %w", err)
	}
	return doc, nil
}

// Canonical returns a pod template in the form in which templates are stored, hashed and compared; see
// [CanonicalAs].
func Canonical(template []byte) (Document, error) {
	canonical, err := CanonicalAs[corev1.PodTemplateSpec](template)
	if err != nil {
		return nil, err
	}
	doc, ok := canonical.(Document)
	if !ok {
		return nil, fmt.Errorf("reading pod template: it is no object")
	}
	delete(doc, "$patch")
	return doc, nil
}

// CanonicalAs returns a JSON value of type T in the form in which revisions store it. Fields that the type
// knows are written as the type encodes them; other fields are kept unchanged. It returns an error if the
// value does not fit the type.
func CanonicalAs[T any](text []byte) (any, error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var raw, known any
	if err := decoder.Decode(&raw); err != nil {
		return nil, fmt.Errorf("parsing JSON: %w", err)
	}

	var typed T
	if err := json.Unmarshal(text, &typed); err != nil {
		return nil, fmt.Errorf("reading %T: %w", typed, err)
	}

	encoded, err := json.Marshal(&typed)
	if err != nil {
		return nil, fmt.Errorf("encoding %T: %w", typed, err)
	}

	decoder = json.NewDecoder(bytes.NewReader(encoded))
	decoder.UseNumber()
	if err := decoder.Decode(&known); err != nil {
		return nil, fmt.Errorf("parsing %T: %w", typed, err)
	}

	return complete(known, raw, reflect.TypeFor[T]()), nil
}

// Written returns a value that encodes to JSON of type T as a Go client writes it, which leaves out what is false or
// empty, with the fields that the type does not know. Empty objects count as absent. A value that does not fit the
// type is returned as it is.
func Written[T any](value any) any {
	said, err := jsonfields.Said(value)
	if err != nil {
		return value
	}
	text, err := json.Marshal(said)
	if err != nil {
		return value
	}
	written, err := CanonicalAs[T](text)
	if err != nil {
		return value
	}
	return written
}

var objectMeta = reflect.TypeOf(metav1.ObjectMeta{})

// complete completes known, the encoding of a value of type t. It adds the fields of raw that t does not
// know, and what Kubernetes 1.32 wrote but newer libraries leave out.
func complete(known, raw any, t reflect.Type) any {
	t = jsonfields.Elem(t)
	switch t.Kind() {
	case reflect.Struct:
		knownMap, ok := known.(Document)
		if !ok {
			return known // the type has its own encoding, as quantities, times and int-or-strings have
		}
		rawMap, _ := raw.(Document)
		fields := jsonfields.Of(t)
		for key, value := range rawMap {
			if _, ok := fields[key]; !ok && value != nil {
				knownMap[key] = value
			}
		}

		for key, field := range fields {
			value, present := knownMap[key]
			if !present {
				if field.Kind() == reflect.Struct && !jsonfields.Encodes(field) {
					// Kubernetes 1.32 wrote it even if it was empty.
					knownMap[key] = complete(Document{}, nil, field)
				}
				continue
			}
			knownMap[key] = complete(value, rawMap[key], field)
		}

		if t == objectMeta {
			if _, ok := knownMap["creationTimestamp"]; !ok {
				knownMap["creationTimestamp"] = nil
			}
		}
		return knownMap
	case reflect.Slice:
		knownList, ok := known.([]any)
		rawList, _ := raw.([]any)
		if !ok || len(rawList) != len(knownList) {
			return known
		}
		for i := range knownList {
			knownList[i] = complete(knownList[i], rawList[i], t.Elem())
		}
		return knownList
	}

	return known
}
