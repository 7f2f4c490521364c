package template

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	"k8s.io/apimachinery/pkg/api/equality"
	kjson "sigs.k8s.io/json"
)

// Document is a JSON text kept as it was read, beside the typed view that users of the type see. The text is a string because it is
// immutable and shared by all copies of an object. The zero value is that of an object made in Go.
//
// +kubebuilder:object:generate=false
type Document struct {
	text string
	err  error
}

// Err says why the document does not fit the types; nil if it does.
func (d Document) Err() error { return d.err }

// IsZero says whether nothing was read.
func (d Document) IsZero() bool { return d.text == "" }

// Read keeps data and decodes it into view. It never fails: if data does not fit, view stays zero and Err returns the error.
func Read[T any](data []byte, view *T) Document {
	doc := Document{text: string(data)}
	var decoded T
	if err := kjson.UnmarshalCaseSensitivePreserveInts(data, &decoded); err != nil {
		doc.err = fmt.Errorf("decoding %T: %w", decoded, err)
		decoded = *new(T)
	}
	*view = decoded
	return doc
}

// Write returns the document with what was changed in view since it was read.
func Write[T any](doc Document, view *T) ([]byte, error) {
	now, err := json.Marshal(view)
	if err != nil {
		return nil, fmt.Errorf("encoding %T: %w", *view, err)
	}
	if doc.text == "" {
		return now, nil
	}
	var asRead T
	Read([]byte(doc.text), &asRead)
	then, err := json.Marshal(&asRead)
	if err != nil {
		return nil, fmt.Errorf("encoding %T as read: %w", *view, err)
	}
	if bytes.Equal(then, now) {
		return []byte(doc.text), nil
	}
	return mergeChanges([]byte(doc.text), then, now)
}

// raw returns a copy of the document, or view encoded when there is none.
func raw[T any](doc Document, view *T) []byte {
	if doc.text != "" {
		return []byte(doc.text)
	}
	encoded, err := json.Marshal(view)
	if err != nil {
		return nil
	}
	return encoded
}

// parse decodes any JSON value; numbers stay json.Number, so that they are written back as they were.
func parse(data []byte) (any, error) {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return nil, err
	}
	if _, err := decoder.Token(); err != io.EOF {
		return nil, fmt.Errorf("data after the JSON value")
	}
	return value, nil
}

// equalJSON says whether two JSON texts hold the same value, key order and white space aside.
func equalJSON(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	left, err := parse(a)
	if err != nil {
		return false
	}
	right, err := parse(b)
	return err == nil && same(left, right)
}

// EqualEncoding says whether two values encode to the same JSON value; a value that cannot be encoded equals no other.
func EqualEncoding(a, b json.Marshaler) bool {
	left, err := a.MarshalJSON()
	if err != nil {
		return false
	}
	right, err := b.MarshalJSON()
	return err == nil && equalJSON(left, right)
}

func equalView[T any](a, b *T) bool { return equality.Semantic.DeepEqual(a, b) }
