package podunavailablebudget

import (
	"k8s.io/apimachinery/pkg/util/sets"

	policyv1beta1 "github.com/afloat-project/afloat/api/policy/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
)

// Operations returns the operations that the budget protects from: those of its field, or else of its
// annotation, or else deletions, updates and evictions (PUB-012). An annotation that cannot be parsed is
// ignored.
func Operations(
	budget *policyv1beta1.PodUnavailableBudget,
) sets.Set[policyv1beta1.PodUnavailableBudgetOperation] {
	operations := budget.Spec.ProtectOperations
	if len(operations) == 0 {
		operations, _ = policyv1beta1.ParseBudgetOperations(budget.Annotations[pub.BudgetOperations])
	}
	if len(operations) == 0 {
		return sets.New(policyv1beta1.Delete, policyv1beta1.Update, policyv1beta1.Evict)
	}
	return sets.New(operations...)
}

// TotalOverride returns the number of pods that the budget expects regardless of the workloads, and whether
// there is one: that of its field, or else of its annotation (PUB-013). An annotation that cannot be parsed
// is ignored.
func TotalOverride(budget *policyv1beta1.PodUnavailableBudget) (int32, bool) {
	total := budget.Spec.ProtectTotalReplicas
	if total == nil {
		total, _ = policyv1beta1.ParseBudgetTotalReplicas(budget.Annotations[pub.BudgetTotalReplicas])
	}
	if total == nil {
		return 0, false
	}
	return *total, true
}
