package statefulset

import (
	"testing"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
)

// TestScaleOrdered shows the steps of OrderedReady.
func TestScaleOrdered(t *testing.T) {
	for name, tt := range map[string]struct {
		replicas int32
		options  []option
		build    func(*world)
		want     []string
	}{
		"ASTS-121 (part) the first":   {3, nil, func(*world) {}, []string{"+0 a:1"}},
		"ASTS-121 (part) the next":    {3, nil, func(w *world) { w.pod(0, "a:1") }, []string{"+1 a:1"}},
		"ASTS-123 (part) one is slow": {3, nil, func(w *world) { w.pod(0, "a:1", notReady) }, nil},
		"ASTS-122 one goes":           {3, nil, func(w *world) { w.pod(0, "a:1"); w.pod(1, "a:1", terminating) }, nil},
		"ASTS-124 one has failed": {3, nil, func(w *world) { w.pod(0, "a:1", failed); w.pod(1, "a:1", failed) },
			[]string{"-0"}},
		"a hole is filled first": {3, nil, func(w *world) { w.pod(1, "a:1"); w.pod(4, "a:1") }, []string{"+0 a:1"}},
		"ASTS-126 (part) the highest goes": {1, nil, func(w *world) { w.pod(0, "a:1"); w.pod(1, "a:1"); w.pod(2, "a:1") },
			[]string{"-2"}},
		"ASTS-126 (part) none while one goes": {1, nil,
			func(w *world) { w.pod(0, "a:1"); w.pod(1, "a:1"); w.pod(2, "a:1", terminating) }, nil},
		"ASTS-126 (part) none while a slot is down": {1, nil, func(w *world) { w.pod(0, "a:1", notReady); w.pod(1, "a:1") }, nil},
		"ASTS-126 (part) the lowest unhealthy of all": {1, nil,
			func(w *world) { w.pod(0, "a:1"); w.pod(1, "a:1"); w.pod(2, "a:1", notReady) }, []string{"-2"}},
		"ASTS-126 (part) not the higher of two": {1, nil,
			func(w *world) { w.pod(0, "a:1"); w.pod(1, "a:1", notReady); w.pod(2, "a:1", notReady) }, nil},
		"ASTS-127 the successor first": {3, []option{reserve(1)}, func(w *world) { w.pod(0, "a:1"); w.pod(1, "a:1"); w.pod(2, "a:1") },
			[]string{"+3 a:1"}},
		"ASTS-127 then the reserved one": {3, []option{reserve(1)},
			func(w *world) { w.pod(0, "a:1"); w.pod(1, "a:1"); w.pod(2, "a:1"); w.pod(3, "a:1") }, []string{"-1"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, tt.replicas, tt.options...)
			w.at("a:1")
			tt.build(w)
			w.expect(tt.want...)
		})
	}
}

// TestScaleParallel shows what happens at a time under Parallel.
func TestScaleParallel(t *testing.T) {
	for name, tt := range map[string]struct {
		replicas int32
		options  []option
		build    func(*world)
		want     []string
	}{
		"all that are missing": {3, nil, func(w *world) { w.pod(1, "a:1", notReady) }, []string{"+0 a:1", "+2 a:1"}},
		"all that are condemned": {1, nil,
			func(w *world) {
				w.pod(0, "a:1", notReady)
				w.pod(1, "a:1")
				w.pod(2, "a:1", notReady)
				w.pod(3, "a:1", failed)
			},
			[]string{"-1", "-2", "-3"}},
		"ASTS-142 two at a time": {5, []option{scaleBy(2)}, func(*world) {}, []string{"+0 a:1", "+1 a:1"}},
		"ASTS-142 (part) a third": {5, []option{scaleBy(2)}, func(w *world) { w.pod(0, "a:1"); w.pod(1, "a:1", notReady) },
			[]string{"+2 a:1"}},
		"ASTS-140 (part) a failed one is no load": {3, []option{scaleBy(1)}, func(w *world) { w.pod(0, "a:1", failed) },
			[]string{"-0", "+1 a:1"}},
		"ASTS-141 one that goes is no load": {3, []option{scaleBy(1)}, func(w *world) { w.pod(0, "a:1", terminating, notReady) },
			[]string{"+1 a:1"}},
		"ASTS-138 (part) deletion is not limited": {1, []option{scaleBy(1)},
			func(w *world) { w.pod(0, "a:1", notReady); w.pod(1, "a:1"); w.pod(2, "a:1") }, []string{"-1", "-2"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, tt.replicas, append([]option{inParallel}, tt.options...)...)
			w.at("a:1")
			tt.build(w)
			w.expect(tt.want...)
		})
	}
}

// TestRevisionOfNewPods shows ASTS-107 to 110.
func TestRevisionOfNewPods(t *testing.T) {
	for name, tt := range map[string]struct {
		options []option
		build   func(*world)
		want    []string
	}{
		"ASTS-107":        {[]option{deletedByHand}, func(*world) {}, []string{"+0 a:2", "+1 a:2", "+2 a:2", "+3 a:2"}},
		"ASTS-108 (part)": {[]option{partition(2)}, func(*world) {}, []string{"+0 a:1", "+1 a:1", "+2 a:2", "+3 a:2"}},
		"ASTS-108 (part) by rank": {[]option{partition(2), reserve("0-1")}, func(*world) {},
			[]string{"+2 a:1", "+3 a:1", "+4 a:2", "+5 a:2"}},
		"ASTS-109 (part)": {[]option{partition(2), unordered}, func(*world) {}, []string{"+0 a:1", "+1 a:1", "+2 a:2", "+3 a:2"}},
		"ASTS-109 (part) those that are there count": {[]option{partition(2), unordered, paused}, func(w *world) {
			w.pod(3, "a:1")
			w.pod(2, "a:2")
		}, []string{"+0 a:1", "+1 a:2"}},
		"ASTS-110": {[]option{paused}, func(w *world) { w.pod(3, "a:1") }, []string{"+0 a:2", "+1 a:2", "+2 a:2"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 4, append([]option{inParallel}, tt.options...)...)
			w.at("a:1")
			w.at("a:2")
			tt.build(w)
			w.expect(tt.want...)
		})
	}
}

// TestRetention shows ASTS-261 and ASTS-262 (part): owners come before pods go.
func TestRetention(t *testing.T) {
	type policy = appsv1beta1.StatefulSetClaimRetentionPolicy
	const keep, remove = appsv1beta1.RetainStatefulSetClaims, appsv1beta1.DeleteStatefulSetClaims
	for _, tt := range []struct {
		policy *policy
		first  []string
		slot   int // owners of the PVC of the pod that stays
	}{
		{nil, []string{"-1"}, 0},
		{&policy{WhenDeleted: keep, WhenScaled: keep}, []string{"-1"}, 0},
		{&policy{WhenDeleted: remove, WhenScaled: keep}, []string{"owners 0 [StatefulSet]", "owners 1 [StatefulSet]"}, 1},
		{&policy{WhenDeleted: keep, WhenScaled: remove}, []string{"owners 1 [Pod]"}, 0},
		{&policy{WhenDeleted: remove, WhenScaled: remove}, []string{"owners 0 [StatefulSet]", "owners 1 [Pod]"}, 1},
	} {
		w := newWorld(t, 1, withClaims, func(set *appsv1beta1.StatefulSet) { set.Spec.PersistentVolumeClaimRetentionPolicy = tt.policy })
		w.at("a:1")
		w.pod(0, "a:1")
		w.pod(1, "a:1")
		w.expect(tt.first...)
		for _, change := range Make(w.Snapshot).ClaimOwners {
			change.Claim.OwnerReferences = change.Owners
		}
		w.expect("-1")
		if got := len(w.claim(0).OwnerReferences); got != tt.slot {
			t.Errorf("%+v: %d owners of what stays", tt.policy, got)
		}
		// The policy changes, and with it the owners.
		w.Set.Spec.PersistentVolumeClaimRetentionPolicy = nil
		want := []string{"-1"}
		if tt.slot > 0 {
			want = []string{"owners 0 []"}
		}
		if len(w.claim(1).OwnerReferences) > 0 {
			want = append(slicesWithout(want, "-1"), "owners 1 []")
		}
		w.expect(want...)
	}
}

func slicesWithout(list []string, word string) (kept []string) {
	for _, one := range list {
		if one != word {
			kept = append(kept, one)
		}
	}
	return kept
}
