package controller

import (
	"cmp"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	policyv1beta1 "github.com/afloat-project/afloat/api/policy/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/podunavailablebudget"
)

// Index holds the rules of budgets by namespace. The zero value is empty. It may be used by many at once.
type Index struct {
	mu         sync.RWMutex
	namespaces map[string][]*podunavailablebudget.Rules
}

// Set adds or replaces a budget. Its rules are compiled anew only if it says something else.
func (x *Index) Set(budget *policyv1beta1.PodUnavailableBudget) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.namespaces == nil {
		x.namespaces = map[string][]*podunavailablebudget.Rules{}
	}
	var rules *podunavailablebudget.Rules
	list := slices.DeleteFunc(slices.Clone(x.namespaces[budget.Namespace]),
		func(r *podunavailablebudget.Rules) bool {
			if r.Budget.Name != budget.Name {
				return false
			}
			if r.Same(budget) {
				rules = r.With(budget)
			}
			return true
		})
	if rules == nil {
		rules = podunavailablebudget.NewRules(budget)
	}
	list = append(list, rules)
	slices.SortFunc(list, func(a, b *podunavailablebudget.Rules) int {
		return cmp.Compare(a.Budget.Name, b.Budget.Name)
	})
	x.namespaces[budget.Namespace] = list // others may read the former one
}

// Delete drops a budget.
func (x *Index) Delete(budget *policyv1beta1.PodUnavailableBudget) {
	x.mu.Lock()
	defer x.mu.Unlock()
	list := slices.DeleteFunc(slices.Clone(x.namespaces[budget.Namespace]),
		func(r *podunavailablebudget.Rules) bool {
			return r.Budget.Name == budget.Name
		})
	if len(list) == 0 {
		delete(x.namespaces, budget.Namespace)
		return
	}
	x.namespaces[budget.Namespace] = list
}

// In returns the budgets of a namespace, by name.
func (x *Index) In(namespace string) []*podunavailablebudget.Rules {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.namespaces[namespace]
}

// Get returns a budget; nil if there is none.
func (x *Index) Get(key types.NamespacedName) *policyv1beta1.PodUnavailableBudget {
	for _, r := range x.In(key.Namespace) {
		if r.Budget.Name == key.Name {
			return r.Budget
		}
	}
	return nil
}

// all are the namespaces that have budgets.
func (x *Index) all() []string {
	x.mu.RLock()
	defer x.mu.RUnlock()
	names := make([]string, 0, len(x.namespaces))
	for name := range x.namespaces {
		names = append(names, name)
	}
	return names
}
