package framework

import (
	"encoding/json"
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Converter converts an object of one version, as JSON, to the version of kind.
type Converter func(raw []byte, kind schema.GroupVersionKind) (converted []byte, err error)

// Conversion maps the version of an object and the wanted version, without the group, to a converter.
type Conversion map[[2]string]Converter

// Convert converts an object from one version to another; it returns the object unchanged if they are equal.
func (c Conversion) Convert(raw []byte, from, to schema.GroupVersionKind) ([]byte, error) {
	if from.Version == to.Version {
		return raw, nil
	}
	convert := c.Converter(from, to)
	if convert == nil {
		return nil, fmt.Errorf("%s cannot be converted from %s to %s", from.Kind, from.Version, to.Version)
	}
	return convert(raw, to)
}

// Converter returns the converter between two versions, or nil if there is none. It returns a panic as an
// error.
func (c Conversion) Converter(from, to schema.GroupVersionKind) Converter {
	convert := c[[2]string{from.Version, to.Version}]
	if convert == nil {
		return nil
	}
	return func(raw []byte, kind schema.GroupVersionKind) (converted []byte, err error) {
		defer func() {
			if cause := recover(); cause != nil {
				err = fmt.Errorf("panic in conversion: %v", cause)
			}
		}()
		return convert(raw, kind)
	}
}

// Between returns the conversion of a kind from functions between its types. Unknown fields keep their path,
// or get the one that place returns if it is not nil.
func Between[Alpha, Beta any](
	up func(*Alpha) *Beta, down func(*Beta) *Alpha, place func(path []string) []string,
) Conversion {
	return Conversion{{V1alpha1, V1beta1}: between(up, place), {V1beta1, V1alpha1}: between(down, place)}
}

// The versions of the kinds.
const (
	V1alpha1 = "v1alpha1"
	V1beta1  = "v1beta1"
)

// between returns a converter from a function between two types.
func between[From, To any](convert func(*From) *To, place func(path []string) []string) Converter {
	return func(raw []byte, kind schema.GroupVersionKind) ([]byte, error) {
		in := new(From)
		unknown, err := Decode(raw, in)
		if err != nil {
			return nil, err
		}

		out := any(convert(in))
		if object, ok := out.(schema.ObjectKind); ok {
			object.SetGroupVersionKind(kind)
		}

		converted, err := json.Marshal(out)
		if err != nil || !unknown {
			return converted, err
		}

		return Carry(raw, converted, reflect.TypeFor[From](), place)
	}
}
