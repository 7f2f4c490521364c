package workloadspread

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/workloadspread/workloadspreadtest"
)

// TestBookingsThatNobodyCounts: pods come and go for days while no controller counts, since it cannot tell
// the replicas or no manager leads. The status stays small, or no write would be taken in the end and pods be
// refused; and subsets are filled as if every booking were there still (WS-150).
func TestBookingsThatNobodyCounts(t *testing.T) {
	spread := workloadspreadtest.Read(t, `{spec: {subsets: [{name: a, maxReplicas: 5}, {name: b}]}, status: {versionedSubsetStatuses: {versionIgnored: [
		{name: a, replicas: 5, missingReplicas: 0}, {name: b, replicas: 0, missingReplicas: -1}]}}}`)
	now, most := workloadspreadtest.BookingTime, 0
	type pod struct{ name, id string }
	var pods []pod
	for i := range 5 {
		pods = append(pods, pod{name: fmt.Sprintf("old-%d", i)})
	}
	for i := range 5000 {
		now = now.Add(time.Minute)
		// the oldest pod goes, and another one comes
		follow(spread, Delete(spread, nil, Deletion{Name: pods[0].name, Version: VersionIgnored, Subset: "a", Booking: pods[0].id}, now))
		pods = append(pods[1:], pod{name: fmt.Sprintf("web-%d", i), id: fmt.Sprintf("id-%d", i)})
		if i%7 == 0 { // by its name, for once
			pods[4].id = ""
		}
		creation := Creation{Key: pods[4].id, Generated: true, Version: VersionIgnored}
		if pods[4].id == "" {
			creation.Key, creation.Generated = pods[4].name, false
		}
		d := Create(spread, nil, creation, now)
		if follow(spread, d); d.Subset == nil || d.Subset.Name != "a" {
			t.Fatalf("after %d pods %s gets %+v, want subset a: %+v", i, creation.Key, d.Subset, spread.Status)
		}
		most = max(most, workloadspreadtest.Bookings(spread.Status.VersionedSubsetStatuses[VersionIgnored]))
	}
	if most > 100 {
		t.Errorf("%d bookings", most)
	}
	if d := Create(spread, nil, Creation{Key: "one-more", Version: VersionIgnored}, now); d.Subset == nil {
		t.Error("subset: got nil, want a value")
	} else if d.Subset.Name != "b" {
		t.Errorf("name of the subset: got %q, want %q; a sixth pod gets into %+v", d.Subset.Name, "b", d.Subset)
	}
}

// TestFreshBookingsAreKept: what is booked in a burst stays until somebody had the time to count it (WS-152,
// WS-153).
func TestFreshBookingsAreKept(t *testing.T) {
	spread := workloadspreadtest.Read(t, `{spec: {subsets: [{name: a, maxReplicas: 900}]}, status: {versionedSubsetStatuses: {versionIgnored: [{name: a, replicas: 0, missingReplicas: 900}]}}}`)
	for i := range 600 {
		follow(spread, Create(spread, nil, Creation{Key: fmt.Sprintf("id-%d", i), Generated: true, Version: VersionIgnored},
			workloadspreadtest.BookingTime.Add(time.Duration(i)*500*time.Millisecond)))
	}
	a := spread.Status.VersionedSubsetStatuses[VersionIgnored][0]
	if len(a.CreatingPods) != 600 {
		t.Errorf("number of pods being created: got %d, want 600", len(a.CreatingPods))
	}
	if a.MissingReplicas != 300 {
		t.Errorf("missing replicas: got %d, want 300", a.MissingReplicas)
	}
}

// TestSettledBookingsFreeNoPlace: whatever the bookings are, settling old ones leaves as many places as there
// were, and those that are not old (WS-150).
func TestSettledBookingsFreeNoPlace(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		names := []string{"a", "b", "c", "d", "e", "f"}
		draw := func(what string) map[string]metav1.Time {
			bookings := map[string]metav1.Time{}
			for _, name := range rapid.SliceOfDistinct(rapid.SampledFrom(names), rapid.ID[string]).Draw(r, what) {
				bookings[name] = metav1.NewTime(workloadspreadtest.BookingTime.Add(-time.Duration(rapid.IntRange(0, 20).Draw(r,
					"minutes")) * time.Minute))
			}
			return bookings
		}
		s := appsv1beta1.WorkloadSpreadSubsetStatus{Name: "a"}
		s.CreatingPods, s.DeletingPods = draw("coming"), draw("going")
		s.Replicas = rapid.Int32Range(int32(len(names)), 10).Draw(r, "replicas")
		before := missing(&s.WorkloadSpreadSubsetCounters, 100)
		most := rapid.IntRange(0, 3).Draw(r, "most")
		settle(&s, most, workloadspreadtest.BookingTime)
		if after := missing(&s.WorkloadSpreadSubsetCounters, 100); after != before {
			r.Errorf("%d were missing, %d are: %+v", before, after, s)
		}
		if n := len(uncounted(s.CreatingPods, s.DeletingPods, most, workloadspreadtest.BookingTime)) + len(uncounted(s.DeletingPods, nil, most,
			workloadspreadtest.BookingTime)); n > 0 {
			r.Errorf("%d old bookings stay: %+v", n, s)
		}
	})
}

// WS-153 (part): nobody counts for eleven minutes, and 40 deletions were refused. The oldest of them are not settled as if they had
// happened.
func TestRefusedDeletionsThatNobodyCounts(t *testing.T) {
	now := workloadspreadtest.BookingTime
	var going []string
	for i := range 40 {
		going = append(going, fmt.Sprintf(`p-%d: "%s"`, i, now.Add(-11*time.Minute).UTC().Format(time.RFC3339)))
	}
	spread := workloadspreadtest.Read(t, `{spec: {subsets: [{name: a, maxReplicas: 40}, {name: b}]}, status: {versionedSubsetStatuses: {versionIgnored: [
		{name: a, replicas: 40, missingReplicas: 40, deletingPods: {`+strings.Join(going, ", ")+`}}, {name: b, replicas: 0, missingReplicas: -1}]}}}`)
	more, asked := 0, 0
	for i := range 10 {
		d := asks(spread, nil, now, func(string) bool { asked++; return false }, func(l *Ledger) (Decision, func()) {
			return l.Create(Creation{Key: fmt.Sprintf("id-%d", i), Generated: true, Version: VersionIgnored})
		})
		if subsetOf(t, d) == "a" {
			more++
		}
	}
	if more > 0 {
		t.Errorf("all 40 pods of subset a of 40 are active, and it gets %d more; asked %d times", more, asked)
	}
}
