package controller

import (
	"context"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/afloat-project/afloat/internal/framework"
	"github.com/afloat-project/afloat/internal/kinds/broadcastjob"
)

// broadcastJobWebhooks admits BroadcastJobs of both versions.
type broadcastJobWebhooks struct{ framework.Templates }

// BroadcastJobs returns the webhooks of the kind.
func BroadcastJobs(e *framework.Environment) framework.Webhooks {
	w := &broadcastJobWebhooks{framework.NewTemplates(e)}
	return framework.Webhooks{Mutate: w.mutate, Validate: w.validate}
}

// mutate adds defaults.
func (w *broadcastJobWebhooks) mutate(ctx context.Context, request admission.Request) admission.Response {
	updated, old, err := framework.Documents(&request)
	if err != nil {
		return framework.Undecodable(&request, err)
	}
	operations, err := broadcastjob.Default(broadcastjob.DefaultRequest{
		Request: w.Defaulting(ctx, request.Namespace, updated, old),
		New:     updated,
		Old:     old,
		Now:     time.Now(),
	})
	return framework.Defaulted(operations, err, old)
}

// validate validates BroadcastJobs.
func (w *broadcastJobWebhooks) validate(ctx context.Context, request admission.Request) admission.Response {
	return framework.ValidateWorkload(ctx, w.Templates, &request, broadcastjob.WrittenInV1alpha1,
		broadcastjob.WrittenInV1beta1, broadcastjob.Validate, broadcastjob.Warnings)
}
