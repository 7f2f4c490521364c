package admission

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/afloat-project/afloat/internal/admission/protection"
	"github.com/afloat-project/afloat/internal/kinds/daemonset"
)

// daemonSetWebhooks admits DaemonSets of both versions.
type daemonSetWebhooks struct{ templates }

// DaemonSets makes the webhooks of the kind.
func DaemonSets(e *Environment) Webhooks {
	w := &daemonSetWebhooks{templatesOf(e)}
	return Webhooks{
		Mutate:   w.mutate,
		Validate: w.validate,
		Delete:   e.guard.Handler(protection.OnNodes("DaemonSet")),
	}
}

// mutate fills in what was left out, but for the pod template.
func (w *daemonSetWebhooks) mutate(_ context.Context, request admission.Request) admission.Response {
	updated, _, err := documents(&request)
	if err != nil {
		return undecodable(&request, err)
	}
	return admission.Patched("",
		daemonset.Default(daemonset.DefaultRequest{Version: versionOf(updated, &request), New: updated})...)
}

// validate judges DaemonSets.
func (w *daemonSetWebhooks) validate(ctx context.Context, request admission.Request) admission.Response {
	return validateWorkload(ctx, w.templates, &request, daemonset.WrittenInV1alpha1,
		daemonset.WrittenInV1beta1, daemonset.Validate,
		func(updated, _ *daemonset.Written) []string { return updated.Warnings() })
}
