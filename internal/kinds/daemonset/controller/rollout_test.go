package controller

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/readiness"
	"github.com/afloat-project/afloat/internal/simulation"
)

// TestSurgeWaitsForMinReadySeconds shows ADS-163: the old pod goes when the new one has been ready for
// minReadySeconds, although nothing happens then but that time passes.
func TestSurgeWaitsForMinReadySeconds(t *testing.T) {
	s := started(t, makeSet(maxSurge(1), func(set *appsv1beta1.DaemonSet) { set.Spec.MinReadySeconds = 30 }), everything, "n1", "n2")
	begun := s.Now()
	var gone []time.Duration
	s.BeforeWrite = func(w simulation.Write, before, _ client.Object) {
		if w.Verb != "delete" {
			return
		}
		gone = append(gone, s.Now().Sub(begun))
		for _, pod := range s.PodsOn(before.(*corev1.Pod).Spec.NodeName) {
			if c := readiness.Condition(pod, corev1.PodReady); pod.Name != before.GetName() &&
				s.Now().Sub(c.LastTransitionTime.Time) < 30*time.Second {
				t.Errorf("the new pod is ready since %s", c.LastTransitionTime)
			}
		}
		if got := len(s.PodsOn("n1")) + len(s.PodsOn("n2")); got != 3 {
			t.Errorf("number of pods on n1 and pods on n2: got %d, want 3\n%s", got, s.describe())
		}
	}
	s.Edit(image("agent:2"))
	s.RunFor(5 * time.Minute)
	if got := s.images(); got != "2 2" {
		t.Errorf("images: got %q, want %q; old pods go after %v: %s", got, "2 2", gone, s.describe())
	} else if len(gone) != 2 {
		t.Errorf("number gone: got %d, want 2; old pods go after %v: %s", len(gone), gone, s.describe())
	} else if gone[1] > 80*time.Second {
		t.Errorf("second gone: got %v, want at most %v; old pods go after %v: %s", gone[1], 80*time.Second, gone,
			s.describe())
	}
}

// TestAPausedRollout shows ADS-171 and ADS-142: nothing is updated while paused, but nodes that come get a
// pod, those that are tainted lose theirs, failed pods are replaced, second pods are cleaned up, and what was
// updated before comes into service. It is not taken back.
func TestAPausedRollout(t *testing.T) {
	s := started(t, makeSet(inPlace), everything, "n1", "n2", "n3", "n4")
	s.Edit(image("agent:2"))
	for s.images() != "1 1 1 2" {
		s.Round()
	}
	s.Edit(paused(true))
	s.addNode("n5", nil)
	s.taint("n1", "broken", corev1.TaintEffectNoExecute)
	s.Node.Fail(s.only(t, "n2").Name)
	s.RunFor(5 * time.Minute)
	if got := s.images(); got != " 2 1 2 2" {
		t.Errorf("images: got %q, want %q\n%s", got, " 2 1 2 2", s.describe())
	}
	if got := s.set().Status.NumberAvailable; got != 4 {
		t.Errorf("available pods: got %d, want 4\n%s", got, s.describe())
	}
	if c := readiness.Condition(s.only(t, "n4"), pub.InPlaceUpdateReady); c == nil {
		t.Error("the pod on n4 has no condition about updates in place")
	} else if c.Status != corev1.ConditionTrue {
		t.Errorf("update in place of the pod on n4: got %q, want %q\n%+v", c.Status, corev1.ConditionTrue, c)
	}
	s.Edit(paused(false))
	s.RunFor(5 * time.Minute)
	if got := s.images(); got != " 2 2 2 2" {
		t.Errorf("images: got %q, want %q\n%s", got, " 2 2 2 2", s.describe())
	}
	s = started(t, makeSet(maxSurge(1)), everything, "n1", "n2")
	s.Edit(image("agent:2"))
	for len(s.PodsOn("n2")) < 2 {
		s.Round()
	}
	s.Edit(paused(true))
	s.RunFor(5 * time.Minute)
	if got := s.images(); got != "1 2" {
		t.Errorf("images: got %q, want %q\n%s", got, "1 2", s.describe())
	}
}

// TestOnDeletePodsStayUntilSomebodyDeletesThem shows ADS-170: pods stay until somebody deletes them, and come
// back at the current revision.
func TestOnDeletePodsStayUntilSomebodyDeletesThem(t *testing.T) {
	s := started(t, makeSet(onDelete), everything, "n1", "n2")
	s.Edit(image("agent:2"))
	s.RunFor(5 * time.Minute)
	if got := s.images(); got != "1 1" {
		t.Errorf("images: got %q, want %q\n%s", got, "1 1", s.describe())
	}
	s.EndGracefully(podKey(s.only(t, "n1").Name))
	s.RunFor(time.Minute)
	if got := s.images(); got != "2 1" {
		t.Errorf("images: got %q, want %q\n%s", got, "2 1", s.describe())
	}
	if got := s.set().Status.UpdatedNumberScheduled; got != 1 {
		t.Errorf("updated pods: got %d, want 1\n%s", got, s.describe())
	}
}

// TestBurstReplicasFollow shows ADS-110 (part): what is beyond burstReplicas follows in later passes, without
// an event.
func TestBurstReplicasFollow(t *testing.T) {
	var nodes []string
	for i := range 20 {
		nodes = append(nodes, fmt.Sprint("n", i+10))
	}
	few := intstr.FromString("16%") // three of twenty
	s := simulate(1, makeSet(func(set *appsv1beta1.DaemonSet) { set.Spec.BurstReplicas = &few }), everything, nodes...)
	s.Events(1 << 20)
	for created := 0; created < 20; {
		s.Pass(time.Second)
		if !s.Manage() {
			t.Fatalf("nobody calls the set after %d pods", created)
		}
		n := len(s.AllPods()) - created
		if n > 3 {
			t.Errorf("%d pods are created in a pass", n)
		}
		created += n
	}
}
