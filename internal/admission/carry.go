package admission

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

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	"github.com/afloat-project/afloat/internal/engine/jsonfields"
)

// What the types do not have is carried over as it is where an object is written through them: the CRD may be of a newer release than this
// manager (OPS-112), and neither conversion nor defaults may lose what was stored (OPS-072).

// decode decodes as an API server does, and tells whether there are fields that into has no place for.
func decode(raw []byte, into any) (unknown bool, err error) {
	strict, err := kjson.UnmarshalStrict(raw, into, kjson.DisallowUnknownFields)
	return len(strict) > 0, err
}

// readBeta reads an object of either version as one of v1beta1, in the namespace of the request.
func readBeta[Alpha, Beta any](raw []byte, request *admission.Request, up func(*Alpha) *Beta) (*Beta, error) {
	document, err := decodeDocument(raw)
	if err != nil {
		return nil, err
	}
	object := new(Beta)
	if versionOf(document, request) == appsv1alpha1.GroupVersion.Version {
		given := new(Alpha)
		if _, err = decode(raw, given); err == nil {
			object = up(given)
		}
	} else {
		_, err = decode(raw, object)
	}
	if named, ok := any(object).(metav1.Object); ok {
		named.SetNamespace(request.Namespace)
	}
	return object, err
}

// compared reads the object of a request, and the stored one if it is updated: nil if that cannot be read, so that all is new.
func compared[Alpha, Beta any](request *admission.Request, up func(*Alpha) *Beta) (object, old *Beta, err error) {
	if object, err = readBeta(request.Object.Raw, request, up); err != nil || request.Operation != admissionv1.Update {
		return object, nil, err
	}
	if old, err = readBeta(request.OldObject.Raw, request, up); err != nil {
		return object, nil, nil //nolint:nilerr // all is new
	}
	return object, old, nil
}

// carry copies the fields that type t has no place for from one document to the other, unless they are there. place, if not nil, says
// where a path of the one is in the other.
func carry(from, to []byte, t reflect.Type, place func(path []string) []string) ([]byte, error) {
	source, err := decodeDocument(from)
	if err != nil {
		return nil, fmt.Errorf("reading the object: %w", err)
	}
	target, err := decodeDocument(to)
	if err != nil {
		return nil, fmt.Errorf("reading the converted object: %w", err)
	}
	unknownFields(source, t, nil, 0, func(path []string, listed int, value any) {
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

// unknownFields finds the fields in value that type t has no place for. The list of the JSON library ends at a hundred, and its paths
// are ambiguous where keys have dots in them. A type that reads its JSON itself keeps what it does not know. listed is how much of a path
// leads to an item of a list; 0 if there is none on the way.
func unknownFields(value any, t reflect.Type, path []string, listed int, found func(path []string, listed int, value any)) {
	t = jsonfields.Elem(t)
	if jsonfields.Decodes(t) {
		return
	}
	switch value := value.(type) {
	case document:
		for key, member := range value {
			switch t.Kind() {
			case reflect.Struct:
				if known, ok := jsonfields.Of(t)[key]; ok {
					unknownFields(member, known, below(path, key), listed, found)
				} else {
					found(below(path, key), listed, member)
				}
			case reflect.Map:
				unknownFields(member, t.Elem(), below(path, key), listed, found)
			}
		}
	case []any:
		if t.Kind() == reflect.Slice {
			for i, item := range value {
				unknownFields(item, t.Elem(), below(path, strconv.Itoa(i)), len(path)+1, found)
			}
		}
	}
}

// placedBy is how many steps of a path say where it is in the other document: what is below them moves together.
const placedBy = 4

// leaves finds what in value moves by itself: what is so deep that its place is known, and what is no object with members.
func leaves(value any, path []string, found func(path []string, value any)) {
	object, ok := value.(document)
	if !ok || len(object) == 0 || len(path) >= placedBy {
		found(path, value)
		return
	}
	for key, member := range object {
		leaves(member, below(path, key), found)
	}
}

func below(path []string, key string) []string { return append(slices.Clip(path), key) }

// insert sets a value where there is none. Objects on the way are made; lists, which are in the listed first steps of the path, and their
// items are not.
func insert(into any, path []string, listed int, value any) {
	for len(path) > 1 {
		next, ok := member(into, path[0])
		if object, isObject := into.(document); !ok && isObject && listed <= 0 {
			next = document{}
			object[path[0]] = next
		}
		into, path, listed = next, path[1:], listed-1
	}
	if object, ok := into.(document); ok {
		add(object, path[0], value)
	}
}

// add sets a member that is not there; of one that is an object in both, what is not there in it.
func add(into document, key string, value any) {
	present, taken := into[key]
	if !taken {
		into[key] = value
		return
	}
	object, isObject := present.(document)
	members, ok := value.(document)
	if !isObject || !ok {
		return
	}
	for key, member := range members {
		add(object, key, member)
	}
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
