package controller

import (
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/kinds/cloneset"
	"github.com/afloat-project/afloat/internal/kinds/cloneset/clonesettest"
	"github.com/afloat-project/afloat/internal/simulation"
)

// A policy engine refuses everything for two minutes, when a rollout of hours begins, and accepts everything afterwards. A pod that is specified for deletion is
// deleted soon after, as one that was refused once.
func TestAPodRefusedOftenInTwoMinutesIsDeletedDuringALongRollout(t *testing.T) {
	s := simulate(1, clonesettest.Set(60, clonesettest.MaxUnavailable(1), clonesettest.MinReadySeconds(300)), cloneset.Features{})
	s.RunFor(30 * time.Minute)
	if err := s.Settle(1000); err != nil {
		t.Fatal(err)
	}
	protected, refused, holds := s.active()[0].Name, 0, true
	s.Answer = func(r *simulation.Request) error {
		if holds && r.Key.Kind == "Pod" && (r.Verb == "delete" || r.Verb == "patch") {
			if r.Verb == "delete" {
				refused++
			}
			return apierrors.NewForbidden(corev1.Resource("pods"), r.Key.Name, errors.New("a policy says no"))
		}
		return nil
	}
	s.Edit(clonesettest.Image("nginx:2"))
	s.Change(podKey(protected), func(o client.Object) { o.GetLabels()[pub.SpecifiedDelete] = "true" })
	s.RunFor(2 * time.Minute)
	holds = false
	waited := time.Duration(0)
	for ; s.Get(podKey(protected)) != nil && waited < 6*time.Hour; waited += time.Minute {
		s.RunFor(time.Minute)
	}
	if waited > 30*time.Minute {
		t.Errorf("the pod was deleted %s after the policy let it go, which had refused it %d times in two minutes; %d of 60 pods are updated",
			waited, refused, s.set().Status.UpdatedReplicas)
	}
}

// Requests that fail with a server error are tried again at growing intervals, like those that are refused: each writes an event.
func TestFailedDeletionsAreTriedLessAndLessOften(t *testing.T) {
	s := simulate(1, clonesettest.Set(5, clonesettest.MaxUnavailable(1)), cloneset.Features{})
	if err := s.Settle(1000); err != nil {
		t.Fatal(err)
	}
	failed := 0
	s.Answer = func(r *simulation.Request) error {
		if r.Key.Kind == "Pod" && r.Verb == "delete" {
			failed++
			return apierrors.NewInternalError(errors.New("failed calling webhook: context deadline exceeded"))
		}
		return nil
	}
	s.Edit(clonesettest.Replicas(4))
	s.RunFor(time.Hour)
	if failed > 200 {
		t.Errorf("%d deletions failed in an hour", failed)
	}
}

// A policy engine refused for a second that a pod gets back into service after its update. The pod has long been back when a user specifies it for deletion,
// which nobody refuses: it does not wait for the end of the rollout.
func TestAPodWhoseOtherWriteWasRefusedIsDeletedInTime(t *testing.T) {
	for name, lasts := range map[string]time.Duration{"nothing refused": -1, "refused for a second": time.Second} {
		t.Run(name, func(t *testing.T) { deletedInTime(t, lasts) })
	}
}

func deletedInTime(t *testing.T, lasts time.Duration) {
	s := simulate(1, clonesettest.Set(60, clonesettest.MaxUnavailable(1), clonesettest.MinReadySeconds(300)), cloneset.Features{})
	s.RunFor(30 * time.Minute)
	if err := s.Settle(1000); err != nil {
		t.Fatal(err)
	}
	var began time.Time
	first, refused := "", 0
	s.Answer = func(r *simulation.Request) error {
		if r.Key.Kind != "Pod" || r.Verb != "patch" {
			return nil
		}
		if strings.Contains(string(r.Body), `"image"`) && first == "" {
			first = r.Key.Name
			return nil
		}
		if r.Key.Name != first || strings.Contains(string(r.Body), `"image"`) {
			return nil
		}
		if began.IsZero() {
			began = s.Now()
		}
		if s.Now().Sub(began) > lasts {
			return nil
		}
		refused++
		return apierrors.NewForbidden(corev1.Resource("pods"), r.Key.Name, errors.New("a policy says no"))
	}
	s.Edit(clonesettest.Image("nginx:2"))
	s.RunFor(20 * time.Minute)
	if lasts > 0 && refused == 0 || s.set().Status.UpdatedAvailableReplicas < 2 {
		t.Fatalf("%d refused, %d updated", refused, s.set().Status.UpdatedAvailableReplicas)
	}
	s.Change(podKey(first), func(o client.Object) { o.GetLabels()[pub.SpecifiedDelete] = "true" })
	waited := time.Duration(0)
	for ; s.Get(podKey(first)) != nil && waited < 6*time.Hour; waited += time.Minute {
		s.RunFor(time.Minute)
	}
	if waited > 20*time.Minute {
		t.Errorf("the pod was deleted %s after it was specified, which nobody refused; %d other writes of it were refused before; %d of 60 pods are updated",
			waited, refused, s.set().Status.UpdatedReplicas)
	}
}
