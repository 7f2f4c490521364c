// Package disruption is what plans know of budgets: how many pods may still be taken out of service, whoever
// does it. Who keeps the budgets stands in internal/kinds/podunavailablebudget.
package disruption

import (
	corev1 "k8s.io/api/core/v1"

	policyv1beta1 "github.com/afloat-project/afloat/api/policy/v1beta1"
)

// Operation is what is done to a pod; empty is nothing that takes it out of service.
type Operation = policyv1beta1.PodUnavailableBudgetOperation

// Limits are what the budgets of some pods allow, as far as is known when a plan is made. One plan uses them
// up; the next one gets others.
type Limits interface {
	// Take counts a pod that the plan takes out of service by the operation. If its budget does not allow
	// that it counts nothing, and says why, with the name of the budget and its numbers.
	Take(pod *corev1.Pod, by Operation) (refusal string)
}
