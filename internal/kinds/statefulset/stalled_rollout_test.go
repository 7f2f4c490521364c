package statefulset

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/afloat-project/afloat/api/pub"
)

// TestWhatStandsStillIsTold shows that a set is not taken for settled while a slot is down, however many pods
// without a slot are available, and that a pod which outlasts its grace period is told of: nothing comes in
// its place.
func TestWhatStandsStillIsTold(t *testing.T) {
	w := newWorld(t, 3, reserve(1))
	w.at("a:1")
	all(w, "a:1", 3)
	w.pod(3, "a:1", notReady)
	plan := Make(w.Snapshot)
	if plan.Settled() {
		t.Errorf("the plan is settled: got true, want false; settled %t, waiting %v: %s", plan.Settled(),
			plan.Waiting, plan)
	}
	if plan.Waiting == nil {
		t.Errorf("waiting: got nil, want a value; settled %t, waiting %v: %s", plan.Settled(), plan.Waiting, plan)
	}
	w = newWorld(t, 2, inParallel)
	w.at("a:1")
	all(w, "a:1", 3)
	terminating(w.Pods[2])
	if plan := Make(w.Snapshot); plan.Settled() {
		t.Error("settled with a pod too many: ", plan)
	}
	for name, options := range map[string][]option{"ordered": nil, "parallel": {inParallel}} {
		w := newWorld(t, 2, options...)
		w.at("a:1")
		w.pod(0, "a:1")
		w.pod(1, "a:1", terminating)
		if plan := Make(w.Snapshot); plan.Waiting == nil {
			t.Errorf("%s: waiting: got nil, want a value; settled %t, waiting %v", name, plan.Settled(), plan.Waiting)
		} else if plan.Settled() {
			t.Errorf("%s: the plan is settled: got true, want false; settled %t, waiting %v", name, plan.Settled(),
				plan.Waiting)
		}
		w.Now = planTime.Add(-time.Minute)
		if plan := Make(w.Snapshot); plan.Waiting != nil {
			t.Errorf("%s: waiting: got %v, want nil; after %s, waiting %v in the grace period", name, plan.Waiting,
				plan.After,
				plan.Waiting)
		} else if plan.After != time.Minute {
			t.Errorf("%s: time to the next pass: got %v, want %v; after %s, waiting %v in the grace period", name,
				plan.After, time.Minute, plan.After,
				plan.Waiting)
		}
	}
}

// TestWhoIsWaitedForIsTold shows that what is told of a set that stands still under OrderedReady names the
// pod that holds up the others, and what it lacks: of many pods three of those that waited for it were named.
func TestWhoIsWaitedForIsTold(t *testing.T) {
	pulls := func(pod *corev1.Pod) {
		notReady(pod)
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main",
			State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff"}}}}
	}
	const last = ". pod web-7: container main: ImagePullBackOff"
	for name, tt := range map[string]struct {
		replicas int32
		want     string
	}{
		"an update":     {8, "OrderedReady: it comes after others: pod web-7 is not available" + last},
		"scaling in":    {4, "OrderedReady: it comes after others: pod web-7 goes"},
		"a broken slot": {9, "OrderedReady: it comes after others: pod web-7 is not available" + last},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, tt.replicas, policy(possible))
			w.at("a:1")
			w.at("a:2")
			for i := range 7 {
				w.pod(i, "a:1")
			}
			w.pod(7, "a:2", pulls)
			if wait := Make(w.Snapshot).Waiting; wait == nil {
				t.Error("waiting: got nil, want a value")
			} else if wait.String() != tt.want {
				t.Errorf("waiting: got %q, want %q", wait.String(), tt.want)
			}
		})
	}
	w := newWorld(t, 2, policy(possible)) // nobody waits for longer than a user asked for
	w.at("a:1")
	w.at("a:2")
	w.pod(0, "a:1")
	w.pod(1, "a:2", in(pub.LifecycleStateUpdating), func(pod *corev1.Pod) {
		pod.Annotations = map[string]string{pub.InPlaceUpdateGrace: `{"revision":"` + w.revisions["a:2"] + `","graceSeconds":60}`,
			pub.InPlaceUpdateState: `{"revision":"` + w.revisions["a:2"] + `","updateTimestamp":"2026-01-02T03:04:00Z"}`}
	})
	if wait := Make(w.Snapshot).Waiting; wait != nil {
		t.Errorf("in its grace period: %v", wait)
	}
}

// TestABrokenPodBelowThePartitionIsNamed: a pod that the partition keeps, and that never became ready, uses
// up maxUnavailable: nobody would find it among those that wait for their turn (OPS-099 (part)).
func TestABrokenPodBelowThePartitionIsNamed(t *testing.T) {
	w := newWorld(t, 3, inParallel, policy(possible), partition(1))
	w.at("a:1")
	w.at("a:2")
	w.pod(0, "a:1", func(pod *corev1.Pod) {
		notReady(pod)
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main",
			State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}}}
	})
	w.pod(1, "a:1")
	w.pod(2, "a:1")
	wait := Make(w.Snapshot).Waiting
	if wait == nil {
		t.Error("wait: got nil, want a value")
	} else if !strings.HasPrefix(wait.String(), "MaxUnavailable: ") {
		t.Errorf("wait: got %q, want it to begin with %q", wait.String(), "MaxUnavailable: ")
	} else if !strings.HasSuffix(wait.String(), ". pod web-0: container main: CrashLoopBackOff") {
		t.Errorf("wait: got %q, want it to end with %q", wait.String(), ". pod web-0: container main: CrashLoopBackOff")
	}
}
