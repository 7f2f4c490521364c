package controller

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/kinds/sidecarset"
	"github.com/afloat-project/afloat/internal/kinds/sidecarset/sidecarsettest"
	"github.com/afloat-project/afloat/internal/simulation"
)

// TestOneRefusedPodDoesNotFreezeTheStatus: a pod is refused for hours, so that passes fail. The status
// follows the other pods all the same, as fast as ever (CS-076, SS-204, SS-230).
func TestOneRefusedPodDoesNotFreezeTheStatus(t *testing.T) {
	s := simulate(1, sidecarsettest.Set(sidecarsettest.AllAtOnce), 2)
	s.Refused = func(w simulation.Write) bool { return w.Key.Name == "web-0" }
	if err := s.Settle(50); err != nil {
		t.Fatal(err)
	}
	s.change(sidecarsettest.Image("proxy", "proxy:2"))
	for end := s.Now().Add(3 * time.Hour); s.Now().Before(end); {
		if !s.Round() && !s.Queue.Wait() {
			t.Fatal("the refused pod is given up", s.describe())
		}
	}
	for range 3 {
		for _, is := range []bool{false, true} {
			s.Change(podKey("web-1"), func(o client.Object) { sidecarsettest.Ready(o.(*corev1.Pod), is) })
			s.Events(1 << 20)
			for s.Manage() {
			}
		}
		changed := s.Now()
		for s.set().Status.UpdatedReadyPods != 1 && s.Queue.Wait() {
			s.Manage()
			s.Events(1 << 20)
		}
		late := s.Now().Sub(changed)
		if got := s.set().Status.UpdatedReadyPods; got != 1 {
			t.Errorf("updated and ready pods: got %d, want 1", got)
		}
		if late > time.Second {
			t.Errorf("time since the change: got %v, want at most %v", late, time.Second)
		}
		s.Pass(10 * time.Minute)
	}
}

// TestADueTimeBeatsTheBackOff: what a pass wants to come back for is not lost beside an error (CS-076).
func TestADueTimeBeatsTheBackOff(t *testing.T) {
	s := simulate(1, sidecarsettest.Set(sidecarsettest.AllAtOnce), 2)
	if err := s.Settle(50); err != nil {
		t.Fatal(err)
	}
	s.Refused = func(w simulation.Write) bool { return w.Key.Name == "web-0" }
	s.change(sidecarsettest.Image("proxy", "proxy:2"))
	s.Events(1 << 20)
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[ctrl.Request](time.Hour, time.Hour)
	loop := (&reconciler{pass: s.pass, meters: newMeters()}).controller().Loop(limiter)
	request := ctrl.Request{NamespacedName: types.NamespacedName{Name: "mesh"}}
	if _, err := loop.Reconcile(t.Context(), request); err == nil {
		t.Fatal("web-0 was not refused")
	}
	s.Events(1 << 20)
	s.Node.Step("web-1")
	s.Events(1 << 20)
	result, err := loop.Reconcile(t.Context(), request)
	if err == nil && result.RequeueAfter == 0 {
		t.Errorf("the pass ends with %+v, want it to come again: the status waits for an hour", result)
	}
	if err != nil && loop.BackOff().When(request) > time.Second {
		t.Errorf("the pass ends with %v, want it to come again within 1s: the status waits for an hour", err)
	}
}

// TestARefusedPodIsNotTriedAtEveryEvent: the other pods of a SidecarSet come and go, and every event calls
// for a pass. A pod that a policy refuses is tried again after a second and then less and less often, says so
// meanwhile, and is tried at once when the SidecarSet changes (SS-230).
func TestARefusedPodIsNotTriedAtEveryEvent(t *testing.T) {
	for name, set := range map[string]*appsv1beta1.SidecarSet{"an upgrade": sidecarsettest.Set(sidecarsettest.AllAtOnce),
		"a hot upgrade": sidecarsettest.Set(sidecarsettest.AllAtOnce,
			sidecarsettest.Containers(sidecarsettest.Hot("proxy", "proxy:1")))} {
		t.Run(name, func(t *testing.T) {
			s := simulate(1, set, 2)
			if err := s.Settle(50); err != nil {
				t.Fatal(err)
			}
			tried, because := 0, ""
			s.Refused = func(w simulation.Write) bool {
				if w.Key.Name == "web-0" {
					tried++
				}
				return w.Key.Name == "web-0"
			}
			s.told = func(plan *sidecarset.Plan) {
				for _, v := range plan.Verdicts {
					if v.Pod.Name == "web-0" && v.Reason == sidecarset.ReasonRefused {
						because = v.Message
					}
				}
			}
			s.change(sidecarsettest.Image("proxy", "proxy:2"))
			for i := range 300 {
				s.Change(podKey("web-1"), func(o client.Object) { sidecarsettest.Ready(o.(*corev1.Pod), i%2 == 0) })
				s.Round()
				s.Pass(100 * time.Millisecond)
			}
			if tried < 4 {
				t.Errorf("tried: got %d, want at least 4", tried)
			}
			if tried > 6 {
				t.Errorf("tried: got %d, want at most 6", tried)
			}
			if !strings.Contains(because, "refused by the simulation") {
				t.Errorf("because: got %q, want it to contain %q", because, "refused by the simulation")
			}
			tried = 0
			s.change(sidecarsettest.Image("proxy", "proxy:3"))
			s.Round()
			if tried != 1 {
				t.Errorf("tried %d times with another image", tried)
			}
			s.Refused = nil
			if err := s.Settle(100); err != nil {
				t.Errorf("coming to rest: unexpected error: %v\n%s", err, s.describe())
			} else if got := s.set().Status.UpdatedReadyPods; got != 2 {
				t.Errorf("updated and ready pods: got %d, want 2\n%v\n%s", got, err, s.describe())
			}
		})
	}
}

// TestAConditionThatCannotBeWrittenIsNotTriedAtEveryEvent: likewise for what a pod's condition says (SS-260,
// SS-261).
func TestAConditionThatCannotBeWrittenIsNotTriedAtEveryEvent(t *testing.T) {
	for name, change := range map[string]func(*simulated){
		"not upgradable": func(s *simulated) {
			s.change(func(set *appsv1beta1.SidecarSet) { set.Spec.Containers[0].Command = []string{"other"} })
		},
		"not matched any more": func(s *simulated) {
			s.Change(podKey("web-0"), func(o client.Object) {
				pod := o.(*corev1.Pod)
				pod.Labels["app"] = "other"
				pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: pub.SidecarSetUpgradable,
					Status: corev1.ConditionTrue, Message: `{"mesh":true}`})
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := simulate(1, sidecarsettest.Set(), 2)
			if err := s.Settle(50); err != nil {
				t.Fatal(err)
			}
			tried := 0
			s.Refused = func(w simulation.Write) bool {
				if w.Key.Name == "web-0" {
					tried++
				}
				return w.Key.Name == "web-0"
			}
			change(s)
			for i := range 300 {
				s.Change(podKey("web-1"), func(o client.Object) { sidecarsettest.Ready(o.(*corev1.Pod), i%2 == 0) })
				s.Round()
				s.Pass(100 * time.Millisecond)
			}
			if tried < 4 {
				t.Errorf("tried: got %d, want at least 4", tried)
			}
			if tried > 6 {
				t.Errorf("tried: got %d, want at most 6", tried)
			}
		})
	}
}

// TestRefusedUpgradesAreNotCounted: afloat_sidecarset_pod_actions_total tells what was done, not what was
// planned (SS-264).
func TestRefusedUpgradesAreNotCounted(t *testing.T) {
	s := simulate(1, sidecarsettest.Set(sidecarsettest.AllAtOnce), 3)
	if err := s.Settle(50); err != nil {
		t.Fatal(err)
	}
	s.Refused = func(w simulation.Write) bool {
		return w.Key.Name == "web-0" || w.Key.Name == "web-1" && w.Subresource == "status"
	}
	s.change(sidecarsettest.Image("proxy", "proxy:2"))
	r := &reconciler{pass: s.pass, meters: newMeters()}
	s.pass.AtMost = 0
	loop := r.controller().Loop(nil)
	for range 20 {
		s.Events(1 << 20)
		_, _ = loop.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: "mesh"}})
		s.Pass(time.Minute)
	}
	if n := testutil.ToFloat64(r.meters.actions.WithLabelValues("upgrade")); n != 2 {
		t.Errorf("2 pods were upgraded, %v are counted", n)
	}
}

// TestARevisionThatIsRefusedIsNotTriedAtEveryEvent: nor is a revision that cannot be stored, or deleted, as
// long as the SidecarSet stays as it is (SS-183).
func TestARevisionThatIsRefusedIsNotTriedAtEveryEvent(t *testing.T) {
	for _, verb := range []string{"create", "delete"} {
		t.Run(verb, func(t *testing.T) { refusedRevision(t, verb) })
	}
}

func refusedRevision(t *testing.T, verb string) {
	s := simulate(1, sidecarsettest.Set(func(set *appsv1beta1.SidecarSet) { set.Spec.RevisionHistoryLimit = new(int32(1)) }), 2)
	if err := s.Settle(50); err != nil {
		t.Fatal(err)
	}
	tried := 0
	s.Refused = func(w simulation.Write) bool {
		if w.Key.Kind == "ControllerRevision" && w.Verb == verb {
			tried++
			return true
		}
		return false
	}
	s.change(sidecarsettest.Image("proxy", "proxy:2"))
	for i := range 300 {
		s.Change(podKey("web-1"), func(o client.Object) { sidecarsettest.Ready(o.(*corev1.Pod), i%2 == 0) })
		s.Round()
		s.Pass(100 * time.Millisecond)
	}
	if tried < 4 {
		t.Errorf("tried: got %d, want at least 4", tried)
	}
	if tried > 6 {
		t.Errorf("tried: got %d, want at most 6", tried)
	}
	s.Refused = nil
	if err := s.Settle(100); err != nil {
		t.Errorf("coming to rest: unexpected error: %v\n%s", err, s.describe())
	} else if got := s.set().Status.UpdatedReadyPods; got != 2 {
		t.Errorf("updated and ready pods: got %d, want 2\n%v\n%s", got, err, s.describe())
	}
}
