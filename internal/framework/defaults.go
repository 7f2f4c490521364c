package framework

import (
	"context"

	"gomodules.xyz/jsonpatch/v2"
	admissionv1 "k8s.io/api/admission/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// DefaultBy returns a handler that adds missing defaults.
func DefaultBy(add func(object Document, create bool) []jsonpatch.Operation) admission.HandlerFunc {
	return func(_ context.Context, request admission.Request) admission.Response {
		object, err := DecodeDocument(request.Object.Raw)
		if err != nil {
			return Undecodable(&request, err)
		}
		return admission.Patched("", add(object, request.Operation == admissionv1.Create)...)
	}
}
