package controller

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/afloat-project/afloat/internal/kinds/workloadspread"
	"github.com/afloat-project/afloat/internal/kinds/workloadspread/workloadspreadtest"
)

// TestVersionsThatNobodyCounts: nor do the lists of former versions stay for ever, each of which a rollout
// leaves behind (WS-155).
func TestVersionsThatNobodyCounts(t *testing.T) {
	s := newBookServer(t, workloadspreadtest.Read(t, two))
	b, spread := s.behind(t, &standing{})
	now := workloadspreadtest.BookingTime
	b.now = func() time.Time { return now }
	for version := range 40 {
		now = now.Add(time.Hour)
		for i := range 2 {
			if version > 0 { // a rolling update: one pod of the former version goes for each that comes
				former := workloadspread.Deletion{Name: fmt.Sprintf("web-%d-%d", version-1, i), Version: fmt.Sprint(version - 1), Subset: "a",
					Booking: fmt.Sprintf("id-%d-%d", version-1, i)}
				if _, err := b.Delete(t.Context(), spread, former); err != nil {
					t.Fatal(err)
				}
			}
			d, err := b.Create(t.Context(), spread, workloadspread.Creation{Key: fmt.Sprintf("id-%d-%d", version, i), Generated: true,
				Version: fmt.Sprint(version)}, prepared)
			if err != nil {
				t.Fatalf("unexpected error: %v\n%+v", err, d)
			} else if d.Subset == nil {
				t.Fatalf("subset: got nil, want a value\n%+v\n%v", d, err)
			} else if d.Subset.Name != "a" {
				t.Fatalf("name of the subset: got %q, want %q\n%+v\n%v", d.Subset.Name, "a", d, err)
			}
		}
	}
	lists := s.stored(t).Status.VersionedSubsetStatuses
	if len(lists) > 5 {
		t.Errorf("number of lists: got %d, want at most 5; %d lists: %v", len(lists), len(lists),
			workloadspreadtest.Keys(lists))
	}
	if lists["other"] == nil {
		t.Errorf(`list other: got nil, want a value; %d lists: %v`, len(lists), workloadspreadtest.Keys(lists))
	}
	// What is there still has pods, although its bookings are old.
	now = now.Add(24 * time.Hour)
	if _, err := b.Create(t.Context(), spread, workloadspread.Creation{Key: "late", Version: "another"}, prepared); err != nil {
		t.Fatal(err)
	}
	if list := s.stored(t).Status.VersionedSubsetStatuses["39"]; list == nil {
		t.Error("version 39 has no status any more")
	} else if len(list[0].CreatingPods) != 2 {
		t.Errorf("bookings of version 39: got %d, want 2\n%+v", len(list[0].CreatingPods), list)
	}
	b.Forget(types.UID("u1"))
}
