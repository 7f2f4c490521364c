package statefulset

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/afloat-project/afloat/api/pub"
)

// TestTheGateOfEveryPodIsOpened: nobody else opens the gate KruisePodReady of a set's pods, so that one whose
// gate stays closed never serves, whatever the set does about it.
func TestTheGateOfEveryPodIsOpened(t *testing.T) {
	closed := func(pod *corev1.Pod) {
		pod.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: pub.KruisePodReady}}
		pod.Status.Conditions[0].Status = corev1.ConditionFalse
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: corev1.ContainersReady, Status: corev1.ConditionTrue})
	}
	for name, tt := range map[string]struct {
		options []option
		build   func(*world)
	}{
		"one after the other":             {nil, func(w *world) { w.pod(0, "a:2", closed) }},
		"in parallel":                     {[]option{inParallel}, func(w *world) { w.pod(0, "a:2", closed) }},
		"in place":                        {[]option{policy(possible)}, func(w *world) { w.pod(0, "a:2", closed) }},
		"on delete, at another revision":  {[]option{deletedByHand}, func(w *world) { w.pod(0, "a:1", closed) }},
		"paused, at another revision":     {[]option{paused}, func(w *world) { w.pod(0, "a:1", closed) }},
		"held back by the partition":      {[]option{partition(2)}, func(w *world) { w.pod(0, "a:1", closed) }},
		"no slot any more, behind others": {nil, func(w *world) { w.pod(0, "a:2", notReady); w.pod(7, "a:2", closed); w.pod(5, "a:2", notReady) }},
		"prepares its deletion, behind hooks": {[]option{hooks}, func(w *world) {
			w.pod(7, "a:2", closed, in(pub.LifecycleStatePreparingDelete), labelled("delete", "on"))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 2, tt.options...)
			w.at("a:1")
			w.at("a:2")
			tt.build(w)
			if does := w.does(); !slices.ContainsFunc(does, func(what string) bool { return strings.Contains(what, string(pub.KruisePodReady)) }) {
				t.Errorf("the gate stays closed: %v\n%s", does, Make(w.Snapshot))
			}
		})
	}
}

// TestGatesOfNewPods: pods that may be updated in place have the gate of such updates, and all the gate that
// others take them out of service by (IPU-131 (part)).
func TestGatesOfNewPods(t *testing.T) {
	for name, tt := range map[string]struct {
		options []option
		want    string
	}{
		"recreated": {nil, "[KruisePodReady]"},
		"in place":  {[]option{policy(possible)}, "[InPlaceUpdateReady KruisePodReady]"},
	} {
		t.Run(name, func(t *testing.T) {
			spec, _ := Make(newWorld(t, 1, tt.options...).Snapshot).Create[0].Pod["spec"].(map[string]any)
			list, _ := spec["readinessGates"].([]any)
			var gates []any
			for _, gate := range list {
				gates = append(gates, gate.(map[string]any)["conditionType"])
			}
			if got := fmt.Sprint(gates); got != tt.want {
				t.Errorf("gates %s, want %s", got, tt.want)
			}
		})
	}
}

// TestCreationIsTriedLater: after a failed creation the next one waits, under both policies
// (ASTS-117 (part)).
func TestCreationIsTriedLater(t *testing.T) {
	for name, options := range map[string][]option{"one after the other": nil, "in parallel": {inParallel}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1, options...)
			w.at("a:1")
			w.CreationError, w.CreationHeldUntil = "quota", planTime.Add(time.Second)
			w.expect()
			w.CreationHeldUntil = planTime
			w.expect("+0 a:1")
		})
	}
}

// TestPreparedPodsGoBackOnDelete: a pod that waits for the hook of an update serves again when updates are by
// hand, and waits on while they are paused.
func TestPreparedPodsGoBackOnDelete(t *testing.T) {
	for name, tt := range map[string]struct {
		option option
		want   []string
	}{
		"by hand": {deletedByHand,
			[]string{"0: label lifecycle.apps.kruise.io/state=Normal, annotation lifecycle.apps.kruise.io/timestamp"}},
		"paused": {paused, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1, policy(possible), hooks, tt.option)
			w.at("a:1")
			w.at("a:2")
			w.pod(0, "a:1", in(pub.LifecycleStatePreparingUpdate), labelled("update", "on"))
			w.expect(tt.want...)
		})
	}
}
