package controller

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/readiness"
	"github.com/afloat-project/afloat/internal/simulation"
)

// TestTheOrderOfAPass shows ADS-043: the revision is written before anything else, then image pulls, then
// pods, whose own writes no pass waits for, then what is left of the history, and the status last, with the
// generation.
func TestTheOrderOfAPass(t *testing.T) {
	s := pulling(t, true, maxUnavailable(2), func(set *appsv1beta1.DaemonSet) {
		none := int32(0)
		set.Spec.RevisionHistoryLimit = &none
	})
	s.storeRevision("agent-left", map[string]string{"app": "agent"})
	s.addNode("n9", nil)
	s.Edit(image("agent:2"))
	s.Events(1 << 20)
	s.Writes = nil
	for range 4 { // the caches show nothing of what is written
		s.Queue.Add()
		s.Manage()
	}
	var kinds []string
	for _, w := range s.Writes {
		word := strings.TrimSpace(w.Verb + " " + w.Key.Kind + " " + w.Subresource)
		if w.Key.Kind == "Pod" {
			word = "Pods"
		}
		if len(kinds) == 0 || kinds[len(kinds)-1] != word {
			kinds = append(kinds, word)
		}
	}
	want := []string{"patch ControllerRevision", "create ControllerRevision", "create ImagePullJob", "patch ControllerRevision", "Pods",
		"delete ControllerRevision", "patch DaemonSet status"}
	if !slices.Equal(kinds, want) {
		t.Errorf("kinds: got %q, want %q; %q, generation %d\n%s", kinds, want, kinds, s.set().Status.ObservedGeneration, s.describe())
	}
	if got, want := s.set().Status.ObservedGeneration, s.set().Generation; got != want {
		t.Errorf("observed generation: got %d, want %d; %q, generation %d\n%s", got, want, kinds,
			s.set().Status.ObservedGeneration, s.describe())
	}
	for paused, now := range map[bool]string{true: "1 1 1", false: "1 1 2"} { // n3 is updated, and nothing while paused
		s := started(t, makeSet(inPlace, rolling(func(r *appsv1beta1.RollingUpdateDaemonSet) { r.Paused = paused })), everything, "n1", "n2", "n3")
		s.edit(t, "n2", func(pod *corev1.Pod) { // whose gate is refreshed
			pod.Status.Conditions = slices.DeleteFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
				return c.Type == pub.InPlaceUpdateReady
			})
		})
		s.Edit(image("agent:2"))
		for range 5 {
			s.Events(1 << 20)
			s.Queue.Add()
			s.Manage()
		}
		if s.images() != now {
			t.Errorf("paused %t: got images %s, want %s", paused, s.images(), now)
		}
		if c := readiness.Condition(s.only(t, "n2"), pub.InPlaceUpdateReady); c == nil ||
			c.Status != corev1.ConditionTrue {
			t.Errorf("paused %t: got condition %+v, want the update in place ready", paused, c)
		}
	}
}

// TestUpdatesThatTheCachesDoNotShow shows ADS-045, ADS-110 (part), ADS-143 and ADS-135 (part): as long as the
// caches show nothing of what was written, nothing is done twice, and no more is begun than maxUnavailable
// lets, whether or not answers came. Nothing stalls by that, however long it takes.
func TestUpdatesThatTheCachesDoNotShow(t *testing.T) {
	for name, lost := range map[string]float64{"answered": 0, "the answers are lost": 1} {
		for _, option := range []option{inPlace, maxSurge(1), func(*appsv1beta1.DaemonSet) {}} {
			t.Run(name, func(t *testing.T) {
				s := started(t, makeSet(option), everything, "n1", "n2", "n3", "n4")
				blind := func() {
					for range 400 { // for longer than five minutes
						s.Queue.Add()
						s.Manage()
						s.Pass(time.Second)
					}
				}
				s.Edit(image("agent:2"))
				s.addNode("n5", nil)
				s.Events(100)
				s.Faults.Lose = lost
				blind()
				s.Faults.Lose = 0
				blind()
				touched := 0
				for _, node := range []string{"n1", "n2", "n3", "n4"} {
					pods := s.PodsOn(node)
					if len(pods) != 1 || pods[0].DeletionTimestamp != nil || pods[0].Spec.Containers[0].Image != "agent:1" {
						touched++
					}
				}
				if got := len(s.PodsOn("n5")); got != 1 {
					t.Errorf(`number of pods on n5: got %d, want 1; %d nodes are touched while nothing is seen: %s`, got,
						touched, s.describe())
				}
				if touched > 1 {
					t.Errorf("touched: got %d, want at most 1; %d nodes are touched while nothing is seen: %s", touched, touched, s.describe())
				}
				if got := s.Undelivered(); got == 0 {
					t.Errorf("undelivered changes: got %d, want another value; %d nodes are touched while nothing is seen: %s", got, touched, s.describe())
				}
				s.RunFor(5 * time.Minute)
				if s.images() != "2 2 2 2 2" {
					t.Errorf("it stands still: %s", s.describe())
				}
			})
		}
	}
}

// TestALostAnswerIsSettledWithinSeconds shows ADS-045 (part): whatever write has its answer lost, what became
// of it is found out at once.
func TestALostAnswerIsSettledWithinSeconds(t *testing.T) {
	for n := range 6 {
		s := simulate(1, makeSet(), everything, "n1", "n2", "n3")
		count := 0
		s.BeforeWrite = func(simulation.Write, client.Object, client.Object) {
			if s.Faults.Lose = 0; count == n {
				s.Faults.Lose = 1
			}
			count++
		}
		s.RunFor(15 * time.Second)
		if got := len(s.AllPods()); got != 3 {
			t.Errorf("number of pods: got %d, want 3; write %d: %q %s", got, n+1, s.Recorded, s.describe())
		}
		if got := s.set().Status.NumberAvailable; got != 3 {
			t.Errorf("available pods: got %d, want 3; write %d: %q %s", got, n+1, s.Recorded, s.describe())
		}
		if got := len(s.EventsWith("SuccessfulCreate")); got > 3 {
			t.Errorf(`number of events SuccessfulCreate: got %d, want at most 3; write %d: %q %s`, got, n+1, s.Recorded,
				s.describe())
		}
	}
}
