package framework

import (
	"encoding/json"
	"fmt"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/jsonfields"
)

// WithV1beta1Fields returns the conversion of a kind whose spec has more fields in v1beta1, the Options. In
// v1alpha1 they are in an annotation, together with unknown fields among them, because the API server would
// prune these at their own path.
func WithV1beta1Fields[Options any](plain Conversion) Conversion {
	up, down := [2]string{V1alpha1, V1beta1}, [2]string{V1beta1, V1alpha1}
	return Conversion{
		up: func(raw []byte, kind schema.GroupVersionKind) ([]byte, error) {
			converted, err := plain[up](raw, kind)
			if err != nil {
				return nil, err
			}
			return fromV1beta1Fields(raw, converted, new(Options))
		},
		down: func(raw []byte, kind schema.GroupVersionKind) ([]byte, error) {
			converted, err := plain[down](raw, kind)
			if err != nil {
				return nil, err
			}
			return toV1beta1Fields(converted, reflect.TypeFor[Options]())
		},
	}
}

// v1beta1Fields returns the annotation that is a part of the spec in v1alpha1.
func v1beta1Fields(object Document) any {
	metadata, _ := object["metadata"].(Document)
	annotations, _ := metadata["annotations"].(Document)
	text, _ := annotations[pub.V1beta1OnlyFields].(string)
	return text
}

// toV1beta1Fields moves fields that were carried over to the path of a v1beta1 field into the annotation.
func toV1beta1Fields(converted []byte, options reflect.Type) ([]byte, error) {
	var shown struct{ Spec map[string]json.RawMessage }
	if err := json.Unmarshal(converted, &shown); err != nil {
		return nil, fmt.Errorf("reading the converted object: %w", err)
	}

	var carried []string
	for key := range jsonfields.Of(options) {
		if _, found := shown.Spec[key]; found {
			carried = append(carried, key)
		}
	}

	if len(carried) == 0 {
		return converted, nil
	}

	object, err := DecodeDocument(converted)
	if err != nil {
		return nil, fmt.Errorf("reading the converted object: %w", err)
	}

	fields := Document{}
	text, _ := v1beta1Fields(object).(string)
	// There is no annotation if all fields were carried over.
	if read, err := DecodeDocument([]byte(text)); err == nil {
		fields = read
	}

	spec, _ := object["spec"].(Document)
	for _, key := range carried {
		add(fields, key, spec[key])
		delete(spec, key)
	}

	kept, err := json.Marshal(fields)
	if err != nil {
		return nil, fmt.Errorf("writing the annotation: %w", err)
	}

	metadata := within(object, "metadata")
	within(metadata, "annotations")[pub.V1beta1OnlyFields] = string(kept)
	return json.Marshal(object)
}

// fromV1beta1Fields adds to a converted object the fields of its annotation that the types do not have.
func fromV1beta1Fields(raw, converted []byte, options any) ([]byte, error) {
	var given metav1.PartialObjectMetadata
	if err := json.Unmarshal(raw, &given); err != nil {
		return nil, fmt.Errorf("reading the object: %w", err)
	}

	text := given.Annotations[pub.V1beta1OnlyFields]
	if unknown, err := Decode([]byte(text), options); err != nil || !unknown {
		return converted, nil //nolint:nilerr // conversion dropped an annotation that it cannot read
	}

	fields, err := DecodeDocument([]byte(text))
	if err != nil {
		return nil, fmt.Errorf("reading the annotation: %w", err)
	}

	object, err := DecodeDocument(converted)
	if err != nil {
		return nil, fmt.Errorf("reading the converted object: %w", err)
	}

	spec := within(object, "spec")
	for key, value := range fields {
		add(spec, key, value)
	}

	return json.Marshal(object)
}

// within returns the object at the key, and creates it if it is missing.
func within(object Document, key string) Document {
	inner, ok := object[key].(Document)
	if !ok {
		inner = Document{}
		object[key] = inner
	}
	return inner
}
