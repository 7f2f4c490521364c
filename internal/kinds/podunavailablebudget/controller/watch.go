package controller

import (
	"context"
	"slices"
	"sync"
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
	Index *Index
	Guard *Guard

	budgets *matchconditions.Follower[*policyv1beta1.PodUnavailableBudget]
	mu      sync.Mutex
	// memory are the namespaces of which the API server asks.
	memory matchconditions.Memory[string]
}

// NewWatch returns what follows budgets, from Follow on.
func NewWatch(mgr manager.Manager, options podunavailablebudget.Options) *Watch {
	owners := NewOwners(mgr.GetAPIReader(), mgr.GetRESTMapper(), clock.RealClock{})
	return newWatch(mgr.GetClient(), mgr.GetAPIReader(), owners, options, time.Now)
}

func newWatch(
	c client.Client, live client.Reader, owners *Owners, options podunavailablebudget.Options,
	now func() time.Time,
) *Watch {
	w := &Watch{Index: &Index{}}
	w.Guard = NewGuard(c, live, w.Index, owners, options,
		func(ctx context.Context) error { return w.budgets.Wait(ctx) }, now)
	w.budgets = matchconditions.NewFollower(w.set, w.gone,
		func(old, budget *policyv1beta1.PodUnavailableBudget) bool { return old.UID != budget.UID })
	return w
}

// set keeps a version of a budget, and tells who waits for it.
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

// Follow starts to follow budgets once the manager runs.
func (w *Watch) Follow(ctx context.Context, mgr manager.Manager) error {
	return w.budgets.Follow(ctx, mgr, &policyv1beta1.PodUnavailableBudget{})
}

// Absent says that the kind is not served, so that there are no budgets. Follow is called when it is.
func (w *Watch) Absent() { w.budgets.Absent() }

// Changed has a value when Namespaces may have changed.
func (w *Watch) Changed() <-chan struct{} { return w.budgets.Changed() }

// Synced tells whether all budgets are known that there were at the start.
func (w *Watch) Synced() bool { return w.budgets.Synced() }

// Namespaces are those that have budgets, or had until a moment ago: what is done to their pods is sent to
// the webhooks.
func (w *Watch) Namespaces() []string {
	asked := map[string]string{}
	for _, namespace := range w.Index.all() {
		asked[namespace] = namespace
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.memory.Recall(asked, w.Guard.now()))
}
