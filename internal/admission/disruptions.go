package admission

import (
	"fmt"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/admission/certificate"
	"github.com/afloat-project/afloat/internal/platform/features"
	"github.com/afloat-project/afloat/internal/platform/matchconditions"
)

// Entries that call validatePodPath (OPS-060, OPS-061). Two are for pods in subsets of WorkloadSpreads: what
// is done to these is never refused (WS-106). Two are for pods that budgets may protect: while the manager is
// away what is done to these is refused (PUB-080). The leader makes these, so that they are never there
// without their conditions. A request is sent by one of them alone, so that one handler sees all that is to
// be checked (WS-104).
const (
	validatePlacedName         = "vpod.kb.io"
	validatePlacedEvictionName = "vpodeviction.kb.io"
	validatePodName            = "vpod-budget.kb.io"
	validateEvictionName       = "vpodeviction-budget.kb.io"
)

// derivedDisruptions are the entries that the leader makes; none without budgets.
func (o Options) derivedDisruptions() []certificate.Derived {
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
	return []certificate.Derived{
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

// scopeDisruptions says which requests these entries send.
func (o Options) scopeDisruptions(keeping *certificate.Options) {
	namespaces := func() ([]string, bool) {
		if o.Budgets == nil {
			return nil, true
		}
		return o.Budgets.Namespaces(), o.Budgets.Synced()
	}
	scope := func(name string, policy admissionv1.FailurePolicyType,
		conditions func(guarded string) []admissionv1.MatchCondition) {
		keeping.Scopes[name] = certificate.Scope{Policy: policy, Conditions: func() ([]admissionv1.MatchCondition, bool) {
			names, known := namespaces()
			if o.Spreads != nil && !o.Spreads.Synced() {
				known = false
			}
			return conditions(matchconditions.Within(names)), known
		},
		}
	}
	condition := func(name, expression string) admissionv1.MatchCondition {
		return admissionv1.MatchCondition{Name: name, Expression: expression}
	}
	deletes, updates := o.Gates.Enabled(
		features.PodUnavailableBudgetDeleteGate,
	), o.Gates.Enabled(features.PodUnavailableBudgetUpdateGate)
	removals := func(guarded string) string { // nobody asks about these without the gate
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
		evictions = o.Spreads.Scope.Evictions
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

// Expressions about the pod as it is before. A pod that is out of service, or that somebody has freed, can be
// disrupted while the manager is away (PUB-086, rules 1 and 2); kubelet ends deleted pods by a deletion too.
const (
	inSubset = "oldObject != null && has(oldObject.metadata.annotations) && '" + pub.MatchedWorkloadSpread +
		"' in oldObject.metadata.annotations"
	inService = "(oldObject != null && !has(oldObject.metadata.deletionTimestamp) && has(oldObject.status.conditions)" +
		" && oldObject.status.conditions.exists(c, c.type == 'Ready' && c.status == 'True'))"
	protected = "!(oldObject != null && has(oldObject.metadata.annotations) && '" + pub.NoProtect +
		"' in oldObject.metadata.annotations" + " && oldObject.metadata.annotations['" + pub.NoProtect +
		"'] in ['1', 't', 'T', 'true', 'TRUE', 'True'])"
)

// asked is true for deletions, and for updates of a spec, or of labels that take a pod out of service, each
// with its gate. Where pods have a generation it tells whether the spec changes.
func asked(deletes, updates bool) string {
	const updated = "request.operation == 'UPDATE' && (!has(object.metadata.generation) || !has(oldObject.metadata.generation)" +
		" || object.metadata.generation != oldObject.metadata.generation" +
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
