package controller

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/clock"

	policyv1beta1 "github.com/afloat-project/afloat/api/policy/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/readiness"
	"github.com/afloat-project/afloat/internal/engine/workloadkind"
	"github.com/afloat-project/afloat/internal/kinds/podunavailablebudget"
	"github.com/afloat-project/afloat/internal/reconcile"
)

// Rehearsed holds the budgets of a rehearsal: a Guard that books like that of the manager, and numbers that
// follow the pods.
type Rehearsed struct{ watch *Watch }

// NewRehearsed returns budgets that are read and booked through an API in memory. Of the objects above the
// controllers of pods, only those that the API holds are known.
func NewRehearsed(api *reconcile.API, options podunavailablebudget.Options) *Rehearsed {
	mapper := meta.NewDefaultRESTMapper(nil)
	for _, kind := range followed {
		mapper.Add(workloadkind.Of(kind).GroupVersionKind(), meta.RESTScopeNamespace)
	}

	owners := NewOwners(api.Live, mapper, clock.RealClock{})
	owners.partial = true
	watch := newWatch(api.Client, api.Live, owners, options, api.Now)
	watch.Absent()
	return &Rehearsed{watch}
}

// Guard returns the Guard that is asked before pods are taken out of service.
func (r *Rehearsed) Guard() reconcile.Guard { return r.watch.Guard }

// Follow adds or replaces a version of a budget.
func (r *Rehearsed) Follow(budget *policyv1beta1.PodUnavailableBudget) { r.watch.set(budget) }

// Count returns the status of a budget for the pods of a stage. totals has the expected number of pods for
// each budget, as in the cluster. If it lacks the budget, Count adds an entry with the number of active pods
// that the budget covers now. more has changes of that number for each controller, which apply if the budget
// covers pods of it. after is when to count again although nothing happens; 0 means not at all.
func (r *Rehearsed) Count(
	ctx context.Context, budget *policyv1beta1.PodUnavailableBudget, pods []*corev1.Pod,
	totals, more map[types.UID]int32,
) (status *policyv1beta1.PodUnavailableBudgetStatus, after time.Duration, err error) {
	s := podunavailablebudget.Snapshot{Rules: r.watch.Guard.rulesOf(budget), Now: r.watch.Guard.now()}
	controllers := sets.New[types.UID]()
	for _, pod := range pods {
		if pod.Namespace != budget.Namespace {
			continue
		}
		chain, err := r.watch.Guard.owners.Above(ctx, pod)
		if err != nil {
			return nil, 0, fmt.Errorf("finding out what controls pod %s: %w", pod.Name, err)
		}
		if len(covering([]*podunavailablebudget.Rules{s.Rules}, pod, chain)) > 0 {
			s.Pods = append(s.Pods, pod)
			controllers.Insert(chain.UIDs...)
		}
	}

	total, known := totals[budget.UID]
	if !known {
		for _, pod := range s.Pods {
			if readiness.Active(pod) {
				total++
			}
		}
		totals[budget.UID] = total
	}

	for uid := range controllers {
		total += more[uid]
	}

	total = max(total, 0)
	s.Workloads = []podunavailablebudget.Workload{{Replicas: &total}}
	plan := podunavailablebudget.Make(s)
	return &plan.Status, plan.After, nil
}
