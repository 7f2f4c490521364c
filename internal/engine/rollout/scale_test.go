package rollout

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// CS-128: the table of the specification, each row followed to its end. A step has the pods that are found
// and what has to be done.
func TestTheTableOfTheSpecificationIsFollowedToItsEnd(t *testing.T) {
	type step struct {
		census Census
		move   int
		scale  Scale
	}
	tests := map[string]struct {
		spec   Spec
		limits Limits
		steps  []step
	}{
		"5, P 3, U 1, S 0, 5 old available: 2 to update, 1 at a time": {
			Spec{Replicas: 5, Partition: number(3), MaxUnavailable: number(1)},
			Limits{Replicas: 5, Partition: 3, MaxUnavailable: 1, ScaleMaxUnavailable: Unlimited},
			[]step{
				{Census{Old: Group{Total: 5}, Recreate: 5}, 2, Scale{}},
				{Census{Old: Group{Total: 4}, New: Group{Total: 1, Unavailable: 1}, Recreate: 4}, 1, Scale{Unavailable: 1}},
				{Census{Old: Group{Total: 4}, New: Group{Total: 1}, Recreate: 4}, 1, Scale{}},
				{Census{Old: Group{Total: 3}, New: Group{Total: 2}, Recreate: 3}, 0, Scale{}},
			}},
		"5, P 3, U 1, S 1, 5 old available, recreate: 1 new pod created, then 1 old recreated": {
			Spec{Replicas: 5, Partition: number(3), MaxUnavailable: number(1), MaxSurge: number(1)},
			Limits{Replicas: 5, Partition: 3, MaxUnavailable: 1, MaxSurge: 1, ScaleMaxUnavailable: Unlimited},
			[]step{
				{Census{Old: Group{Total: 5}, Recreate: 5}, 2, Scale{Surge: 1, Missing: 1, Create: 1}},
				{Census{Old: Group{Total: 5}, New: Group{Total: 1}, Recreate: 5}, 1, Scale{Surge: 1}},
				{Census{Old: Group{Total: 5, Specified: 1}, New: Group{Total: 1}, Recreate: 5}, 1, Scale{Surge: 1}},
				{Census{Old: Group{Total: 4}, New: Group{Total: 1}, Recreate: 4}, 1, Scale{Surge: 1, Missing: 1, Create: 1}},
				{Census{Old: Group{Total: 4}, New: Group{Total: 2}, Recreate: 4}, 0, Scale{Remove: 1, RemoveOld: 1}},
			}},
		"5, P 99%, U 3, S 2, 5 old available, recreate: 1 new created, 1 old removed": {
			Spec{Replicas: 5, Partition: text("99%"), MaxUnavailable: number(3), MaxSurge: number(2)},
			Limits{Replicas: 5, Partition: 4, MaxUnavailable: 3, MaxSurge: 2, ScaleMaxUnavailable: Unlimited},
			[]step{
				{Census{Old: Group{Total: 5}, Recreate: 5}, 1, Scale{Surge: 1, Missing: 1, Create: 1}},
				{Census{Old: Group{Total: 5}, New: Group{Total: 1}, Recreate: 5}, 0, Scale{Remove: 1, RemoveOld: 1}},
			}},
		"5, P 99%, U 30%, S 30%: S 2, U 1": {
			Spec{Replicas: 5, Partition: text("99%"), MaxUnavailable: text("30%"), MaxSurge: text("30%")},
			Limits{Replicas: 5, Partition: 4, MaxUnavailable: 1, MaxSurge: 2, ScaleMaxUnavailable: Unlimited},
			[]step{{Census{Old: Group{Total: 5}, Recreate: 5}, 1, Scale{Surge: 1, Missing: 1, Create: 1}}}},
		"5, P 4, U 2, S 0, 1 old 4 new, rollback gate on: 3 go back": {
			Spec{Replicas: 5, Partition: number(4), MaxUnavailable: number(2)},
			Limits{Replicas: 5, Partition: 4, MaxUnavailable: 2, ScaleMaxUnavailable: Unlimited},
			[]step{{Census{Old: Group{Total: 1}, New: Group{Total: 4}, Rollback: true}, -3, Scale{}}}},
		"5, P 4, U 1, S 0, 1 old 4 new, rollback gate off: nothing": {
			Spec{Replicas: 5, Partition: number(4), MaxUnavailable: number(1)},
			Limits{Replicas: 5, Partition: 4, MaxUnavailable: 1, ScaleMaxUnavailable: Unlimited},
			[]step{{Census{Old: Group{Total: 1}, New: Group{Total: 4}}, 0, Scale{}}}},
		"5, P 0, U 1, S 0, 5 new, 2 specified: delete 1, create 1, wait for it, delete the other": {
			Spec{Replicas: 5, MaxUnavailable: number(1)},
			Limits{Replicas: 5, MaxUnavailable: 1, ScaleMaxUnavailable: Unlimited},
			[]step{
				{Census{New: Group{Total: 5, Specified: 2}, OneRevision: true}, 0, Scale{}},
				{Census{New: Group{Total: 4, Specified: 1}, OneRevision: true}, 0, Scale{Missing: 1, Create: 1}},
				{Census{New: Group{Total: 5, Specified: 1, Unavailable: 1}, OneRevision: true}, 0, Scale{Unavailable: 1}},
				{Census{New: Group{Total: 5, Specified: 1}, OneRevision: true}, 0, Scale{}},
			}},
		"5, P 0, U 0, S 1, 5 new, 1 specified: create 1, when available delete the specified": {
			Spec{Replicas: 5, MaxUnavailable: number(0), MaxSurge: number(1)},
			Limits{Replicas: 5, MaxSurge: 1, ScaleMaxUnavailable: Unlimited},
			[]step{
				{Census{New: Group{Total: 5, Specified: 1}, OneRevision: true}, 0, Scale{Surge: 1, Missing: 1, Create: 1}},
				{Census{New: Group{Total: 6, Specified: 1, Unavailable: 1}, OneRevision: true}, 0, Scale{Surge: 1, Unavailable: 1}},
				{Census{New: Group{Total: 6, Specified: 1}, OneRevision: true}, 0, Scale{Surge: 1}},
				{Census{New: Group{Total: 5}, OneRevision: true}, 0, Scale{}},
			}},
		"5, P 0, U 1, S 0, none, SU 2: 2 created; more as they become available": {
			Spec{Replicas: 5, MaxUnavailable: number(1), ScaleMaxUnavailable: number(2)},
			Limits{Replicas: 5, MaxUnavailable: 1, ScaleMaxUnavailable: 2},
			[]step{
				{Census{OneRevision: true}, 0, Scale{Missing: 5, Create: 2}},
				{Census{New: Group{Total: 2, Unavailable: 2}, OneRevision: true}, 0, Scale{Missing: 3, Unavailable: 2}},
				{Census{New: Group{Total: 2, Unavailable: 1}, OneRevision: true}, 0, Scale{Missing: 3, Create: 1, Unavailable: 1}},
				{Census{New: Group{Total: 4}, OneRevision: true}, 0, Scale{Missing: 1, Create: 1}},
			}},
		"1, P 0, U 10%, S 50%, 1 old, recreate: S 1, U 0, new first, then old removed": {
			Spec{Replicas: 1, MaxUnavailable: text("10%"), MaxSurge: text("50%")},
			Limits{Replicas: 1, MaxSurge: 1, ScaleMaxUnavailable: Unlimited},
			[]step{
				{Census{Old: Group{Total: 1}, Recreate: 1}, 1, Scale{Surge: 1, Missing: 1, Create: 1}},
				{Census{Old: Group{Total: 1}, New: Group{Total: 1, Unavailable: 1}, Recreate: 1}, 0,
					Scale{Remove: 1, RemoveOld: 1, Unavailable: 1}},
				{Census{Old: Group{Total: 1}, New: Group{Total: 1}, Recreate: 1}, 0, Scale{Remove: 1, RemoveOld: 1}},
			}},
		"2, P 2, U 0, S 1, 2 old available, 1 specified: its successor is old, and nothing is to be updated (CS-102)": {
			Spec{Replicas: 2, Partition: number(2), MaxUnavailable: number(0), MaxSurge: number(1)},
			Limits{Replicas: 2, Partition: 2, MaxSurge: 1, ScaleMaxUnavailable: Unlimited},
			[]step{
				{Census{Old: Group{Total: 2, Specified: 1}, InPlace: 1}, 0,
					Scale{Surge: 1, SurgeOld: 1, Missing: 1, Create: 1, CreateOld: 1}},
				{Census{Old: Group{Total: 3, Specified: 1}, InPlace: 2}, 0, Scale{Surge: 1, SurgeOld: 1}},
			}},
		"2, P 0, U 0, S 1, 2 old available, in place: 1 created, both updated one by one, the surge pod removed (CS-102, CS-103)": {
			Spec{Replicas: 2, MaxUnavailable: number(0), MaxSurge: number(1)},
			Limits{Replicas: 2, MaxSurge: 1, ScaleMaxUnavailable: Unlimited},
			[]step{
				{Census{Old: Group{Total: 2}, InPlace: 2}, 2, Scale{Surge: 1, Missing: 1, Create: 1}},
				{Census{Old: Group{Total: 2}, New: Group{Total: 1}, InPlace: 2}, 2, Scale{Surge: 1}},
				{Census{Old: Group{Total: 1}, New: Group{Total: 2, Unavailable: 1}, InPlace: 1}, 1, Scale{Surge: 1, Unavailable: 1}},
				{Census{New: Group{Total: 3, Unavailable: 1}}, 0, Scale{Remove: 1, Unavailable: 1}},
				{Census{New: Group{Total: 3}}, 0, Scale{Remove: 1}},
			}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			limits, err := Resolve(tt.spec)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.limits, limits); diff != "" {
				t.Fatalf("limits of the rollout (-want +got):\n%s", diff)
			}
			for i, s := range tt.steps {
				if got := ToMove(s.census, limits); got != s.move {
					t.Errorf("step %d: %d to move, want %d", i, got, s.move)
				}
				if diff := cmp.Diff(s.scale, ComputeScale(s.census, limits)); diff != "" {
					t.Errorf("step %d: what to scale (-want +got):\n%s", i, diff)
				}
			}
		})
	}
}

func TestComputeScale(t *testing.T) {
	tests := map[string]struct {
		census Census
		limits Limits
		want   Scale
	}{
		"CS-097 pods in PreparingDelete and unavailable ones count, specified ones do not": {
			Census{Old: Group{Total: 4, PreparingDelete: 1, Unavailable: 1}, New: Group{Total: 6, Specified: 2, Unavailable: 1}},
			Limits{Replicas: 10, MaxUnavailable: 4, ScaleMaxUnavailable: Unlimited},
			Scale{Unavailable: 3}},
		"CS-100 no surge unless it is asked for": {
			Census{Old: Group{Total: 5, Specified: 2}, Recreate: 5}, Limits{Replicas: 5, ScaleMaxUnavailable: Unlimited}, Scale{}},
		"CS-100 surge for deletion: what exceeds maxUnavailable, at most the specified; the old part beyond the new specified": {
			Census{Old: Group{Total: 3, Specified: 2}, New: Group{Total: 3, Specified: 1, Unavailable: 1}, OneRevision: true, Recreate: 0},
			Limits{Replicas: 6, Partition: 3, MaxUnavailable: 1, MaxSurge: 5, ScaleMaxUnavailable: Unlimited},
			Scale{Surge: 3, SurgeOld: 2, Missing: 3, Create: 3, CreateOld: 2, Unavailable: 1}},
		"CS-100 surge for deletion: maxUnavailable covers it": {
			Census{New: Group{Total: 5, Specified: 2}, OneRevision: true},
			Limits{Replicas: 5, MaxUnavailable: 2, MaxSurge: 3, ScaleMaxUnavailable: Unlimited},
			Scale{}},
		"CS-100 surge for a rollback is old": {
			Census{Old: Group{Total: 1}, New: Group{Total: 4}, Rollback: true, Recreate: 4},
			Limits{Replicas: 5, Partition: 3, MaxUnavailable: 1, MaxSurge: 5, ScaleMaxUnavailable: Unlimited},
			Scale{Surge: 2, SurgeOld: 2, Missing: 2, Create: 2, CreateOld: 2}},
		"CS-101 the larger of both, capped at maxSurge": {
			Census{Old: Group{Total: 10, Specified: 1}, Recreate: 10},
			Limits{Replicas: 10, MaxSurge: 3, ScaleMaxUnavailable: Unlimited},
			Scale{Surge: 3, Missing: 3, Create: 3}},
		"CS-101 deletion if both are equal; its old part is capped, too": {
			Census{Old: Group{Total: 5, Specified: 2}, Recreate: 5},
			Limits{Replicas: 5, Partition: 3, MaxSurge: 1, ScaleMaxUnavailable: Unlimited},
			Scale{Surge: 1, SurgeOld: 1, Missing: 1, Create: 1}},
		"CS-101, CS-331 never more than is left to do": {
			Census{Old: Group{Total: 1}, New: Group{Total: 4}, Recreate: 1},
			Limits{Replicas: 5, MaxUnavailable: 1, MaxSurge: 4, ScaleMaxUnavailable: Unlimited},
			Scale{Surge: 1, Missing: 1, Create: 1}},
		"CS-102, CS-330 no surge for pods that are updated in place": {
			Census{Old: Group{Total: 5}},
			Limits{Replicas: 5, MaxUnavailable: 1, MaxSurge: 3, ScaleMaxUnavailable: Unlimited},
			Scale{}},
		"CS-102 surge for those alone that have to be recreated": {
			Census{Old: Group{Total: 5}, Recreate: 2},
			Limits{Replicas: 5, MaxUnavailable: 1, MaxSurge: 3, ScaleMaxUnavailable: Unlimited},
			Scale{Surge: 2, Missing: 2, Create: 2}},
		"CS-102 with maxUnavailable 0 even an update in place needs the surge": {
			Census{Old: Group{Total: 5}, InPlace: 5},
			Limits{Replicas: 5, MaxSurge: 3, ScaleMaxUnavailable: Unlimited},
			Scale{Surge: 3, Missing: 3, Create: 3}},
		"CS-102 with maxUnavailable 0 a change that takes no pod out of service needs none": {
			Census{Old: Group{Total: 5}},
			Limits{Replicas: 5, MaxSurge: 3, ScaleMaxUnavailable: Unlimited},
			Scale{}},
		"CS-110, CS-116 pods in PreparingDelete are present": {
			Census{New: Group{Total: 5, PreparingDelete: 2}, OneRevision: true},
			Limits{Replicas: 5, MaxUnavailable: 3, ScaleMaxUnavailable: Unlimited},
			Scale{Unavailable: 2}},
		"CS-110, CS-116 unless they are excluded": {
			Census{Old: Group{Total: 1, PreparingDelete: 1}, New: Group{Total: 4, PreparingDelete: 1}, ExcludePreparingDelete: true},
			Limits{Replicas: 5, Partition: 1, MaxUnavailable: 3, ScaleMaxUnavailable: Unlimited},
			Scale{Missing: 2, Create: 2, CreateOld: 1, Unavailable: 2}},
		"CS-111 the scale limit counts those that are unavailable": {
			Census{New: Group{Total: 3, Unavailable: 1}, OneRevision: true},
			Limits{Replicas: 9, ScaleMaxUnavailable: 3},
			Scale{Missing: 6, Create: 2, Unavailable: 1}},
		"CS-111 more unavailable than the limit": {
			Census{New: Group{Total: 3, Unavailable: 3}, OneRevision: true},
			Limits{Replicas: 9, ScaleMaxUnavailable: 2},
			Scale{Missing: 6, Unavailable: 3}},
		"CS-112 missing old pods first": {
			Census{Old: Group{Total: 1}, New: Group{Total: 1}},
			Limits{Replicas: 6, Partition: 3, ScaleMaxUnavailable: 3},
			Scale{Missing: 4, Create: 3, CreateOld: 2}},
		"CS-112 enough old pods: the update revision": {
			Census{Old: Group{Total: 3}},
			Limits{Replicas: 6, Partition: 3, ScaleMaxUnavailable: Unlimited},
			Scale{Missing: 3, Create: 3}},
		"CS-113 too many: first those that are old beyond the partition": {
			Census{Old: Group{Total: 4}, New: Group{Total: 4}},
			Limits{Replicas: 5, Partition: 2, MaxUnavailable: 1, ScaleMaxUnavailable: Unlimited},
			Scale{Remove: 3, RemoveOld: 2}},
		"CS-113 the old ones' share is never more than all": {
			Census{Old: Group{Total: 8}},
			Limits{Replicas: 7, Partition: 2, ScaleMaxUnavailable: Unlimited},
			Scale{Remove: 1, RemoveOld: 1}},
		"CS-113, CS-131 specified pods go first and count": {
			Census{New: Group{Total: 6, Specified: 1}, OneRevision: true},
			Limits{Replicas: 4, MaxUnavailable: 1, ScaleMaxUnavailable: Unlimited},
			Scale{Remove: 1}},
		"CS-114 ready pods to delete: never below 0": {
			Census{New: Group{Total: 5, Unavailable: 4}, OneRevision: true},
			Limits{Replicas: 5, MaxUnavailable: 1, ScaleMaxUnavailable: Unlimited},
			Scale{Unavailable: 4}},
		"CS-114 surplus pods add to maxUnavailable": {
			Census{New: Group{Total: 7, Unavailable: 1}, OneRevision: true},
			Limits{Replicas: 5, MaxUnavailable: 1, ScaleMaxUnavailable: Unlimited},
			Scale{Remove: 2, Unavailable: 1}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, ComputeScale(tt.census, tt.limits)); diff != "" {
				t.Errorf("what to scale (-want +got):\n%s", diff)
			}
		})
	}
}

func TestToMove(t *testing.T) {
	tests := map[string]struct {
		census Census
		limits Limits
		want   int
	}{
		"CS-120 the smaller difference counts: new pods exist already": {Census{Old: Group{Total: 5}, New: Group{Total: 2}},
			Limits{Replicas: 5}, 3},
		"CS-120 the smaller difference counts: old pods are short": {Census{Old: Group{Total: 3}}, Limits{Replicas: 5, Partition: 1},
			2},
		"CS-098 pods in PreparingDelete are left out": {Census{Old: Group{Total: 5, PreparingDelete: 2}},
			Limits{Replicas: 5}, 3},
		"CS-098 a raised partition moves nothing without the gate": {Census{Old: Group{Total: 1}, New: Group{Total: 4}},
			Limits{Replicas: 5, Partition: 3}, 0},
		"CS-098 with the gate it moves pods back": {Census{Old: Group{Total: 1}, New: Group{Total: 4}, Rollback: true},
			Limits{Replicas: 5, Partition: 3}, -2},
		"CS-098 with the gate, but one revision alone: nothing": {Census{New: Group{Total: 5}, Rollback: true, OneRevision: true},
			Limits{Replicas: 5, Partition: 3}, 0},
		"CS-120 a new pod that is specified for deletion does not take the place of its old stand-in": {
			Census{Old: Group{Total: 1, Unavailable: 1}, New: Group{Total: 6, Specified: 1}, Recreate: 1}, Limits{Replicas: 6, MaxSurge: 1},
			1},
		"CS-120 nor that of an old pod when it is to be moved back": {
			Census{Old: Group{Total: 4, Specified: 1}, New: Group{Total: 2}, Rollback: true},
			Limits{Replicas: 5, Partition: 4, MaxSurge: 1}, -1},
		"CS-128 scaling moves the split: 60% of 10": {Census{Old: Group{Total: 6}, New: Group{Total: 4}},
			Limits{Replicas: 10, Partition: 6}, 0},
		"CS-128 scaling moves the split: 60% of 5": {Census{Old: Group{Total: 4}, New: Group{Total: 1}}, Limits{Replicas: 5, Partition: 3},
			1},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := ToMove(tt.census, tt.limits); got != tt.want {
				t.Errorf("pods to move: got %d, want %d", got, tt.want)
			}
		})
	}
}

// CS-102 (part), CS-103 (part): with U >= 1 only pods that have to be recreated get a surge, with U = 0 also
// those that are updated in place.
func TestSurgeForUpdatesInPlace(t *testing.T) {
	census := Census{Old: Group{Total: 5}, Recreate: 1, InPlace: 3}
	for unavailable, want := range map[int]int{0: 4, 1: 1, 2: 1} {
		got := ComputeScale(census, Limits{Replicas: 5, MaxSurge: 5, MaxUnavailable: unavailable, ScaleMaxUnavailable: Unlimited})
		if diff := cmp.Diff(Scale{Surge: want, Missing: want, Create: want}, got); diff != "" {
			t.Errorf("maxUnavailable %d: what to scale (-want +got):\n%s", unavailable, diff)
		}
	}
}

// IPU-326 (part): if a pod that the partition keeps old has to be mended in place, its surge pod is new.
func TestTheStandInOfAPodThatStaysOldIsNew(t *testing.T) {
	got := ComputeScale(Census{Old: Group{Total: 2}, New: Group{Total: 3}, Stale: 1},
		Limits{Replicas: 5, Partition: 2, MaxSurge: 1, ScaleMaxUnavailable: Unlimited})
	if diff := cmp.Diff(Scale{Surge: 1, Missing: 1, Create: 1}, got); diff != "" {
		t.Errorf("what to scale (-want +got):\n%s", diff)
	}
}

// CS-114 (part): an old pod that is specified for deletion does not count again as one to be removed; a new
// pod is removed instead of it.
func TestASpecifiedOldPodIsNoneToRemove(t *testing.T) {
	got := ComputeScale(Census{Old: Group{Total: 2, Specified: 1}, New: Group{Total: 6}},
		Limits{Replicas: 5, Partition: 1, ScaleMaxUnavailable: Unlimited})
	if diff := cmp.Diff(Scale{Remove: 2}, got); diff != "" {
		t.Errorf("what to scale (-want +got):\n%s", diff)
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
