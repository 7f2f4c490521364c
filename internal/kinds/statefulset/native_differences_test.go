package statefulset

import (
	"fmt"
	"testing"
	"time"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
)

func start(ordinal int32) option {
	return func(set *appsv1beta1.StatefulSet) {
		set.Spec.Ordinals = &appsv1beta1.StatefulSetOrdinals{Start: ordinal}
	}
}

func retention(deleted, scaled appsv1beta1.StatefulSetClaimRetention) option {
	return func(set *appsv1beta1.StatefulSet) {
		set.Spec.PersistentVolumeClaimRetentionPolicy = &appsv1beta1.StatefulSetClaimRetentionPolicy{WhenDeleted: deleted, WhenScaled: scaled}
	}
}

// TestEveryAbilityThatTheNativeKindLacksHasItsEffect shows ASTS-002: what the native kind has not, each with
// what happens without it.
func TestEveryAbilityThatTheNativeKindLacksHasItsEffect(t *testing.T) {
	old := func(w *world) { all(w, "a:1", 5) }
	full := func(w *world) { all(w, "a:2", 5) }
	hold := "4: label lifecycle.apps.kruise.io/state=%s, annotation lifecycle.apps.kruise.io/timestamp"
	for name, tt := range map[string]struct {
		build         func(*world)
		with, without []option
		want, bare    []string
	}{
		"parallel update with maxUnavailable": {old, []option{inParallel, maxUnavailable(3)}, []option{inParallel},
			[]string{"-4", "-3", "-2"}, []string{"-4"}},
		"update in place": {old, []option{policy(possible)}, nil, []string{"~4"}, []string{"-4"}},
		"update by priority": {func(w *world) { old(w); labelled("tier", "gold")(w.Pods[1]) }, []option{inParallel, goldFirst},
			[]option{inParallel}, []string{"-1"}, []string{"-4"}},
		"pause": {old, []option{paused}, nil, nil, []string{"-4"}},
		"minReadySeconds": {func(w *world) { all(w, "a:1", 4); w.pod(4, "a:2", readyFor(time.Minute)) }, []option{minReady(90)}, nil, nil,
			[]string{"-3"}},
		"reserved ordinals": {full, []option{reserve(2), inParallel}, []option{inParallel}, []string{"+5 a:2", "-2"}, nil},
		"start":             {full, []option{start(1), inParallel}, []option{inParallel}, []string{"+5 a:2", "-0"}, nil},
		"rate of creation": {func(*world) {}, []option{inParallel, scaleBy(2)}, []option{inParallel}, []string{"+0 a:2", "+1 a:2"},
			[]string{"+0 a:2", "+1 a:2", "+2 a:2", "+3 a:2", "+4 a:2"}},
		"hook before deletion": {func(w *world) { old(w); labelled("delete", "on")(w.Pods[4]) }, []option{hooks}, nil,
			[]string{fmt.Sprintf(hold, "PreparingDelete")}, []string{"-4"}},
		"hook before an update": {func(w *world) { old(w); labelled("update", "on")(w.Pods[4]) }, []option{hooks, policy(possible)},
			[]option{policy(possible)}, []string{fmt.Sprintf(hold, "PreparingUpdate")}, []string{"~4"}},
		"retention of PVCs": {full, []option{withClaims, retention(appsv1beta1.DeleteStatefulSetClaims, appsv1beta1.RetainStatefulSetClaims)},
			[]option{withClaims}, []string{"owners 0 [StatefulSet]", "owners 1 [StatefulSet]", "owners 2 [StatefulSet]",
				"owners 3 [StatefulSet]", "owners 4 [StatefulSet]"}, nil},
		"growth of PVCs": {func(w *world) { full(w); setClaims(w.Set, "2Gi") }, []option{withClaims, follow}, []option{withClaims},
			[]string{"grow 4 2Gi"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			for _, side := range []struct {
				options []option
				want    []string
			}{{tt.with, tt.want}, {tt.without, tt.bare}} {
				w := newWorld(t, 5, side.options...)
				w.at("a:1")
				w.at("a:2")
				tt.build(w)
				w.expect(side.want...)
			}
		})
	}
	for name, tt := range map[string]struct {
		states []state
		want   []string
	}{"specified deletion": {[]state{specified}, []string{"-3"}}, "none is specified": {nil, nil}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 4)
			w.at("a:1")
			all(w, "a:1", 3)
			w.pod(3, "a:1", tt.states...)
			w.expect(tt.want...)
		})
	}
	for _, on := range []bool{true, false} {
		w := newWorld(t, 5, policy(possible))
		w.Features.PreDownload, w.PullJobsServed = on, true
		w.at("a:1")
		w.at("a:2")
		old(w)
		plan := Make(w.Snapshot)
		if pulls := len(plan.Pulls); pulls != map[bool]int{true: 1}[on] {
			t.Errorf("pre-download %t: %d images are pulled ahead", on, pulls)
		}
	}
}
