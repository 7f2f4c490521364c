package admission

import (
	"context"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/afloat-project/afloat/internal/kinds/broadcastjob"
)

// broadcastJobWebhooks admits BroadcastJobs of both versions.
type broadcastJobWebhooks struct{ templates }

// BroadcastJobs makes the webhooks of the kind.
func BroadcastJobs(e *Environment) Webhooks {
	w := &broadcastJobWebhooks{templatesOf(e)}
	return Webhooks{Mutate: w.mutate, Validate: w.validate}
}

// mutate fills in what was left out.
func (w *broadcastJobWebhooks) mutate(ctx context.Context, request admission.Request) admission.Response {
	updated, old, err := documents(&request)
	if err != nil {
		return undecodable(&request, err)
	}
	operations, err := broadcastjob.Default(broadcastjob.DefaultRequest{
		Request: w.completing(ctx, request.Namespace, updated, old),
		New:     updated,
		Old:     old,
		Now:     time.Now(),
	})
	return completed(operations, err, old)
}

// validate judges BroadcastJobs.
func (w *broadcastJobWebhooks) validate(ctx context.Context, request admission.Request) admission.Response {
	return validateWorkload(ctx, w.templates, &request, broadcastjob.WrittenInV1alpha1,
		broadcastjob.WrittenInV1beta1, broadcastjob.Validate, broadcastjob.Warnings)
}
