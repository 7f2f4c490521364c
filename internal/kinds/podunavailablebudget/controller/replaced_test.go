package controller

import (
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	policyv1beta1 "github.com/afloat-project/afloat/api/policy/v1beta1"
	"github.com/afloat-project/afloat/internal/reconcile/booking"
)

// PUB-087 (part): a manager whose clock is 20 s ahead booked a pod. The booking ended after 20 s, since the pod was not deleted, and
// another pod was booked. A replica whose cache does not show that yet takes the booking for one of less than 2 s.
func TestABookingOfAClockThatIsAheadIsNotRecent(t *testing.T) {
	r := newWorld(1)
	r.withSet(3, 1)
	r.protect("b")
	r.beginOnTime()
	r.rest()
	x, y := r.pods()[0], r.pods()[1]
	r.Pass(time.Minute)
	const ahead = 20 * time.Second
	r.Change(budgetKey("b"), func(o client.Object) {
		s := &o.(*policyv1beta1.PodUnavailableBudget).Status
		s.DisruptedPods = map[string]metav1.Time{x.Name: metav1.NewTime(r.Now().Add(ahead).Truncate(time.Second))}
		s.BookedPods = map[string]types.UID{x.Name: x.UID}
		s.CurrentAvailable, s.UnavailableAllowed = 2, 0
	})
	r.leader.as(func() { r.Deliver(1 << 20) })
	r.Pass(ahead + 500*time.Millisecond)
	r.Change(budgetKey("b"), func(o client.Object) { // counted, and y was booked
		s := &o.(*policyv1beta1.PodUnavailableBudget).Status
		s.DisruptedPods = map[string]metav1.Time{y.Name: metav1.NewTime(r.Now().Truncate(time.Second))}
		s.BookedPods = map[string]types.UID{y.Name: y.UID}
	})
	if answer := r.book(t, x, policyv1beta1.Delete); answer.Allowed {
		t.Errorf("x may go beside y, where one pod may be out of service: %+v", answer.Decision)
	}
}

// PUB-089 (part): a budget is deleted and created anew under its name, which the cache of the replica that is asked does not show yet. It
// reads the new one from the API server, which was taken for no budget at all.
func TestABudgetThatIsReplacedByOneOfItsNameProtects(t *testing.T) {
	r := newWorld(1)
	r.withSet(3, 1)
	r.protect("b")
	r.beginOnTime()
	r.rest()
	r.Remove(budgetKey("b"))
	r.protect("b")
	for _, pod := range r.pods() {
		if _, err := r.ask(t, pod, policyv1beta1.Delete); !errors.Is(err, booking.ErrReplaced) {
			t.Errorf("deletion of %s: got error %v, want %v", pod.Name, err, booking.ErrReplaced)
		}
	}
	r.Deliver(1 << 20)
	r.count()
	if answer := r.book(t, r.pods()[0], policyv1beta1.Delete); !answer.Allowed {
		t.Errorf("once the new budget is known: %+v", answer)
	}
}
