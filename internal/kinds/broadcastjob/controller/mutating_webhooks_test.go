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
	s.runFor(10 * time.Minute)
	if n := s.countEvents("FailedCreate"); created > 20 || n != created || len(s.pods()) > 0 || s.job().Status.Active != 0 {
		t.Errorf("%d created, %d told, %d left, %+v", created, n, len(s.pods()), s.job().Status)
	}
	keeps = true
	s.runFor(10 * time.Minute)
	if keeps || len(s.pods()) > 0 {
		t.Errorf("what a manager left behind that died stays: %s", s.describe())
	}
	s.Answer = nil
	s.runFor(10 * time.Minute)
	if s.job().Status.Phase != appsv1beta1.BroadcastJobCompleted || s.job().Status.Succeeded != 3 {
		t.Error(s.describe())
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
	s.runFor(10 * time.Minute)
	if created != 3 || s.job().Status.Phase != appsv1beta1.BroadcastJobCompleted || s.job().Status.Succeeded != 3 {
		t.Errorf("%d created: %s", created, s.describe())
	}
}
