package statefulset

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
)

const toNormal = "label lifecycle.apps.kruise.io/state=Normal, annotation lifecycle.apps.kruise.io/timestamp"

// TestScalingComesFirst shows ASTS-116: under OrderedReady a slot that is not available holds up what is
// condemned and every pod that serves, but not the owners of PVCs, nor itself. Under Parallel not even an
// error holds up anything.
func TestScalingComesFirst(t *testing.T) {
	claims := []option{withClaims, retention(appsv1beta1.RetainStatefulSetClaims, appsv1beta1.DeleteStatefulSetClaims)}
	for name, tt := range map[string]struct {
		options []option
		build   func(*world)
		want    []string
	}{
		"missing":       {nil, func(w *world) { w.pod(0, "a:1"); w.pod(2, "a:1"); w.pod(9, "a:1") }, []string{"+1 a:2"}},
		"goes":          {nil, func(w *world) { w.pod(0, "a:1"); w.pod(1, "a:1", terminating); w.pod(2, "a:1"); w.pod(9, "a:1") }, nil},
		"not available": {nil, func(w *world) { w.pod(0, "a:1"); w.pod(1, "a:2", notReady); w.pod(2, "a:1"); w.pod(9, "a:1") }, nil},
		"not available, and old": {nil, func(w *world) { w.pod(0, "a:1"); w.pod(1, "a:1", notReady); w.pod(2, "a:1"); w.pod(9, "a:1") },
			[]string{"~1"}},
		"has ended": {nil, func(w *world) { w.pod(0, "a:1"); w.pod(1, "a:1", failed); w.pod(2, "a:1"); w.pod(9, "a:1") },
			[]string{"-1"}},
		"specified ones wait too": {nil, func(w *world) { w.pod(0, "a:1", notReady); w.pod(1, "a:1", specified); w.pod(2, "a:2") },
			[]string{"~0"}},
		"none blocks": {nil, func(w *world) { all(w, "a:1", 3); w.pod(9, "a:1") }, []string{"-9"}},
		"then the update": {nil, func(w *world) { all(w, "a:1", 3) },
			[]string{"~2"}},
		"one that prepares its deletion goes on": {[]option{hooks}, func(w *world) {
			w.pod(0, "a:1")
			w.pod(2, "a:1")
			w.pod(9, "a:1", in(pub.LifecycleStatePreparingDelete))
		}, []string{"+1 a:2", "-9"}},
		// It counts as down already, because of its PVC, and would cost nothing.
		"one that is specified waits for what is condemned, whatever it costs": {[]option{withClaims, follow, policy(possible)}, func(w *world) {
			all(w, "a:1", 3)
			setClaims(w.Set, "2Gi")
			for i := range 3 {
				w.sized(i, "2Gi", "2Gi")
			}
			w.sized(2, "2Gi", "1Gi")
			w.claim(2).Status.Conditions = []corev1.PersistentVolumeClaimCondition{{Status: corev1.ConditionTrue,
				Type: corev1.PersistentVolumeClaimFileSystemResizePending, LastTransitionTime: metav1.NewTime(planTime)}}
			specified(w.Pods[2])
			w.pod(9, "a:1")
		}, []string{"-9"}},
		"owners of PVCs": {claims, func(w *world) { w.pod(0, "a:1", terminating); w.pod(1, "a:2"); w.pod(2, "a:2"); w.pod(9, "a:1") },
			[]string{"owners 9 [Pod]"}},
		"parallel": {[]option{inParallel, maxUnavailable(2)}, func(w *world) { w.pod(0, "a:1", notReady); w.pod(2, "a:1"); w.pod(9, "a:1") },
			[]string{"+1 a:2", "-9", "~0"}},
		"parallel, and one more may be down": {[]option{inParallel, maxUnavailable(3)}, func(w *world) {
			w.ForeignPods["web-1"] = true // which is an error
			w.pod(0, "a:1", notReady)
			w.pod(2, "a:1")
			w.pod(9, "a:1")
		}, []string{"-9", "~0", "~2"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 3, append([]option{policy(possible)}, tt.options...)...)
			w.at("a:1")
			w.at("a:2")
			tt.build(w)
			w.expect(tt.want...)
		})
	}
}

// TestWhenToLookAgain shows ASTS-118: at the end of the shortest time that is waited for, minReadySeconds or
// a grace period. And ASTS-128 (part): those of condemned pods count too.
func TestWhenToLookAgain(t *testing.T) {
	grace := func(since time.Duration) state {
		return func(pod *corev1.Pod) {
			to := pod.Labels[pub.ControllerRevisionHash]
			pod.Annotations = map[string]string{pub.InPlaceUpdateGrace: `{"revision":"` + to + `","graceSeconds":30}`,
				pub.InPlaceUpdateState: `{"revision":"` + to + `","updateTimestamp":"` + planTime.Add(-since).Format(time.RFC3339) + `"}`}
			notReady(pod)
		}
	}
	for name, tt := range map[string]struct {
		options []option
		build   func(*world)
		want    time.Duration
	}{
		"none":            {nil, func(w *world) { w.pod(0, "a:1"); w.pod(1, "a:1") }, 0},
		"minReadySeconds": {nil, func(w *world) { w.pod(0, "a:1", readyFor(10*time.Second)); w.pod(1, "a:1") }, 50 * time.Second},
		"the shorter of two": {nil, func(w *world) { w.pod(0, "a:1", readyFor(10*time.Second)); w.pod(1, "a:1", readyFor(40*time.Second)) },
			20 * time.Second},
		"grace": {nil, func(w *world) { w.pod(0, "a:1"); w.pod(1, "a:1", grace(13*time.Second)) }, 17 * time.Second},
		"grace is the shorter": {nil, func(w *world) { w.pod(0, "a:1", readyFor(10*time.Second)); w.pod(1, "a:1", grace(13*time.Second)) },
			17 * time.Second},
		"grace is the longer": {nil, func(w *world) { w.pod(0, "a:1", readyFor(50*time.Second)); w.pod(1, "a:1", grace(13*time.Second)) },
			10 * time.Second},
		"of a condemned pod": {nil, func(w *world) { w.pod(0, "a:1"); w.pod(1, "a:1"); w.pod(7, "a:1", readyFor(55*time.Second)) },
			5 * time.Second},
	} {
		for mode, options := range map[string][]option{"ordered": nil, "parallel": {inParallel}} {
			t.Run(mode+", "+name, func(t *testing.T) {
				w := newWorld(t, 2, append(append([]option{policy(possible), minReady(60), rollingWith(func(
					r *appsv1beta1.RollingUpdateStatefulSetStrategy) {
					r.InPlaceUpdateStrategy = &pub.InPlaceUpdateStrategy{GracePeriodSeconds: 30}
				})}, options...), tt.options...)...)
				w.at("a:1")
				tt.build(w)
				if got := Make(w.Snapshot).After.Truncate(time.Second); got != tt.want {
					t.Errorf("after %s, not %s: %s", got, tt.want, Make(w.Snapshot))
				}
			})
		}
	}
}

// TestRefreshAndUpdateInOnePlan shows ASTS-146: what is found out about one pod counts for all others in the
// same plan. A pod whose update is found complete counts as down once more, and nothing else is done to it.
func TestRefreshAndUpdateInOnePlan(t *testing.T) {
	for name, tt := range map[string]struct {
		n    int32
		want []string
	}{
		"one may be down": {1, []string{"2: " + toNormal}},
		"two may be down": {2, []string{"2: " + toNormal, "~1"}},
		"all may be down": {3, []string{"2: " + toNormal, "~1", "~0"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 3, inParallel, policy(possible), maxUnavailable(tt.n))
			w.at("a:1")
			w.at("a:2")
			w.pod(0, "a:1")
			w.pod(1, "a:1")
			w.pod(2, "a:2", in(pub.LifecycleStateUpdating))
			w.expect(tt.want...)
		})
	}
	w := newWorld(t, 1, inParallel, policy(possible)) // the template has changed once more
	w.at("a:1")
	w.at("a:2")
	w.pod(0, "a:1", in(pub.LifecycleStateUpdating))
	w.expect("~0")
}

// TestNoSlotAnyMore shows ASTS-094: below the start, above the last slot, and reserved.
func TestNoSlotAnyMore(t *testing.T) {
	w := newWorld(t, 3, inParallel, start(2), reserve("4-5", 99))
	w.at("a:1")
	for i := range 9 {
		w.pod(i, "a:1")
	}
	w.pod(99, "a:1", notReady)
	w.pod(100, "a:1", failed)
	w.expect("-0", "-1", "-100", "-4", "-5", "-7", "-8", "-99")
	w.Features.StartOrdinal = false
	w.expect("-100", "-3", "-4", "-5", "-6", "-7", "-8", "-99")
}
