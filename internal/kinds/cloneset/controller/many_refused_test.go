package controller

import (
	"errors"
	"slices"
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

// CS-072: a policy refuses for good that thirty pods, those that are updated first, are changed. The others are updated in place nevertheless,
// although it takes long until all thirty were tried, a minute apart.
func TestManyRefusedUpdatesHoldUpNoOther(t *testing.T) {
	s := simulate(1, clonesettest.Set(34, clonesettest.MaxUnavailable(1)), cloneset.Features{})
	if err := s.Settle(1000); err != nil {
		t.Fatal(err)
	}
	var protected []string
	refused := 0
	s.Answer = func(r *simulation.Request) error {
		if r.Key.Kind != "Pod" || r.Verb == "create" || r.Verb == "get" || r.Verb == "list" {
			return nil
		}
		if !slices.Contains(protected, r.Key.Name) {
			if len(protected) == 30 {
				return nil
			}
			protected = append(protected, r.Key.Name)
		}
		refused++
		return apierrors.NewForbidden(corev1.Resource("pods"), r.Key.Name, errors.New("a policy says no"))
	}
	s.Edit(clonesettest.Image("nginx:2"))
	s.playFor(2 * time.Hour)
	if got := s.set().Status.UpdatedReplicas; got < 4 {
		t.Errorf("%d pods are updated; %d requests about the %d pods that come first were refused, and the others were never tried", got, refused, len(protected))
	}
}

// A policy refuses the deletion of a pod that is specified for it, for a minute. A rollout goes on meanwhile, and takes hours. The pod is deleted soon after
// the policy lets it go.
func TestAPodRefusedOnceIsDeletedDuringALongRollout(t *testing.T) {
	s := simulate(1, clonesettest.Set(60, clonesettest.MaxUnavailable(1), clonesettest.MinReadySeconds(300)), cloneset.Features{})
	s.RunFor(30 * time.Minute)
	if err := s.Settle(1000); err != nil {
		t.Fatal(err)
	}
	protected, refused, holds := s.active()[0].Name, 0, true
	s.Answer = func(r *simulation.Request) error {
		if holds && r.Key.Kind == "Pod" && r.Key.Name == protected && r.Verb == "delete" {
			refused++
			return apierrors.NewForbidden(corev1.Resource("pods"), r.Key.Name, errors.New("a policy says no"))
		}
		return nil
	}
	s.Change(podKey(protected), func(o client.Object) { o.GetLabels()[pub.SpecifiedDelete] = "true" })
	s.RunFor(time.Minute)
	s.Edit(clonesettest.Image("nginx:2"))
	s.RunFor(2 * time.Minute)
	if refused == 0 {
		t.Fatal("nothing was refused")
	}
	holds = false
	waited := time.Duration(0)
	for ; s.Get(podKey(protected)) != nil && waited < 4*time.Hour; waited += time.Minute {
		s.RunFor(time.Minute)
	}
	if waited > 20*time.Minute {
		t.Errorf("the pod was deleted %s after the policy let it go; %d of 60 pods are updated", waited, s.set().Status.UpdatedReplicas)
	}
}

// A policy protects one pod that is specified for deletion. Scaling in takes the others.
func TestAProtectedSpecifiedPodHoldsUpNoScaleIn(t *testing.T) {
	s := simulate(1, clonesettest.Set(10, clonesettest.MaxUnavailable(2)), cloneset.Features{})
	if err := s.Settle(1000); err != nil {
		t.Fatal(err)
	}
	protected := s.active()[0].Name
	s.Answer = protect(&protected)
	s.Change(podKey(protected), func(o client.Object) { o.GetLabels()[pub.SpecifiedDelete] = "true" })
	s.RunFor(2 * time.Minute)
	s.Edit(clonesettest.Replicas(5))
	s.RunFor(time.Hour)
	if got := len(s.active()); got > 6 {
		t.Errorf("%d pods an hour after scaling from 10 to 5", got)
	}
}
