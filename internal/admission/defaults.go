package admission

import (
	"context"

	"gomodules.xyz/jsonpatch/v2"
	admissionv1 "k8s.io/api/admission/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/afloat-project/afloat/internal/framework"
)

// defaulting returns a handler that adds missing defaults.
func defaulting(add func(object framework.Document, create bool) []jsonpatch.Operation) admission.HandlerFunc {
	return func(_ context.Context, request admission.Request) admission.Response {
		object, err := framework.DecodeDocument(request.Object.Raw)
		if err != nil {
			return framework.Undecodable(&request, err)
		}
		return admission.Patched("", add(object, request.Operation == admissionv1.Create)...)
	}
}
