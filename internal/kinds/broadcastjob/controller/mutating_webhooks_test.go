package controller

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/simulation"
)

// A webhook that rewrites the affinity of pods does not make a job without bound create pods that are meant
// for no node: it tries one now and then, says why, and goes on when it can.
func TestPodsThatAdmissionLeadsAstray(t *testing.T) {
	s := simulate(1, makeJob(), "n1", "n2", "n3")
	created, keeps := 0, false
	s.Answer = func(r *simulation.Request) error {
		if r.Verb == "create" && r.Key.Kind == "Pod" {
			if created++; created > 1000 {
				t.Fatal("pods are created without end")
			}
			unstructured.RemoveNestedField(r.Object.(*unstructured.Unstructured).Object, "spec", "affinity")
		}
		if r.Verb == "delete" && keeps {
			keeps = false
			return simulation.ErrDead
		}
		return nil
	}
	s.RunFor(10 * time.Minute)
	n := s.countEvents("FailedCreate")
	if created > 20 {
		t.Errorf("created: got %d, want at most 20; %d created, %d told, %d left, %+v", created, created, n, len(s.AllPods()), s.job().Status)
	}
	if n != created {
		t.Errorf(`number of events FailedCreate: got %d, want %d; %d created, %d told, %d left, %+v`, n, created,
			created, n, len(s.AllPods()),
			s.job().Status)
	}
	if got := len(s.AllPods()); got > 0 {
		t.Errorf("pods: got %d, want none; %d created, %d told, %d left, %+v", got, created, n, len(s.AllPods()),
			s.job().Status)
	}
	if got := s.job().Status.Active; got != 0 {
		t.Errorf("active: got %d, want 0; %d created, %d told, %d left, %+v", got, created, n, len(s.AllPods()),
			s.job().Status)
	}
	keeps = true
	s.RunFor(10 * time.Minute)
	if keeps {
		t.Errorf("what a manager left behind that died stays: keeps: got true, want false\n%s", s.describe())
	}
	if got := len(s.AllPods()); got > 0 {
		t.Errorf("what a manager left behind that died stays: pods: got %d, want none\n%s", got, s.describe())
	}
	s.Answer = nil
	s.RunFor(10 * time.Minute)
	if got := s.job().Status.Phase; got != appsv1beta1.BroadcastJobCompleted {
		t.Errorf("phase: got %q, want %q\n%s", got, appsv1beta1.BroadcastJobCompleted, s.describe())
	}
	if got := s.job().Status.Succeeded; got != 3 {
		t.Errorf("succeeded: got %d, want 3\n%s", got, s.describe())
	}
}

// A policy that strips the labels of pods does not make a job create a pod for the same node again and again.
func TestPodsWhoseLabelsAreStripped(t *testing.T) {
	s := simulate(1, makeJob(), "n1", "n2", "n3")
	created := 0
	s.Answer = func(r *simulation.Request) error {
		if r.Verb == "create" && r.Key.Kind == "Pod" {
			if created++; created > 100 {
				t.Fatal("pods are created without end")
			}
			unstructured.RemoveNestedField(r.Object.(*unstructured.Unstructured).Object, "metadata", "labels")
		}
		return nil
	}
	s.RunFor(10 * time.Minute)
	if created != 3 {
		t.Errorf("created: got %d, want 3; %d created: %s", created, created, s.describe())
	}
	if got := s.job().Status.Phase; got != appsv1beta1.BroadcastJobCompleted {
		t.Errorf("phase: got %q, want %q; %d created: %s", got, appsv1beta1.BroadcastJobCompleted, created,
			s.describe())
	}
	if got := s.job().Status.Succeeded; got != 3 {
		t.Errorf("succeeded: got %d, want 3; %d created: %s", got, created, s.describe())
	}
}
