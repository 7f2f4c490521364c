package framework

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	kjson "sigs.k8s.io/json"

	"github.com/afloat-project/afloat/internal/engine/jsonfields"
)

// Fields that the Go types do not have are carried over unchanged when an object is decoded and written
// again. The CRD may be of a newer release than this manager (OPS-112), and neither conversion nor defaults
// may lose what was stored (OPS-072).

// Decode decodes like an API server, and reports whether there are fields that into does not have.
func Decode(raw []byte, into any) (unknown bool, err error) {
	strict, err := kjson.UnmarshalStrict(raw, into, kjson.DisallowUnknownFields)
	return len(strict) > 0, err
}

// readBeta reads an object of either version as one of v1beta1, in the namespace of the request.
func readBeta[Alpha, Beta any](raw []byte, request *admission.Request, up func(*Alpha) *Beta) (*Beta, error) {
	document, err := DecodeDocument(raw)
	if err != nil {
		return nil, err
	}

	object := new(Beta)
	if WrittenVersion(document, request) == V1alpha1 {
		given := new(Alpha)
		if _, err = Decode(raw, given); err == nil {
			object = up(given)
		}
	} else {
		_, err = Decode(raw, object)
	}

	if named, ok := any(object).(metav1.Object); ok {
		named.SetNamespace(request.Namespace)
	}

	return object, err
}

// Compare reads the object of a request and, on update, the stored object. old is nil if that cannot be
// read; then everything counts as new.
func Compare[Alpha, Beta any](
	request *admission.Request, up func(*Alpha) *Beta,
) (object, old *Beta, err error) {
	if object, err = readBeta(request.Object.Raw, request, up); err != nil ||
		request.Operation != admissionv1.Update {
		return object, nil, err
	}
	if old, err = readBeta(request.OldObject.Raw, request, up); err != nil {
		return object, nil, nil //nolint:nilerr // everything counts as new
	}
	return object, old, nil
}

// CompareOne is [Compare] for a kind that has one version, or whose versions have the same fields.
func CompareOne[T any](request *admission.Request) (object, old *T, err error) {
	return Compare(request, func(given *T) *T { return given })
}

// Carry copies the fields that type t does not have from one document to the other, unless they exist there.
// If place is not nil, it maps a path in the first document to a path in the other.
func Carry(from, to []byte, t reflect.Type, place func(path []string) []string) ([]byte, error) {
	source, err := DecodeDocument(from)
	if err != nil {
		return nil, fmt.Errorf("reading the object: %w", err)
	}

	target, err := DecodeDocument(to)
	if err != nil {
		return nil, fmt.Errorf("reading the converted object: %w", err)
	}

	UnknownFields(source, t, nil, 0, func(path []string, listed int, value any) {
		leaves(value, path, func(path []string, value any) {
			placed := path
			if place != nil {
				placed = place(path)
			}
			insert(target, placed, listed+len(placed)-len(path), value)
		})
	})
	return json.Marshal(target)
}

// UnknownFields finds the fields in value that type t does not have. The JSON library lists only a hundred of
// them, and its paths are ambiguous if keys contain dots. A type with its own decoder keeps unknown fields
// itself. listed is the length of the part of the path that ends at the last item of a list; 0 if the path
// has none.
func UnknownFields(
	value any, t reflect.Type, path []string, listed int, found func(path []string, listed int, value any),
) {
	t = jsonfields.Elem(t)
	if jsonfields.Decodes(t) {
		return
	}

	switch value := value.(type) {
	case Document:
		for key, member := range value {
			switch t.Kind() {
			case reflect.Struct:
				if known, ok := jsonfields.Of(t)[key]; ok {
					UnknownFields(member, known, below(path, key), listed, found)
				} else {
					found(below(path, key), listed, member)
				}
			case reflect.Map:
				UnknownFields(member, t.Elem(), below(path, key), listed, found)
			}
		}
	case []any:
		if t.Kind() == reflect.Slice {
			for i, item := range value {
				UnknownFields(item, t.Elem(), below(path, strconv.Itoa(i)), len(path)+1, found)
			}
		}
	}
}

// placedBy is the number of path elements that determine where a field is in the other document. Everything
// below moves with it.
const placedBy = 4

// leaves finds the parts of value that are moved individually: those at depth placedBy, and those above it
// that are not objects with members.
func leaves(value any, path []string, found func(path []string, value any)) {
	object, ok := value.(Document)
	if !ok || len(object) == 0 || len(path) >= placedBy {
		found(path, value)
		return
	}
	for key, member := range object {
		leaves(member, below(path, key), found)
	}
}

func below(path []string, key string) []string { return append(slices.Clip(path), key) }

// insert sets a value unless one exists. It creates missing objects on the path, but no lists and no list
// items, which are within the first listed elements.
func insert(into any, path []string, listed int, value any) {
	for len(path) > 1 {
		next, ok := member(into, path[0])
		if object, isObject := into.(Document); !ok && isObject && listed <= 0 {
			next = Document{}
			object[path[0]] = next
		}
		into, path, listed = next, path[1:], listed-1
	}
	if object, ok := into.(Document); ok {
		add(object, path[0], value)
	}
}

// add sets a member that is missing. If it is an object in both documents, add merges them.
func add(into Document, key string, value any) {
	present, taken := into[key]
	if !taken {
		into[key] = value
		return
	}

	object, isObject := present.(Document)
	members, ok := value.(Document)
	if !isObject || !ok {
		return
	}

	for key, member := range members {
		add(object, key, member)
	}
}

func member(value any, key string) (any, bool) {
	switch value := value.(type) {
	case Document:
		found, ok := value[key]
		return found, ok
	case []any:
		if i, err := strconv.Atoi(key); err == nil && i >= 0 && i < len(value) {
			return value[i], true
		}
	}
	return nil, false
}
