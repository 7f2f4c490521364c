package admission

import (
	"fmt"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/admission/certificate"
	"github.com/afloat-project/afloat/internal/admission/configuration"
	"github.com/afloat-project/afloat/internal/platform/features"
	"github.com/afloat-project/afloat/internal/platform/matchconditions"
)

// Entries that call validatePodPath. Two of them are for pods in subsets of WorkloadSpreads, and never reject
// a request. The other two are for pods that budgets may protect, and reject requests while the manager is
// down. The leader creates these two, so that they never exist without their conditions. Each request matches
// only one entry, so that one handler makes all checks.
const (
	validatePlacedName         = "vpod.kb.io"
	validatePlacedEvictionName = "vpodeviction.kb.io"
	validatePodName            = "vpod-budget.kb.io"
	validateEvictionName       = "vpodeviction-budget.kb.io"
)

// derivedDisruptions returns the entries that the leader creates; there are none without budgets.
func (o Options) derivedDisruptions() []configuration.Derived {
	if o.Budgets == nil || !o.Pods {
		return nil
	}

	rule := func(resource string, operations ...any) any {
		return map[string]any{
			"apiGroups":   []any{""},
			"apiVersions": []any{"v1"},
			"operations":  operations,
			"resources":   []any{resource},
			"scope":       string(admissionv1.NamespacedScope),
		}
	}
	const kind = "ValidatingWebhookConfiguration"
	return []configuration.Derived{
		{
			Kind: kind,
			From: validatePlacedName,
			Name: validatePodName,
			Path: validatePodPath,
			Fields: map[string]any{
				"timeoutSeconds": int64(10),
				"rules":          []any{rule("pods", "UPDATE", "DELETE"), rule("pods/resize", "UPDATE")},
			},
		}, {
			Kind:   kind,
			From:   validatePlacedEvictionName,
			Name:   validateEvictionName,
			Path:   validatePodPath,
			Fields: map[string]any{"timeoutSeconds": int64(10)},
		},
	}
}

// scopeDisruptions sets which requests match these entries.
func (o Options) scopeDisruptions(keeping *certificate.Options) {
	namespaces := func() ([]string, bool) {
		if o.Budgets == nil {
			return nil, true
		}
		return o.Budgets.Namespaces(), o.Budgets.Synced()
	}
	scope := func(name string, policy admissionv1.FailurePolicyType,
		conditions func(guarded string) []admissionv1.MatchCondition) {
		keeping.Scopes[name] = configuration.Scope{
			Policy: policy,
			Conditions: func() ([]admissionv1.MatchCondition, bool) {
				names, known := namespaces()
				if o.Spreads != nil && !o.Spreads.Synced() {
					known = false
				}
				return conditions(matchconditions.Within(names)), known
			},
		}
	}
	deletes, updates := o.Gates.Enabled(features.PodUnavailableBudgetDeleteGate),
		o.Gates.Enabled(features.PodUnavailableBudgetUpdateGate)
	removals := func(guarded string) string { // no budget applies to these without the gate
		if !deletes {
			return "false"
		}
		return guarded
	}
	scope(validatePodName, admissionv1.Fail, func(guarded string) []admissionv1.MatchCondition {
		return []admissionv1.MatchCondition{
			condition("of-podunavailablebudgets", guarded), condition("in-service", inService),
			condition("protected", protected), condition("asked-about", asked(deletes, updates)),
		}
	})
	scope(validateEvictionName, admissionv1.Fail, func(guarded string) []admissionv1.MatchCondition {
		return []admissionv1.MatchCondition{condition("of-podunavailablebudgets", removals(guarded))}
	})
	evictions := func() string { return "false" }
	if o.Spreads != nil {
		evictions = o.Spreads.Evictions
	}

	scope(validatePlacedName, admissionv1.Ignore, func(guarded string) []admissionv1.MatchCondition {
		elsewhere := "false"
		if o.Spreads != nil {
			elsewhere = fmt.Sprintf("!(%s)",
				strings.Join([]string{removals(guarded), inService, protected}, " && "))
		}
		return []admissionv1.MatchCondition{
			condition("in-a-subset", inSubset), condition("elsewhere", elsewhere),
		}
	})
	scope(validatePlacedEvictionName, admissionv1.Ignore, func(guarded string) []admissionv1.MatchCondition {
		return []admissionv1.MatchCondition{
			condition("of-workloadspreads", evictions()), condition("elsewhere", "!("+removals(guarded)+")"),
		}
	})
}

func condition(name, expression string) admissionv1.MatchCondition {
	return admissionv1.MatchCondition{Name: name, Expression: expression}
}

// Expressions about the old pod. A pod that is not in service, or that somebody exempted, can be disrupted
// while the manager is down. Kubelet also sends a deletion for pods that are already being deleted.
const (
	inSubset = "oldObject != null && has(oldObject.metadata.annotations) && '" + pub.MatchedWorkloadSpread +
		"' in oldObject.metadata.annotations"
	inService = "(oldObject != null && !has(oldObject.metadata.deletionTimestamp) && has(oldObject.status.conditions)" +
		" && oldObject.status.conditions.exists(c, c.type == 'Ready' && c.status == 'True'))"
	protected = "!(oldObject != null && has(oldObject.metadata.annotations) && '" + pub.NoProtect +
		"' in oldObject.metadata.annotations" + " && oldObject.metadata.annotations['" + pub.NoProtect +
		"'] in ['1', 't', 'T', 'true', 'TRUE', 'True'])"
)

// asked returns an expression that is true for deletions, for updates of the spec, and for updates of labels
// that take a pod out of service, each if its gate is on. Pods have no generation before Kubernetes 1.33.
func asked(deletes, updates bool) string {
	const updated = "request.operation == 'UPDATE' && (object.spec != oldObject.spec" +
		" || has(object.metadata.labels) && object.metadata.labels.exists(k, k.startsWith('" +
		pub.UnavailablePodPrefix + "')))"
	var operations []string
	if deletes {
		operations = append(operations, "request.operation == 'DELETE'")
	}
	if updates {
		operations = append(operations, updated)
	}
	return strings.Join(operations, " || ")
}
