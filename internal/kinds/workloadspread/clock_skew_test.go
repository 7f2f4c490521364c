package workloadspread

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/workloadspread/workloadspreadtest"
)

// WS-152, WS-174: a time that a clock far ahead has written keeps no place, and no subset, until then; clocks
// may differ a little.
func TestTimesFarAhead(t *testing.T) {
	for name, tt := range map[string]struct {
		ahead time.Duration
		kept  bool
	}{"a little": {20 * time.Second, true}, "a year": {365 * 24 * time.Hour, false}} {
		t.Run(name, func(t *testing.T) {
			then := metav1.NewTime(workloadspreadtest.Clock.Add(tt.ahead))
			before := []appsv1beta1.WorkloadSpreadSubsetStatus{{Name: "a"}}
			before[0].CreatingPods = map[string]metav1.Time{"id": then}
			counted := Count([]SubsetQuota{{"a", 3}}, before, "v", nil, workloadspreadtest.Clock)
			if got := counted.Subsets[0].MissingReplicas == 2; got != tt.kept {
				t.Errorf("missing replicas are 2: got %t, want %t\n%+v", got, tt.kept, counted)
			}
			if (len(counted.Lost) == 0) != tt.kept {
				t.Errorf("no lost: got %t, want %t\n%+v", len(counted.Lost) == 0, tt.kept, counted)
			}
			old := &metav1.Condition{Type: "Schedulable", Status: metav1.ConditionFalse, LastTransitionTime: then}
			c, recovered, _ := nextCondition(old, false, 0, time.Minute, UnschedulableWindow,
				workloadspreadtest.Clock)
			if (c.Status == metav1.ConditionFalse) != tt.kept {
				t.Errorf("the condition is False: got %t, want %t\n%+v", c.Status == metav1.ConditionFalse, tt.kept, c)
			}
			if recovered == tt.kept {
				t.Errorf("recovered: got %t, want another value\n%+v", recovered, c)
			}
		})
	}
}

// WS-152 (part), WS-153 (part): the clock of the manager that counts is minutes ahead of that of a replica,
// or behind it. It took what the replica had just booked for long over, and gave the place away.
func TestABookingIsAsOldAsItIsKnown(t *testing.T) {
	for _, skew := range []time.Duration{4 * time.Minute, -4 * time.Minute, -365 * 24 * time.Hour} {
		for version, deletion := range map[string]bool{"v": false, AllVersions: true} {
			now := workloadspreadtest.Clock
			spread := &appsv1beta1.WorkloadSpread{}
			before := []appsv1beta1.WorkloadSpreadSubsetStatus{{Name: "a"}}
			bookings := map[string]metav1.Time{"p": metav1.NewTime(now.Add(-skew))}
			life, places := CreationTimeout, int32(2)
			if before[0].CreatingPods = bookings; deletion {
				before[0].CreatingPods, before[0].DeletingPods = nil, bookings
				life, places = DeletionTimeout, 3
			}
			if spread.Status.SubsetStatuses = before; version != AllVersions {
				spread.Status.SubsetStatuses = nil
				spread.Status.VersionedSubsetStatuses = map[string][]appsv1beta1.WorkloadSpreadSubsetStatus{version: before}
			}
			known := Note(nil, spread, now)
			count := func(later time.Duration) Counted {
				var pods []Seen
				if deletion {
					pods = []Seen{{Name: "p", Subset: "a", Active: true, Created: now.Add(-time.Hour)}}
				}
				known = Note(known, spread, now.Add(later))
				tally := newTally(pods, nil, now.Add(later))
				tally.known = known
				return tally.count([]SubsetQuota{{"a", 3}}, before, version)
			}
			counted := count(life - time.Second)
			if counted.Subsets[0].MissingReplicas != places {
				t.Errorf("missing replicas of the first subset: got %d, want %d; %s ahead, %q: %+v",
					counted.Subsets[0].MissingReplicas, places, skew,
					version, counted)
			}
			if len(counted.Lost) > 0 {
				t.Errorf("lost: got %v, want none; %s ahead, %q: %+v", counted.Lost, skew, version, counted)
			}
			if counted := count(life + 2*time.Second); len(counted.Lost) != 1 {
				t.Errorf("%s ahead, %q, at its end: %+v", skew, version, counted)
			}
		}
	}
}

// WS-151 (part), WS-152 (part): the clock of the replica that books is 45 s ahead, so that the pod of the booking looks like an earlier
// one of its name. The booking expires all the same, since the cache shows the pod, which may have failed meanwhile.
func TestABookingOfAFastClock(t *testing.T) {
	for name, active := range map[string]bool{"it runs": true, "it has failed": false} {
		t.Run(name, func(t *testing.T) {
			now := workloadspreadtest.BookingTime
			spread := workloadspreadtest.Read(t, `{spec: {subsets: [{name: a, maxReplicas: 1}]}, status: {versionedSubsetStatuses: {versionIgnored: [
		{name: a, replicas: 0, missingReplicas: 1}]}}}`)
			follow(spread, Create(spread, nil, Creation{Key: "web-x", Version: VersionIgnored}, now.Add(45*time.Second)))
			pods := []Seen{{Name: "web-x", Version: VersionIgnored, Subset: "a", Created: now.Add(time.Second), Active: active}}
			known := Note(nil, spread, now)
			for _, later := range []time.Duration{time.Minute, time.Hour} {
				known = Note(known, spread, now.Add(later))
				tally := newTally(pods, nil, now.Add(later))
				tally.known = known
				counted := tally.count([]SubsetQuota{{"a", 1}}, spread.Status.VersionedSubsetStatuses[VersionIgnored], VersionIgnored)
				if a := counted.Subsets[0]; len(a.CreatingPods) > 0 || (a.MissingReplicas == 0) != active || (a.Replicas == 1) != active {
					t.Errorf("%s later: %+v", later, a)
				}
				follow(spread, Decision{List: counted.Subsets})
			}
		})
	}
}
