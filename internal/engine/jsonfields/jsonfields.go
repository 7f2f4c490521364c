// Package jsonfields returns the fields that a Go type has in JSON.
package jsonfields

import (
	"encoding/json"
	"reflect"
	"strings"
	"sync"
)

// cache maps reflect.Type to map[string]reflect.Type, computed once for each type.
var cache sync.Map

// Of returns the type of each field of a struct type by its name in JSON. Callers must not change the map.
func Of(t reflect.Type) map[string]reflect.Type {
	if cached, ok := cache.Load(t); ok {
		return cached.(map[string]reflect.Type)
	}

	fields := map[string]reflect.Type{}
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-" && options == "" || name != "" && !f.IsExported():
		case name != "":
			fields[name] = f.Type
		case f.Anonymous || strings.Contains(options, "inline"):
			for key, inner := range Of(Elem(f.Type)) {
				if _, taken := fields[key]; !taken {
					fields[key] = inner
				}
			}
		case f.IsExported():
			fields[f.Name] = f.Type
		}
	}

	cache.Store(t, fields)
	return fields
}

// Elem returns the type that a pointer type points to, or the type itself.
func Elem(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t
}

var (
	marshaler   = reflect.TypeFor[json.Marshaler]()
	unmarshaler = reflect.TypeFor[json.Unmarshaler]()
)

// Encodes reports whether values of the type encode themselves to JSON, so that the fields of the type do not
// define the encoding.
func Encodes(t reflect.Type) bool {
	return t.Implements(marshaler) || reflect.PointerTo(t).Implements(marshaler)
}

// Decodes reports whether values of the type decode themselves from JSON.
func Decodes(t reflect.Type) bool { return reflect.PointerTo(t).Implements(unmarshaler) }
