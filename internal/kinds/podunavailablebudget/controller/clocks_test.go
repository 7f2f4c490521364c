package controller

import (
	"testing"
	"time"

	policyv1beta1 "github.com/afloat-project/afloat/api/policy/v1beta1"
)

// TestABookingOfAManagerWhoseClockIsBehindStays: the clock of the manager that counts is a minute ahead of
// that of a replica. It took what the replica had just booked for long over and let another pod go
// (PUB-061 (part), PUB-062 (part)).
func TestABookingOfAManagerWhoseClockIsBehindStays(t *testing.T) {
	for by, life := range map[operation]time.Duration{policyv1beta1.Delete: 20 * time.Second, policyv1beta1.Update: 10 * time.Second} {
		for _, skew := range []time.Duration{time.Minute, -time.Minute} {
			r := newWorld(1)
			r.options.Updates = true
			r.withSet(3, 1)
			r.protect("b", func(b *policyv1beta1.PodUnavailableBudget) { b.Spec.ProtectOperations = policyv1beta1.BudgetOperations })
			r.beginOnTime()
			r.rest()
			pods := r.pods()
			if answer := r.book(t, pods[0], by); !answer.Booked {
				t.Fatalf("%s: booked: got false, want true\n%+v", by, answer)
			}
			r.leader.skew = skew // what is booked is of a replica whose clock is right
			for begin := r.Now(); r.Now().Sub(begin) < life-2*time.Second; {
				r.Pass(500 * time.Millisecond)
				r.count()
				s := r.budget("b").Status
				if s.CurrentAvailable != 2 {
					t.Fatalf("available pods: got %d, want 2; %s, %s ahead, after %s: %+v", s.CurrentAvailable, by, skew,
						r.Now().Sub(begin), s)
				}
				if s.UnavailableAllowed != 0 {
					t.Fatalf("pods that may become unavailable: got %d, want 0; %s, %s ahead, after %s: %+v",
						s.UnavailableAllowed, by, skew, r.Now().Sub(begin), s)
				}
			}
			r.Pass(time.Second + life)
			r.count()
			s := r.budget("b").Status
			if len(s.DisruptedPods)+len(s.UnavailablePods) > 0 {
				t.Errorf("number of disrupted pods and unavailable pods: got %d, want 0; %s, %s ahead, at the end: %+v",
					len(s.DisruptedPods)+len(s.UnavailablePods), by, skew, s)
			}
			if s.UnavailableAllowed != 1 {
				t.Errorf("pods that may become unavailable: got %d, want 1; %s, %s ahead, at the end: %+v",
					s.UnavailableAllowed, by, skew, s)
			}
		}
	}
}
