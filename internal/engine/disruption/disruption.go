// Package disruption defines what plans need to know about budgets: how many pods may still be taken out of
// service, whoever does it. Package internal/kinds/podunavailablebudget enforces the budgets.
package disruption

import (
	corev1 "k8s.io/api/core/v1"

	policyv1beta1 "github.com/afloat-project/afloat/api/policy/v1beta1"
)

// Operation is what is done to a pod; empty means something that does not take it out of service.
type Operation = policyv1beta1.PodUnavailableBudgetOperation

// Limits are what the budgets of some pods allow, as far as known when a plan is made. They are used up by
// one plan; the next plan gets new ones.
type Limits interface {
	// Take counts a pod that the plan takes out of service by the operation. If its budget does not allow
	// that, it counts nothing and returns the reason, with the name of the budget and its numbers.
	Take(pod *corev1.Pod, by Operation) (refusal string)
}
