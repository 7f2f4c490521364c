package rollout

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// CS-095 (part): a percentage that gives a whole number of pods gives exactly this number, whether it is
// rounded up or down: errors of floating point do not show.
func TestAPercentageOfAWholeNumberOfPods(t *testing.T) {
	for _, tt := range []struct {
		percent     string
		total, want int
	}{{"16.1%", 1000, 161}, {"32.3%", 1000, 323}, {"64.1%", 1000, 641}, {"64.4%", 250, 161}} {
		for _, up := range []bool{true, false} {
			if got, err := Scaled(intstr.FromString(tt.percent), tt.total, up); err != nil || got != tt.want {
				t.Errorf("%s of %d, rounded up %v: %d, %v, want %d", tt.percent, tt.total, up, got, err, tt.want)
			}
		}
	}
}

// CS-102 (part), CS-103 (part): with U >= 1 only pods that have to be recreated get a surge, with U = 0 also
// those that are updated in place.
func TestSurgeForUpdatesInPlace(t *testing.T) {
	census := Census{Old: Group{Total: 5}, Recreate: 1, InPlace: 3}
	for unavailable, want := range map[int]int{0: 4, 1: 1, 2: 1} {
		got := ComputeScale(census, Limits{Replicas: 5, MaxSurge: 5, MaxUnavailable: unavailable, ScaleMaxUnavailable: Unlimited})
		if diff := cmp.Diff(Scale{Surge: want, Missing: want, Create: want}, got); diff != "" {
			t.Errorf("maxUnavailable %d: %s", unavailable, diff)
		}
	}
}

// IPU-326 (part): if a pod that the partition keeps old has to be mended in place, its surge pod is new.
func TestTheStandInOfAPodThatStaysOldIsNew(t *testing.T) {
	got := ComputeScale(Census{Old: Group{Total: 2}, New: Group{Total: 3}, Stale: 1},
		Limits{Replicas: 5, Partition: 2, MaxSurge: 1, ScaleMaxUnavailable: Unlimited})
	if diff := cmp.Diff(Scale{Surge: 1, Missing: 1, Create: 1}, got); diff != "" {
		t.Error(diff)
	}
}

// CS-114 (part): an old pod that is specified for deletion does not count again as one to be removed; a new
// pod is removed instead of it.
func TestASpecifiedOldPodIsNoneToRemove(t *testing.T) {
	got := ComputeScale(Census{Old: Group{Total: 2, Specified: 1}, New: Group{Total: 6}},
		Limits{Replicas: 5, Partition: 1, ScaleMaxUnavailable: Unlimited})
	if diff := cmp.Diff(Scale{Remove: 2}, got); diff != "" {
		t.Error(diff)
	}
}

// CS-098 (part): new pods that wait for their hook are left out as well as old ones, also when it is asked in
// which direction pods move.
func TestNewPodsInPreparingDeleteAreLeftOut(t *testing.T) {
	if got := ToMove(Census{Old: Group{Total: 2}, New: Group{Total: 3, PreparingDelete: 1}}, Limits{Replicas: 5, Partition: 1}); got != 1 {
		t.Errorf("%d to move to the new revision, want 1", got)
	}
	back := Census{Old: Group{Total: 3, PreparingDelete: 1}, New: Group{Total: 3, Specified: 1}, Rollback: true}
	if got := ToMove(back, Limits{Replicas: 5, Partition: 3}); got != -1 {
		t.Errorf("%d to move, want 1 back", got)
	}
}
