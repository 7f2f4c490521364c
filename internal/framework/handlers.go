package framework

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/component-base/featuregate"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// Handlers returns the handlers of the kind by path. If a required gate is off, creation and update are
// rejected, except for objects that are being deleted.
func (k *Kind) Handlers(e *Environment) map[string]admission.Handler {
	webhooks, off, handlers := k.Webhooks(e), k.Gates.Off(e.Gates), map[string]admission.Handler{}
	var protects admission.HandlerFunc
	if webhooks.Protects != Unprotected { // without a guard this fails at once, and lets nothing pass
		protects = e.Protect(k.Name, webhooks.Protects)
	}
	for verb, handle := range map[string]admission.HandlerFunc{
		"mutate":   webhooks.Mutate,
		"validate": webhooks.Validate,
	} {
		if handle == nil {
			continue
		}
		handlers[k.Path(verb)] = Limited(func(
			ctx context.Context, request admission.Request,
		) admission.Response {
			switch written := request.Operation == admissionv1.Create ||
				request.Operation == admissionv1.Update; {
			case request.Operation == admissionv1.Delete && verb == "validate" && protects != nil:
				return protects(ctx, request)
			case !written || request.SubResource != "" || off != nil && BeingDeleted(&request):
				return admission.Allowed("")
			case off != nil:
				return gateOff(cmp.Or(k.OffCode, http.StatusForbidden), off)
			}
			return handle(ctx, request)
		})
	}
	return handlers
}

// gateOff rejects a request because a feature gate is off, or all of several gates of which one would be
// enough.
func gateOff(code int32, gates []featuregate.Feature) admission.Response {
	off := fmt.Sprintf("feature gate %s is off: an administrator can switch it on", gates[0])
	if len(gates) > 1 {
		off = fmt.Sprintf("feature gates %q are off: an administrator can switch one of them on", gates)
	}
	return Refuse(code, off+" by --feature-gates of the manager")
}

// AdmissionTime is how long a handler may wait for other requests. It leaves time to respond before the API
// server gives up, after 10 s or more. An object is not rejected because of what is unknown by then.
const AdmissionTime = 7 * time.Second

// Limited cancels the context of a handler while the API server still waits.
func Limited(handle admission.HandlerFunc) admission.Handler {
	return admission.HandlerFunc(func(ctx context.Context, request admission.Request) admission.Response {
		ctx, cancel := context.WithTimeout(ctx, AdmissionTime)
		defer cancel()
		return handle(ctx, request)
	})
}
