package controller

import (
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/afloat-project/afloat/internal/kinds/cloneset"
	"github.com/afloat-project/afloat/internal/kinds/cloneset/clonesettest"
	"github.com/afloat-project/afloat/internal/simulation"
)

func (s *simulated) playFor(d time.Duration) {
	start := s.Now()
	for s.Now().Sub(start) < d {
		if !s.Round() {
			due := s.Queue.Due().Sub(s.Now())
			if due <= 0 || due > d {
				return
			}
			s.Pass(due)
		}
	}
}

// A policy refuses the deletion of one pod. Scaling in takes another one (CS-136).
func TestScaleInTakesAnotherPodThanAProtectedOne(t *testing.T) {
	s := simulate(1, clonesettest.Set(5, clonesettest.MaxUnavailable(2)), cloneset.Features{})
	if err := s.Settle(100); err != nil {
		t.Fatal(err)
	}
	protected := ""
	s.Answer = func(r *simulation.Request) error {
		if r.Verb == "delete" && r.Key.Kind == "Pod" {
			if protected == "" {
				protected = r.Key.Name
			}
			if r.Key.Name == protected {
				return apierrors.NewForbidden(corev1.Resource("pods"), r.Key.Name, errors.New("a policy says no"))
			}
		}
		return nil
	}
	s.Edit(clonesettest.Replicas(4))
	s.playFor(30 * time.Minute)
	if got := len(s.active()); got != 4 {
		t.Errorf("%d pods half an hour after scaling to 4; %s is protected: %s", got, protected, s.describe())
	}
}

// Creation at the current revision is refused, by a policy that is newer than it. Pods of the update revision
// are created all the same.
func TestARefusedOldRevisionHoldsUpNoPodOfTheNewOne(t *testing.T) {
	s := simulate(1, clonesettest.Set(6, clonesettest.MaxUnavailable(6), clonesettest.Partition(3)), cloneset.Features{})
	if err := s.Settle(100); err != nil {
		t.Fatal(err)
	}
	s.Edit(clonesettest.Image("nginx:2"))
	if err := s.Settle(100); err != nil {
		t.Fatal(err)
	}
	if got := s.set().Status.UpdatedReplicas; got != 3 {
		t.Fatalf("%d updated", got)
	}
	s.Answer = func(r *simulation.Request) error {
		if r.Verb != "create" || r.Key.Kind != "Pod" {
			return nil
		}
		body, err := r.Object.(*unstructured.Unstructured).MarshalJSON()
		if err == nil && strings.Contains(string(body), `"nginx:1"`) {
			return apierrors.NewForbidden(corev1.Resource("pods"), r.Key.Name, errors.New("nginx:1 has a CVE"))
		}
		return nil
	}
	for _, pod := range s.active() { // all nodes are lost
		s.Remove(podKey(pod.Name))
	}
	s.playFor(30 * time.Minute)
	if got := len(s.active()); got < 3 {
		t.Errorf("%d pods, want the 3 of the new revision: %s", got, s.describe())
	}
}

// A webhook changes a label of new pods by which the set selects its pods.
func TestAWebhookThatChangesTheSelectedLabelMakesNoPodsWithoutEnd(t *testing.T) {
	s := simulate(1, clonesettest.Set(3), cloneset.Features{})
	s.Answer = func(r *simulation.Request) error {
		if r.Verb == "create" && r.Key.Kind == "Pod" {
			labels := r.Object.GetLabels()
			labels["app"] = "web-canary"
			r.Object.SetLabels(labels)
		}
		return nil
	}
	for range 60 {
		if !s.Round() {
			break
		}
	}
	if got := len(s.AllPods()); got > 20 {
		t.Errorf("%d pods of a set of 3; events %q", got, s.Recorded[max(len(s.Recorded)-3, 0):])
	}
}
