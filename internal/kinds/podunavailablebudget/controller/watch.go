package controller

import (
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	policyv1beta1 "github.com/afloat-project/afloat/api/policy/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/podunavailablebudget"
	"github.com/afloat-project/afloat/internal/platform/matchconditions"
)

// Watch follows budgets on every replica.
type Watch struct {
	*matchconditions.Follower[*policyv1beta1.PodUnavailableBudget]
	Index *Index
	Guard *Guard

	// memory holds the namespaces whose pods the API server must call the webhooks for.
	memory matchconditions.Memory[string]
}

// NewWatch returns a Watch, which starts to follow budgets when Follow is called.
func NewWatch(mgr manager.Manager, options podunavailablebudget.Options) *Watch {
	owners := NewOwners(mgr.GetAPIReader(), mgr.GetRESTMapper(), clock.RealClock{})
	return newWatch(mgr.GetClient(), mgr.GetAPIReader(), owners, options, time.Now)
}

func newWatch(
	c client.Client, live client.Reader, owners *Owners, options podunavailablebudget.Options,
	now func() time.Time,
) *Watch {
	w := &Watch{Index: &Index{}}
	w.Follower = matchconditions.NewFollower(live, matchconditions.Kind[*policyv1beta1.PodUnavailableBudget]{
		Object: &policyv1beta1.PodUnavailableBudget{},
		List:   &policyv1beta1.PodUnavailableBudgetList{},
		Set:    w.set,
		Delete: w.gone,

		NamesOnly: true, // the scope has only their namespaces
	})
	w.Guard = NewGuard(c, live, w.Index, owners, options, w.Wait, now)
	return w
}

// set stores a version of a budget, and notifies those who wait for it.
func (w *Watch) set(budget *policyv1beta1.PodUnavailableBudget) {
	before := w.Index.Get(client.ObjectKeyFromObject(budget))
	if before != nil && before.UID != budget.UID {
		w.Guard.desk.Forget(before.UID)
	}
	w.Index.Set(budget)
	if before == nil || before.Generation != budget.Generation || before.UID != budget.UID ||
		before.DeletionTimestamp == nil && budget.DeletionTimestamp != nil ||
		before.Status.UnavailableAllowed < budget.Status.UnavailableAllowed ||
		before.Status.ObservedGeneration != budget.Status.ObservedGeneration ||
		before.Status.DesiredAvailable != 0 && budget.Status.DesiredAvailable == 0 {
		w.Guard.tell(budget.Namespace)
	}
}

func (w *Watch) gone(budget *policyv1beta1.PodUnavailableBudget) {
	w.Index.Delete(budget)
	w.Guard.desk.Forget(budget.UID)
	w.Guard.tell(budget.Namespace)
}

// Namespaces returns the namespaces that have budgets, or had some until a moment ago. The API server calls
// the webhooks for disruptions of their pods.
func (w *Watch) Namespaces() []string {
	return w.memory.Recall(func() map[string]string {
		asked := map[string]string{}
		for _, namespace := range w.Index.all() {
			asked[namespace] = namespace
		}
		return asked
	}, w.Guard.now())
}
