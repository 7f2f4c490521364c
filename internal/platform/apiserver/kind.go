package apiserver

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Document returns an empty object of a kind that users configure, to read into. It has the configured
// version or, if that is empty or no longer served, another one. The error is a NoMatch error if the kind is
// not served.
func Document(mapper meta.RESTMapper, kind schema.GroupVersionKind) (*unstructured.Unstructured, error) {
	var versions []string
	if kind.Version != "" {
		versions = append(versions, kind.Version)
	}

	mapping, err := mapper.RESTMapping(kind.GroupKind(), versions...)
	if meta.IsNoMatchError(err) && len(versions) > 0 {
		mapping, err = mapper.RESTMapping(kind.GroupKind())
	}
	if err != nil {
		return nil, fmt.Errorf("looking for kind %s: %w", kind.GroupKind(), err)
	}

	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(mapping.GroupVersionKind)
	return object, nil
}
