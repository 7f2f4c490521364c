package controller

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/readiness"
	"github.com/afloat-project/afloat/internal/kinds/cloneset"
	"github.com/afloat-project/afloat/internal/kinds/cloneset/clonesettest"
	"github.com/afloat-project/afloat/internal/simulation"
)

// meanwhile lets something happen to the other pods at each opening of a gate, which the caches show at once,
// and counts the openings, and those of them for a version that is not the newest.
func (s *simulated) meanwhile(happens func(name string)) (openings, late *int) {
	openings, late = new(int), new(int)
	s.Answer = func(r *simulation.Request) error {
		if r.Verb != "patch" || r.Key.Kind != "Pod" || r.Subresource != "status" {
			return nil
		}
		*openings++
		if !strings.Contains(string(r.Body), `"resourceVersion":"`+s.Get(r.Key).GetResourceVersion()+`"`) {
			*late++
		}
		for _, pod := range s.active() {
			if pod.Name != r.Key.Name {
				happens(pod.Name)
			}
		}
		s.Deliver(s.Undelivered())
		return nil
	}
	return openings, late
}

// TestReportsOfKubeletDoNotRefuseOpenings: pods of a pass wait for each other, and kubelet reports of them
// meanwhile. A third of all openings of gates were refused, and sent again, because they were for the version
// that the plan had seen (IPU-133 (part)).
func TestReportsOfKubeletDoNotRefuseOpenings(t *testing.T) {
	s := simulate(1, clonesettest.Set(10), cloneset.Features{})
	openings, late := s.meanwhile(func(name string) { s.Node.Step(name) })
	if err := s.Settle(200); err != nil {
		t.Fatal(err)
	}
	if *openings < 10 {
		t.Errorf("*openings: got %d, want at least 10; %d of %d openings were for an old version", *openings, *late, *openings)
	} else if *late > 0 {
		t.Errorf("*late: got %d, want 0; %d of %d openings were for an old version", *late, *late, *openings)
	}
}

// TestAGateThatAnotherWriterClosedIsNotOpened: another writer, such as the leader before this one, closes
// gates of pods after they were planned to be opened. The pass does not open them again, whether the caches
// show already what happened or not (IPU-133 (part)).
func TestAGateThatAnotherWriterClosedIsNotOpened(t *testing.T) {
	for name, shown := range map[string]bool{"the caches show it": true, "the caches do not show it": false} {
		t.Run(name, func(t *testing.T) {
			s := simulate(1, clonesettest.Set(10), cloneset.Features{})
			closed := map[string]bool{}
			s.Answer = func(r *simulation.Request) error {
				if r.Verb != "patch" || r.Key.Kind != "Pod" || r.Subresource != "status" || len(closed) > 0 {
					return nil
				}
				for _, pod := range s.active() {
					if pod.Name != r.Key.Name {
						closed[pod.Name] = true
						s.Change(podKey(pod.Name), func(o client.Object) {
							status := &o.(*corev1.Pod).Status
							status.Conditions = append(status.Conditions, corev1.PodCondition{Type: pub.InPlaceUpdateReady,
								Status: corev1.ConditionFalse, Reason: readiness.ReasonStartInPlaceUpdate})
						})
					}
				}
				if shown {
					s.Deliver(s.Undelivered())
				}
				return nil
			}
			for range 100 {
				if _, _, err := s.Once(); err != nil {
					t.Fatal(err)
				}
				if len(closed) > 0 {
					break
				}
				s.EnvironmentStep()
				s.Pass(time.Second)
				s.Deliver(s.Undelivered())
			}
			for _, pod := range s.active() {
				if c := readiness.Condition(pod, pub.InPlaceUpdateReady); closed[pod.Name] && c.Status != corev1.ConditionFalse {
					t.Errorf("pod %s is open again", pod.Name)
				}
			}
			if len(closed) != 9 {
				t.Errorf("%d were closed", len(closed))
			}
		})
	}
}

// TestAPodThatBecameReadyIsNotPreparedAtOnce: pods that are down cost nothing when their update is prepared,
// but one that became ready since the plan does: what was decided about it is not carried out on its newer
// version (CS-102 (part)).
func TestAPodThatBecameReadyIsNotPreparedAtOnce(t *testing.T) {
	set := clonesettest.Set(3, clonesettest.MaxUnavailable(2), func(set *appsv1beta1.CloneSet) {
		set.Spec.Lifecycle = &pub.Lifecycle{InPlaceUpdate: &pub.LifecycleHook{LabelsHandler: map[string]string{"app": "web"}}}
	})
	s := atRest(t, set, cloneset.Features{})
	ready := func(name string, status corev1.ConditionStatus) {
		s.Change(podKey(name), func(o client.Object) { readiness.Condition(o.(*corev1.Pod), corev1.PodReady).Status = status })
	}
	for _, pod := range s.active()[1:] {
		ready(pod.Name, corev1.ConditionFalse)
	}
	s.Edit(clonesettest.Image("nginx:2"))
	s.Deliver(s.Undelivered())
	prepared, newer := 0, 0
	s.Answer = func(r *simulation.Request) error {
		if r.Verb != "patch" || r.Key.Kind != "Pod" || !strings.Contains(string(r.Body), string(pub.LifecycleStatePreparingUpdate)) {
			return nil
		}
		if prepared++; prepared == 1 {
			for _, pod := range s.active() {
				if pod.Name != r.Key.Name {
					ready(pod.Name, corev1.ConditionTrue)
				}
			}
			s.Deliver(s.Undelivered())
		} else if strings.Contains(string(r.Body), `"resourceVersion":"`+s.Get(r.Key).GetResourceVersion()+`"`) {
			newer++
		}
		return nil
	}
	for range 3 { // the revision comes first
		if _, _, err := s.Once(); err != nil {
			t.Fatal(err)
		}
		if prepared > 0 {
			break
		}
		s.Deliver(s.Undelivered())
	}
	if prepared < 2 {
		t.Errorf("prepared: got %d, want at least 2", prepared)
	}
	if newer > 0 {
		t.Errorf("newer: got %d, want 0", newer)
	}
}
