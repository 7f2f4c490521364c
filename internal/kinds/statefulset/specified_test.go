package statefulset

import (
	"strings"
	"testing"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
)

// TestASpecifiedPodIsMadeAnew shows ASTS-235: it goes, by its preDelete hook, whatever the value of the label
// and the partition, and comes back with its ordinal, unless that is reserved, at the revision that any new
// pod would have there.
func TestASpecifiedPodIsMadeAnew(t *testing.T) {
	for name, tt := range map[string]struct {
		options []option
		image   string
		then    []string
	}{
		"within the partition":   {[]option{partition(3)}, "a:1", []string{"+1 a:1"}},
		"updated, within it":     {[]option{partition(3)}, "a:2", []string{"+1 a:1"}},
		"beyond the partition":   {[]option{partition(1)}, "a:2", []string{"+1 a:2"}},
		"under OnDelete":         {[]option{deletedByHand}, "a:1", []string{"+1 a:2"}},
		"by the numbers of both": {[]option{inParallel, unordered, partition(1)}, "a:1", []string{"+1 a:1"}},
	} {
		for _, value := range []string{"", "true", "false"} {
			t.Run(name+" "+value, func(t *testing.T) {
				w := newWorld(t, 3, append(tt.options, hooks)...)
				w.at("a:1")
				w.at("a:2")
				w.pod(0, "a:1")
				w.pod(1, tt.image, labelled(pub.SpecifiedDelete, value), labelled("delete", "on"))
				w.pod(2, "a:2")
				if strings.HasPrefix(name, "by the numbers") { // of which there is one at a:1 now
					w.Pods[0].Labels[pub.ControllerRevisionHash] = w.revisions["a:2"]
				}
				const prepare = "1: label lifecycle.apps.kruise.io/state=PreparingDelete, annotation lifecycle.apps.kruise.io/timestamp"
				w.expect(prepare)
				inState(preparingGone)(w.Pods[1])
				w.expect()
				delete(w.Pods[1].Labels, "delete")
				w.expect("-1")
				terminating(w.Pods[1])
				w.expect()
				w.Pods = append(w.Pods[:1:1], w.Pods[2])
				w.expect(tt.then...)
			})
		}
	}
	w := newWorld(t, 2, inParallel, reserve(1))
	w.at("a:1")
	w.pod(0, "a:1")
	w.pod(1, "a:1", specified)
	w.pod(2, "a:1")
	w.expect("-1")
	w.Pods = append(w.Pods[:1:1], w.Pods[2])
	w.expect() // its ordinal is reserved
}

// TestTheBudgetOfSpecifiedPods shows ASTS-236, ASTS-237, ASTS-238 and ASTS-239. All pods are at a:2, the
// update revision, but where it says otherwise.
func TestTheBudgetOfSpecifiedPods(t *testing.T) {
	overlooked := func(set *appsv1beta1.StatefulSet) { // what says nothing under OnDelete
		maxUnavailable(3)(set)
		set.Spec.UpdateStrategy.Type = appsv1beta1.OnDeleteStatefulSetStrategyType
	}
	three := func(w *world, states ...[]state) {
		for i := range 3 {
			w.pod(i, "a:2", states[i]...)
		}
	}
	up, wanted, down := []state{}, []state{specified}, []state{notReady}
	both := []state{notReady, specified}
	for name, tt := range map[string]struct {
		replicas int32
		options  []option
		build    func(*world)
		want     []string
	}{
		"descending": {3, []option{inParallel}, func(w *world) { three(w, wanted, wanted, wanted) }, []string{"-2"}},
		"as many as may be unavailable": {3, []option{inParallel, maxUnavailable(2)}, func(w *world) { three(w, wanted, wanted, wanted) },
			[]string{"-1", "-2"}},
		"others count": {3, []option{inParallel, maxUnavailable(2)}, func(w *world) { three(w, down, wanted, wanted) },
			[]string{"-2"}},
		"those that are missing count":        {4, []option{inParallel}, func(w *world) { three(w, up, wanted, up) }, []string{"+3 a:2"}},
		"one that is down goes, after others": {3, []option{inParallel}, func(w *world) { three(w, both, up, wanted) }, []string{"-0"}},
		"all that are down go":                {3, []option{inParallel}, func(w *world) { three(w, both, wanted, both) }, []string{"-0", "-2"}},
		"before updates, whose budget it is": {3, []option{inParallel, policy(possible)}, func(w *world) {
			w.pod(0, "a:1", specified)
			w.pod(1, "a:1")
			w.pod(2, "a:1")
		}, []string{"-0"}},
		"what is left is for updates": {3, []option{inParallel, policy(possible), maxUnavailable(2)}, func(w *world) {
			w.pod(0, "a:1", specified)
			w.pod(1, "a:1")
			w.pod(2, "a:1")
		}, []string{"-0", "~2"}},
		"one that goes is not updated": {3, []option{inParallel, policy(possible), maxUnavailable(3)}, func(w *world) {
			w.pod(0, "a:1", specified)
			w.pod(1, "a:2")
			w.pod(2, "a:2")
		}, []string{"-0"}},
		"one that waits is not updated": {3, []option{inParallel, policy(possible)}, func(w *world) {
			w.pod(0, "a:2", notReady)
			w.pod(1, "a:2")
			w.pod(2, "a:1", specified)
		}, nil},
		"one that its hook holds is not updated": {3, []option{inParallel, policy(possible), hooks}, func(w *world) {
			w.pod(0, "a:2")
			w.pod(1, "a:2")
			w.pod(2, "a:1", specified, labelled("delete", "on"), in(pub.LifecycleStatePreparingDelete))
		}, nil},
		"paused": {3, []option{inParallel, paused, maxUnavailable(2)}, func(w *world) {
			w.pod(0, "a:1", specified)
			w.pod(1, "a:1", specified)
			w.pod(2, "a:1", specified)
		}, []string{"-1", "-2"}},
		"under OnDelete, one": {3, []option{inParallel, deletedByHand}, func(w *world) {
			three(w, wanted, wanted,
				wanted)
		}, []string{"-2"}},
		"under OnDelete, whatever the numbers": {3, []option{inParallel, overlooked}, func(w *world) {
			three(w, wanted, wanted,
				wanted)
		}, []string{"-2"}},
		"under OnDelete, and one is down": {3, []option{inParallel, deletedByHand}, func(w *world) {
			three(w, both, down,
				wanted)
		}, []string{"-0"}},
		"under OrderedReady, one":                    {3, nil, func(w *world) { three(w, wanted, wanted, wanted) }, []string{"-2"}},
		"under OrderedReady, and one is down":        {3, nil, func(w *world) { three(w, down, wanted, up) }, nil},
		"under OrderedReady, and it is the one":      {3, nil, func(w *world) { three(w, wanted, both, up) }, []string{"-1"}},
		"under OrderedReady, paused, and it is down": {3, []option{paused}, func(w *world) { three(w, up, both, wanted) }, []string{"-1"}},
		"under OrderedReady, OnDelete, and it is down": {3, []option{deletedByHand}, func(w *world) { three(w, up, both, wanted) },
			[]string{"-1"}},
		"no slots, in parallel": {1, []option{inParallel}, func(w *world) { three(w, down, wanted, wanted) },
			[]string{"-1", "-2"}},
		"no slot and a slot, in order":           {2, nil, func(w *world) { three(w, up, wanted, wanted) }, []string{"-2"}},
		"no slots, in order":                     {1, nil, func(w *world) { three(w, up, wanted, wanted) }, []string{"-2"}},
		"no slots, in order, and a slot is down": {1, nil, func(w *world) { three(w, down, wanted, wanted) }, nil},
		"the example of the specification": {6, []option{inParallel, maxUnavailable(3)}, func(w *world) {
			three(w, down, down, wanted)
			w.pod(3, "a:2")
			w.pod(4, "a:2")
			w.pod(5, "a:2", specified)
		}, []string{"-5"}},
		"the example, and 0 too": {6, []option{inParallel, maxUnavailable(3)}, func(w *world) {
			three(w, both, down, wanted)
			w.pod(3, "a:2")
			w.pod(4, "a:2")
			w.pod(5, "a:2", specified)
		}, []string{"-0", "-5"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, tt.replicas, tt.options...)
			w.at("a:1")
			w.at("a:2")
			tt.build(w)
			w.expect(tt.want...)
		})
	}
}
