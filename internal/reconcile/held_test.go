package reconcile

import (
	"context"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/workqueue"
	"pgregory.net/rapid"
	ctrl "sigs.k8s.io/controller-runtime"

	policyv1beta1 "github.com/afloat-project/afloat/api/policy/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/disruption"
)

// telling is a Guard that only tells.
type telling struct{ told []func(string) }

func (*telling) Limits(context.Context, []*corev1.Pod) (disruption.Limits, error) { return nil, nil }

func (g *telling) Ask(_ context.Context, pod *corev1.Pod, by disruption.Operation) error {
	if by == policyv1beta1.Delete {
		return ErrStalePlan
	}
	return nil
}

func (g *telling) Tell(do func(string)) { g.told = append(g.told, do) }

// TestWhoComesBackWhenABudgetAllowsMore wakes those of which budgets of the namespace hold pods, and those of
// no namespace that any budget holds, and nobody else (PUB-100 (part), PUB-101 (part)).
func TestWhoComesBackWhenABudgetAllowsMore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h, guard := &heldByBudgets{}, &telling{}
		queue := workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[ctrl.Request](time.Second, time.Minute))
		defer queue.ShutDown()
		if err := h.wake(guard)(context.Background(), queue); err != nil {
			t.Fatalf("asking the guard to tell: %v", err)
		}
		if len(guard.told) != 1 {
			t.Fatalf("callbacks that the guard has: got %d, want 1", len(guard.told))
		}
		namespaces, now := []string{"", "a", "b"}, sets.New[types.NamespacedName]()
		for range rapid.IntRange(0, 12).Draw(t, "passes") {
			name := types.NamespacedName{Namespace: rapid.SampledFrom(namespaces).Draw(t, "namespace"),
				Name: rapid.SampledFrom([]string{"x", "y"}).Draw(t, "name")}
			holds := rapid.Bool().Draw(t, "held")
			h.set(name, holds)
			if now.Delete(name); holds {
				now.Insert(name)
			}
		}
		for _, namespace := range namespaces[1:] {
			guard.told[0](namespace)
			got, want := sets.New[types.NamespacedName](), sets.New[types.NamespacedName]()
			for queue.Len() > 0 {
				request, _ := queue.Get()
				queue.Done(request)
				got.Insert(request.NamespacedName)
			}
			for name := range now {
				if name.Namespace == namespace || name.Namespace == "" {
					want.Insert(name)
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("who comes back for namespace %q (-want +got):\n%s", namespace, diff)
			}
		}
		for _, name := range now.UnsortedList() {
			h.set(name, false)
		}
		if len(h.names) != 0 {
			t.Fatal("of nobody something is kept:", slices.Collect(maps.Keys(h.names)))
		}
	})
}

// TestWithoutAGuardNobodyIsAsked shows that a cluster without budgets works as before, and that what takes no
// pod out of service is not asked about.
func TestWithoutAGuardNobodyIsAsked(t *testing.T) {
	api := &API{}
	limits, err := api.Limits(context.Background(), nil)
	if err != nil {
		t.Errorf("limits without a guard: %v", err)
	}
	if limits != nil {
		t.Errorf("limits without a guard: got %v, want none", limits)
	}
	if err := api.Ask(context.Background(), nil, policyv1beta1.Delete); err != nil {
		t.Errorf("a deletion without a guard: %v", err)
	}
	api.Guard = &telling{}
	for by, want := range map[disruption.Operation]error{"": nil, policyv1beta1.Delete: ErrStalePlan} {
		if err := api.Ask(context.Background(), nil, by); err != want { //nolint:errorlint // it is passed on as it is
			t.Errorf("operation %q with a guard: got %v, want %v", by, err, want)
		}
	}
}
