package podunavailablebudget

import (
	"k8s.io/apimachinery/pkg/util/sets"

	policyv1beta1 "github.com/afloat-project/afloat/api/policy/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
)

// Operations are those that the budget protects from: what its field says, else its annotation, else
// deletions, updates and evictions (PUB-012). An annotation that cannot be read counts as none.
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

// TotalOverride is the number of pods that the budget expects instead of what workloads say: that of its
// field, else of its annotation (PUB-013). The second value tells whether there is one. An annotation that
// cannot be read counts as none.
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
