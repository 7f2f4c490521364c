package controller

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	"github.com/afloat-project/afloat/internal/framework"
	"github.com/afloat-project/afloat/internal/kinds/daemonset"
)

// daemonSetWebhooks admits DaemonSets of both versions.
type daemonSetWebhooks struct{ framework.Templates }

// DaemonSets returns the webhooks of the kind.
func DaemonSets(e *framework.Environment) framework.Webhooks {
	w := &daemonSetWebhooks{framework.NewTemplates(e)}
	return framework.Webhooks{
		Mutate:   w.mutate,
		Validate: w.validate,
		Protects: framework.WithPodsOnNodes,
	}
}

// mutate adds defaults, except to the pod template.
func (w *daemonSetWebhooks) mutate(_ context.Context, request admission.Request) admission.Response {
	updated, _, err := framework.Documents(&request)
	if err != nil {
		return framework.Undecodable(&request, err)
	}
	return admission.Patched("",
		daemonset.Default(daemonset.DefaultRequest{Version: framework.WrittenVersion(updated, &request), New: updated})...)
}

// validate validates DaemonSets.
func (w *daemonSetWebhooks) validate(ctx context.Context, request admission.Request) admission.Response {
	return framework.ValidateWorkload(ctx, w.Templates, &request, daemonset.WrittenInV1alpha1,
		daemonset.WrittenInV1beta1, daemonset.Validate,
		func(updated, _ *daemonset.Written) []string { return updated.Warnings() })
}

// DaemonSetConversion converts DaemonSets (ADS-210 to ADS-215).
func DaemonSetConversion() framework.Conversion {
	return framework.WithV1beta1Fields[appsv1alpha1.DaemonSetOptions](
		framework.Between((*appsv1alpha1.DaemonSet).ToV1beta1, appsv1alpha1.DaemonSetFromV1beta1, nil))
}
