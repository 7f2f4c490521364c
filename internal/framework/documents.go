package framework

import (
	"encoding/json"
	"errors"
	"fmt"
	"path"

	admissionv1 "k8s.io/api/admission/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// Documents decodes the objects of a request; old is nil on create.
func Documents(request *admission.Request) (updated, old Document, err error) {
	if updated, err = DecodeDocument(request.Object.Raw); err != nil {
		return nil, nil, fmt.Errorf("reading the object: %w", err)
	}

	if request.Operation == admissionv1.Update {
		if old, err = DecodeDocument(request.OldObject.Raw); err != nil {
			return nil, nil, fmt.Errorf("reading the stored object: %w", err)
		}
		if old == nil {
			return nil, nil, errors.New("reading the stored object: there is none")
		}
	}

	return updated, old, nil
}

// WrittenVersion returns the version in which the object is written, whatever version was requested.
func WrittenVersion(object Document, request *admission.Request) string {
	text, _ := object["apiVersion"].(string)
	if version := path.Base(text); version == V1alpha1 || version == V1beta1 {
		return version
	}
	return request.Kind.Version
}

// SameSpec reports whether an update leaves the spec unchanged.
func SameSpec(request *admission.Request) bool {
	updated, err := DecodeDocument(request.Object.Raw)
	if err != nil {
		return false
	}
	old, err := DecodeDocument(request.OldObject.Raw)
	return err == nil && SameJSON(updated["spec"], old["spec"])
}

// SameJSON reports whether two values have the same JSON.
func SameJSON(a, b any) bool {
	left, err := json.Marshal(a)
	if err != nil {
		return false
	}
	right, err := json.Marshal(b)
	return err == nil && string(left) == string(right)
}
