package admission

import (
	"cmp"
	"context"
	"fmt"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/component-base/featuregate"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/afloat-project/afloat/internal/admission/protection"
	"github.com/afloat-project/afloat/internal/framework"
)

// handlersOfKind returns the handlers of the kind by path. If a required gate is off, creation and update are
// rejected, except for objects that are being deleted.
func (o Options) handlersOfKind(k *framework.Kind, e *framework.Environment) map[string]admission.Handler {
	webhooks, off, handlers := k.Webhooks(e), k.Gates.Off(e.Gates), map[string]admission.Handler{}
	protects := o.protects(k.Name, webhooks.Protects)
	for verb, handle := range map[string]admission.HandlerFunc{
		"mutate":   webhooks.Mutate,
		"validate": webhooks.Validate,
	} {
		if handle == nil {
			continue
		}
		handlers[k.Path(verb)] = limited(func(
			ctx context.Context, request admission.Request,
		) admission.Response {
			switch written := request.Operation == admissionv1.Create ||
				request.Operation == admissionv1.Update; {
			case request.Operation == admissionv1.Delete && verb == "validate" && protects != nil:
				return protects(ctx, request)
			case !written || request.SubResource != "" || off != nil && framework.BeingDeleted(&request):
				return admission.Allowed("")
			case off != nil:
				return gateOff(cmp.Or(k.OffCode, http.StatusForbidden), off)
			}
			return handle(ctx, request)
		})
	}
	return handlers
}

// protects returns the handler of deletions, or nil.
func (o Options) protects(name string, by framework.Protection) admission.HandlerFunc {
	switch by {
	case framework.WithReplicas:
		return o.guard.Handler(protection.Scaled(name))
	case framework.WithPodsOnNodes:
		return o.guard.Handler(protection.OnNodes(name))
	case framework.Unprotected:
	}
	return nil
}

// gateOff rejects a request because a feature gate is off, or all of several gates of which one would be
// enough.
func gateOff(code int32, gates []featuregate.Feature) admission.Response {
	off := fmt.Sprintf("feature gate %s is off: an administrator can switch it on", gates[0])
	if len(gates) > 1 {
		off = fmt.Sprintf("feature gates %q are off: an administrator can switch one of them on", gates)
	}
	return framework.Refuse(code, off+" by --feature-gates of the manager")
}
