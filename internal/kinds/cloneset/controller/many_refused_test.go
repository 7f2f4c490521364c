package controller

import (
	"errors"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/afloat-project/afloat/internal/kinds/cloneset"
	"github.com/afloat-project/afloat/internal/kinds/cloneset/clonesettest"
	"github.com/afloat-project/afloat/internal/simulation"
)

// CS-072: a policy refuses for good that thirty pods, those that are updated first, are changed. The others are updated in place nevertheless,
// although it takes half an hour until all thirty were tried, a minute apart.
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
	s.playFor(time.Hour)
	if got := s.set().Status.UpdatedReplicas; got < 4 {
		t.Errorf("%d pods are updated; %d requests about the %d pods that come first were refused, and the others were never tried", got, refused, len(protected))
	}
}
