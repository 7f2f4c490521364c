package podunavailablebudget

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	policyv1beta1 "github.com/afloat-project/afloat/api/policy/v1beta1"
)

// TestABookingOfAFormerPodDoesNotHoldItsSuccessor: db-0 was deleted and made again under its name, as a StatefulSet
// does. The booking names the UID of the former one (PUB-060), and so does not hold the new one (PUB-061), also where the
// clock of who booked is some seconds ahead of the API server, or both fall into one second.
func TestABookingOfAFormerPodDoesNotHoldItsSuccessor(t *testing.T) {
	for name, ahead := range map[string]time.Duration{"in one second": 0, "a clock that is 10 s ahead": 10 * time.Second} {
		t.Run(name, func(t *testing.T) {
			former, other := servingPod("db-0", noon.Add(-time.Hour)), servingPod("db-1", noon.Add(-time.Hour))
			budget := &policyv1beta1.PodUnavailableBudget{}
			budget.Status = policyv1beta1.PodUnavailableBudgetStatus{DesiredAvailable: 1, TotalReplicas: 2, CurrentAvailable: 2, UnavailableAllowed: 1}
			ledger := NewLedger(NewRules(budget), Options{Deletes: true}, noon.Add(ahead))
			if d := ledger.Book(former, policyv1beta1.Delete); !d.Booked {
				t.Fatalf("%+v", d)
			}
			budget.Status = ledger.status
			seen := Note(nil, budget, noon)

			made := noon // it went at once, and its successor was made in the same second, or some seconds later
			if ahead > 0 {
				made = noon.Add(4 * time.Second)
			}
			next := servingPod("db-0", made)
			next.UID = types.UID("another")
			for _, after := range []time.Duration{8 * time.Second, 25 * time.Second} {
				now := noon.Add(after)
				seen = Note(seen, budget, now)
				plan := Make(Snapshot{Rules: NewRules(budget), Pods: []*corev1.Pod{next, other}, Now: now, Seen: seen,
					Workloads: []Workload{{Replicas: new(int32(2))}}})
				if plan.Status.CurrentAvailable != 2 {
					t.Errorf("after %s both pods serve, and %d counts: %v", after, plan.Status.CurrentAvailable, plan.Why)
				}
				if len(plan.NotDeleted) > 0 {
					t.Errorf("after %s pod %s (%s), which nobody wanted to delete, is told that its deletion has not come", after,
						plan.NotDeleted[0].Name, plan.NotDeleted[0].UID)
				}
			}
		})
	}
}
