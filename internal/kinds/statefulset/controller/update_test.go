package controller

import (
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/kinds/statefulset"
)

// TestUpdatesThatTheCachesDoNotShow shows ASTS-119: as long as the caches show nothing of the updates that
// were begun, no more are begun than maxUnavailable lets, whether or not their answers came, also when a pod
// has disappeared meanwhile. Nothing stalls by that.
func TestUpdatesThatTheCachesDoNotShow(t *testing.T) {
	for name, lost := range map[string]float64{"answered": 0, "the answers are lost": 1} {
		for _, most := range []int{1, 2} {
			t.Run(name, func(t *testing.T) {
				s := simulate(1, makeSet(5, inPlace, inParallel, func(set *appsv1beta1.StatefulSet) {
					set.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable = number(most)
				}), statefulset.Features{})
				s.ActFor(time.Minute)
				s.Edit(image("nginx:2"))
				s.Events(100)
				blind := func() {
					for range 60 {
						s.Queue.Add()
						s.Manage()
						s.Pass(time.Second)
					}
				}
				s.Faults.Lose = lost
				blind()
				s.Faults.Lose = 0
				blind()
				n := s.moved()
				if n != most {
					t.Errorf("moved: got %d, want %d", n, most)
				}
				if got := s.Undelivered(); got == 0 {
					t.Errorf("undelivered changes: got %d, want another value", got)
				}
				s.Remove(podKey("web-4"))
				blind()
				if n := s.moved(); n > most {
					t.Errorf("%d pods are updated, and one is gone", n)
				}
				s.ActFor(5 * time.Minute)
				if is := s.set().Status; is.UpdatedAvailableReplicas != 5 {
					t.Errorf("it stands still: %s", s.describe())
				}
			})
		}
	}
}

// TestPausedUpdatesAreCompleted shows ASTS-145: while updates are paused none begins, but what has begun is
// completed: its grace period ends, it gets its images, its hook lets it go, and it comes back into service.
func TestPausedUpdatesAreCompleted(t *testing.T) {
	hooked := func(image string) func(*appsv1beta1.StatefulSet) {
		return func(set *appsv1beta1.StatefulSet) {
			setTemplate(set, `{"metadata":{"labels":{"app":"web","held":"yes"}},
				"spec":{"containers":[{"name":"nginx","image":"`+image+`"}]}}`)
		}
	}
	for name, policy := range map[string]func(*appsv1beta1.StatefulSet){"ordered": inOrder, "parallel": inParallel} {
		t.Run(name, func(t *testing.T) {
			s := simulate(1, makeSet(3, inPlace, policy, hooked("nginx:1"), func(set *appsv1beta1.StatefulSet) {
				set.Spec.UpdateStrategy.RollingUpdate.InPlaceUpdateStrategy = &pub.InPlaceUpdateStrategy{GracePeriodSeconds: 30}
				set.Spec.Lifecycle = &pub.Lifecycle{InPlaceUpdate: &pub.LifecycleHook{LabelsHandler: map[string]string{"held": "yes"}}}
			}), statefulset.Features{})
			s.ActFor(time.Minute)
			before := s.uids()
			s.Edit(hooked("nginx:2"))
			s.ActFor(time.Second)
			s.Change(podKey("web-2"), func(o client.Object) { delete(o.GetLabels(), "held") })
			s.ActFor(10 * time.Second)
			state := func() string { return s.Pod("web-2").Labels[pub.LifecycleState] }
			if got := s.moved(); got > 0 {
				t.Fatalf("moved: got %d, want 0; it is %s before its grace period is over: %s", got, state(),
					s.describe())
			}
			if got := state(); got != "Updating" {
				t.Fatalf("state of the pod: got %q, want %q; it is %s before its grace period is over: %s", got,
					"Updating", state(), s.describe())
			}
			s.Edit(func(set *appsv1beta1.StatefulSet) { set.Spec.UpdateStrategy.RollingUpdate.Paused = true })
			s.ActFor(5 * time.Minute)
			if got := s.moved(); got != 1 {
				t.Errorf("moved: got %d, want 1; it is %s, and waits for its hook: %s", got, state(), s.describe())
			}
			if got := state(); got != "Updated" {
				t.Errorf("state of the pod: got %q, want %q; it is %s, and waits for its hook: %s", got, "Updated",
					state(), s.describe())
			}
			if got := s.set().Status.ReadyReplicas; got != 3 {
				t.Errorf("ready replicas: got %d, want 3; it is %s, and waits for its hook: %s", got, state(),
					s.describe())
			}
			if got := s.set().Status.AvailableReplicas; got != 2 {
				t.Errorf("available replicas: got %d, want 2; it is %s, and waits for its hook: %s", got, state(),
					s.describe())
			}
			s.Change(podKey("web-2"), func(o client.Object) { o.GetLabels()["held"] = "yes" })
			s.ActFor(5 * time.Minute)
			is := s.set().Status
			if got := s.moved(); got != 1 {
				t.Errorf("moved: got %d, want 1; it is %s: %s", got, state(), s.describe())
			}
			if got := state(); got != "Normal" {
				t.Errorf("state of the pod: got %q, want %q; it is %s: %s", got, "Normal", state(), s.describe())
			}
			if is.AvailableReplicas != 3 {
				t.Errorf("available replicas: got %d, want 3; it is %s: %s", is.AvailableReplicas, state(), s.describe())
			}
			if is.UpdatedReplicas != 1 {
				t.Errorf("updated replicas: got %d, want 1; it is %s: %s", is.UpdatedReplicas, state(), s.describe())
			}
			for ordinal, uid := range s.uids() {
				if before[ordinal] != uid {
					t.Errorf("pod %d is another one", ordinal)
				}
			}
		})
	}
}
