package admission

import (
	"encoding/json"
	"errors"
	"fmt"
	"path"

	admissionv1 "k8s.io/api/admission/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// documents decodes the objects of a request; old is nil on create.
func documents(request *admission.Request) (updated, old document, err error) {
	if updated, err = decodeDocument(request.Object.Raw); err != nil {
		return nil, nil, fmt.Errorf("reading the object: %w", err)
	}

	if request.Operation == admissionv1.Update {
		if old, err = decodeDocument(request.OldObject.Raw); err != nil {
			return nil, nil, fmt.Errorf("reading the stored object: %w", err)
		}
		if old == nil {
			return nil, nil, errors.New("reading the stored object: there is none")
		}
	}

	return updated, old, nil
}

// versionOf returns the version in which the object is written, whatever version was requested.
func versionOf(object document, request *admission.Request) string {
	text, _ := object["apiVersion"].(string)
	if version := path.Base(text); version == alpha || version == beta {
		return version
	}
	return request.Kind.Version
}

// sameSpec reports whether an update leaves the spec unchanged.
func sameSpec(request *admission.Request) bool {
	updated, err := decodeDocument(request.Object.Raw)
	if err != nil {
		return false
	}
	old, err := decodeDocument(request.OldObject.Raw)
	return err == nil && sameJSON(updated["spec"], old["spec"])
}

func sameJSON(a, b any) bool {
	left, err := json.Marshal(a)
	if err != nil {
		return false
	}
	right, err := json.Marshal(b)
	return err == nil && string(left) == string(right)
}
