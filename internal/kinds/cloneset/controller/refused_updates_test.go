package controller

import (
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/lifecycle"
	"github.com/afloat-project/afloat/internal/engine/readiness"
	"github.com/afloat-project/afloat/internal/kinds/cloneset"
	"github.com/afloat-project/afloat/internal/kinds/cloneset/clonesettest"
	"github.com/afloat-project/afloat/internal/simulation"
)

func protect(name *string) func(r *simulation.Request) error {
	return func(r *simulation.Request) error {
		if r.Verb == "delete" && r.Key.Kind == "Pod" {
			if *name == "" {
				*name = r.Key.Name
			}
			if r.Key.Name == *name {
				return apierrors.NewForbidden(corev1.Resource("pods"), r.Key.Name, errors.New("a policy says no"))
			}
		}
		return nil
	}
}

// A policy protects one pod from deletion: the others are recreated (CS-136, CS-072).
func TestAProtectedPodDoesNotStopTheRecreationOfOthers(t *testing.T) {
	for _, most := range []int{1, 2} {
		s := simulate(1, clonesettest.Set(5, clonesettest.MaxUnavailable(most),
			clonesettest.Policy(appsv1beta1.ReCreateCloneSetPodUpdatePolicy)), cloneset.Features{})
		if err := s.Settle(100); err != nil {
			t.Fatal(err)
		}
		protected := ""
		s.Answer = protect(&protected)
		s.Edit(clonesettest.Image("nginx:2"))
		s.playFor(time.Hour)
		if got := s.set().Status.UpdatedReplicas; got < 4 {
			t.Errorf("maxUnavailable %d: %d of 4 updated; %s is protected: %s", most, got, protected, s.describe())
		}
	}
}

// A pod that a user wants gone is protected by a policy: updates in place of the others go on (CS-072).
func TestAProtectedSpecifiedPodDoesNotStopUpdatesInPlace(t *testing.T) {
	for _, most := range []int{1, 2} {
		s := simulate(1, clonesettest.Set(5, clonesettest.MaxUnavailable(most)), cloneset.Features{})
		if err := s.Settle(100); err != nil {
			t.Fatal(err)
		}
		protected := s.active()[0].Name
		s.Answer = protect(&protected)
		s.Change(podKey(protected), func(o client.Object) { o.GetLabels()[pub.SpecifiedDelete] = "true" })
		s.playFor(2 * time.Minute)
		s.Edit(clonesettest.Image("nginx:2"))
		s.playFor(time.Hour)
		if got := s.set().Status.UpdatedReplicas; got < 4 {
			t.Errorf("maxUnavailable %d: %d of 4 updated; %s is protected: %s", most, got, protected, s.describe())
		}
	}
}

// Scaling in fails, because a policy protects the pod that was chosen: updates go on (CS-072).
func TestScaleInThatFailsDoesNotStopUpdates(t *testing.T) {
	s := simulate(1, clonesettest.Set(5, clonesettest.MaxUnavailable(2)), cloneset.Features{})
	if err := s.Settle(100); err != nil {
		t.Fatal(err)
	}
	s.Answer = func(r *simulation.Request) error {
		if r.Verb == "delete" && r.Key.Kind == "Pod" {
			return apierrors.NewForbidden(corev1.Resource("pods"), r.Key.Name, errors.New("a policy says no"))
		}
		return nil
	}
	s.Edit(clonesettest.Both(clonesettest.Replicas(4), clonesettest.Image("nginx:2")))
	s.playFor(10 * time.Minute)
	if got := s.set().Status.UpdatedReplicas; got < 4 {
		t.Errorf("%d pods updated in place: %s", got, s.describe())
	}
}

// IPU-184: while updates are refused, pods that were taken out of service for it are put back, also where a
// hook took them out.
func TestHookedPodsAreNotPreparedWhileUpdatesAreRefused(t *testing.T) {
	s := simulate(1, clonesettest.Set(5, clonesettest.MaxUnavailable(3), clonesettest.UpdateHook(true), clonesettest.HookedImage("nginx:1")),
		cloneset.Features{})
	if err := s.Settle(100); err != nil {
		t.Fatal(err)
	}
	s.Answer = forbidding
	s.Edit(clonesettest.HookedImage("nginx:2"))
	start, out := s.Now(), 0
	for s.Now().Sub(start) < 20*time.Minute {
		for _, pod := range s.active() { // the operator
			switch state := lifecycle.State(pod); {
			case state == pub.LifecycleStatePreparingUpdate && pod.Labels["traffic"] == "on":
				s.Change(podKey(pod.Name), func(o client.Object) { delete(o.GetLabels(), "traffic") })
			case state == pub.LifecycleStateUpdated && pod.Labels["traffic"] != "on":
				s.Change(podKey(pod.Name), func(o client.Object) { o.GetLabels()["traffic"] = "on" })
			}
		}
		if !s.Round() {
			s.Pass(5 * time.Second)
		}
		down := 0
		for _, pod := range s.active() {
			if !readiness.Ready(pod) || !readiness.Settled(pod) {
				down++
			}
		}
		if s.Now().Sub(start) > 10*time.Minute {
			out = max(out, down)
		}
	}
	if out > 1 {
		t.Errorf("%d pods are out of service for an update that is refused for ten minutes; one tries at a time: %s", out, s.describe())
	}
}
