package admission

import (
	"cmp"
	"fmt"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/framework"
	"github.com/afloat-project/afloat/internal/platform/features"
)

// onlyProtected keeps deletions of objects that nobody protects away from the manager, so that they can be
// deleted while it is away (DP-031).
const onlyProtected = "request.operation != 'DELETE' || (has(oldObject.metadata.labels) && '" +
	pub.DeletionProtection + "' in oldObject.metadata.labels)"

// Entries returns the entries of kinds in the shipped webhook configuration for a verb, which is "mutate" or
// "validate" (OPS-060, OPS-061). Those of validating webhooks have all fields that either has.
func Entries(kinds []framework.Kind, verb string) ([]admissionregistrationv1.ValidatingWebhook, error) {
	gates, err := features.Parse("")
	if err != nil {
		return nil, fmt.Errorf("reading the defaults of feature gates: %w", err)
	}

	var entries []admissionregistrationv1.ValidatingWebhook
	for i := range kinds {
		webhooks := kinds[i].Webhooks(&framework.Environment{Gates: gates})
		if verb == "mutate" && webhooks.Mutate != nil || verb == "validate" && webhooks.Validate != nil {
			entries = append(entries, entry(&kinds[i], verb, &webhooks))
		}
	}

	return entries, nil
}

// entry returns the entry of the kind for a verb.
func entry(k *framework.Kind, verb string, webhooks *framework.Webhooks) admissionregistrationv1.ValidatingWebhook {
	operations := []admissionregistrationv1.OperationType{
		admissionregistrationv1.Create, admissionregistrationv1.Update,
	}
	effects := admissionregistrationv1.SideEffectClassNone
	var conditions []admissionregistrationv1.MatchCondition
	if verb == "validate" && webhooks.Announces {
		effects = admissionregistrationv1.SideEffectClassNoneOnDryRun
	}
	if verb == "validate" && webhooks.Protects != framework.Unprotected {
		// What is refused is recorded as an event.
		effects = admissionregistrationv1.SideEffectClassNoneOnDryRun
		operations = append(operations, admissionregistrationv1.Delete)
		conditions = []admissionregistrationv1.MatchCondition{{
			Name: "deletion-only-of-protected", Expression: onlyProtected,
		}}
	}

	scope := admissionregistrationv1.NamespacedScope
	if k.Cluster {
		scope = admissionregistrationv1.ClusterScope
	}

	return admissionregistrationv1.ValidatingWebhook{
		Name:                    verb[:1] + cmp.Or(k.EntryName, strings.ToLower(k.Name)) + ".kb.io",
		AdmissionReviewVersions: []string{"v1", "v1beta1"},
		ClientConfig: admissionregistrationv1.WebhookClientConfig{
			Service: &admissionregistrationv1.ServiceReference{
				Namespace: "kruise-system",
				Name:      "kruise-webhook-service",
				Path:      new(k.Path(verb)),
				Port:      new(int32(443)),
			},
		},
		Rules: []admissionregistrationv1.RuleWithOperations{{
			Operations: operations,
			Rule: admissionregistrationv1.Rule{
				APIGroups:   []string{k.Group},
				APIVersions: k.Versions(),
				Resources:   []string{k.Plural},
				Scope:       &scope,
			},
		}},
		FailurePolicy:   new(admissionregistrationv1.Fail),
		MatchPolicy:     new(admissionregistrationv1.Equivalent),
		MatchConditions: conditions,
		SideEffects:     &effects,
		TimeoutSeconds:  new(int32(30)),
	}
}
