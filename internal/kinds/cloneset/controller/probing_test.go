package controller

import (
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/cloneset"
	"github.com/afloat-project/afloat/internal/kinds/cloneset/clonesettest"
	"github.com/afloat-project/afloat/internal/reconcile"
	"github.com/afloat-project/afloat/internal/simulation"
)

// TestAPlanThatCreatesNothingTellsNothingOfCreation: creation fails, and the next plan comes to nothing
// because the revision of the template, which somebody deleted, cannot be stored. Creation was not tried, so
// that one pod shows afterwards whether it is possible again, not many at once (CS-047 (part)).
func TestAPlanThatCreatesNothingTellsNothingOfCreation(t *testing.T) {
	for name, answer := range map[string]error{
		"refused":  apierrors.NewForbidden(corev1.Resource("controllerrevisions"), "", errors.New("over quota")),
		"conflict": apierrors.NewConflict(corev1.Resource("controllerrevisions"), "", errors.New("changed")),
	} {
		t.Run(name, func(t *testing.T) {
			s := simulate(1, clonesettest.Set(100), cloneset.Features{})
			s.kind.Limit = reconcile.NewWriteLimiter(0)
			created, storing := 0, error(nil)
			s.Answer = func(r *simulation.Request) error {
				switch {
				case r.Verb == "create" && r.Key.Kind == "Pod":
					created++
					return apierrors.NewForbidden(corev1.Resource("pods"), "", errors.New("over quota"))
				case r.Verb == "create" && r.Key.Kind == "ControllerRevision":
					return storing
				}
				return nil
			}
			s.Events(1 << 20)
			if _, _, err := s.Once(); err == nil {
				t.Fatal("nothing was refused")
			}
			s.Events(1 << 20)
			for _, revision := range s.List("ControllerRevision", false) {
				s.Remove(revisionKey(revision.GetName()))
			}
			s.Events(1 << 20)
			s.Pass(time.Minute)
			storing = answer
			if _, outcome, err := s.Once(); (err == nil) == (name == "refused") {
				t.Fatalf("no error: got %t, want another value; after %s, %v", err == nil, outcome.After, err)
			} else if err == nil && outcome.After < reconcile.RetryAfter {
				t.Fatalf("time to the next pass: got %v, want at least %v; after %s, %v", outcome.After,
					reconcile.RetryAfter, outcome.After, err)
			}
			storing, created = nil, 0
			s.Pass(time.Minute)
			if _, _, err := s.Once(); err == nil {
				t.Errorf("error: got nil, want an error; %d pods are tried, %v", created, err)
			} else if created != 1 {
				t.Errorf("created: got %d, want 1; %d pods are tried, %v", created, created, err)
			}
		})
	}
}

// TestAStatusThatOnlyTheClockTellsApart: nothing is sent where two statuses are the same once they are
// written.
func TestAStatusThatOnlyTheClockTellsApart(t *testing.T) {
	s := simulate(1, clonesettest.Set(1), cloneset.Features{})
	if err := s.Settle(100); err != nil {
		t.Fatal(err)
	}
	plan := &cloneset.Plan{Set: s.set().DeepCopy()}
	plan.Set.Status.Conditions = append(plan.Set.Status.Conditions, appsv1beta1.CloneSetCondition{
		Type: appsv1beta1.CloneSetConditionFailedScale, LastUpdateTime: metav1.NewTime(s.Now()), LastTransitionTime: metav1.NewTime(s.Now())})
	status := plan.Set.Status.DeepCopy()
	status.Conditions[0].LastUpdateTime.Time = status.Conditions[0].LastUpdateTime.Add(time.Nanosecond)
	writes := len(s.Writes)
	if err := s.kube.For(plan.Set.UID).PatchStatus(t.Context(), plan.Set, &plan.Set.Status, status); err != nil {
		t.Errorf("unexpected error: %v; %d writes, %v", err, len(s.Writes)-writes, err)
	} else if len(s.Writes) != writes {
		t.Errorf("number of writes: got %d, want %d; %d writes, %v", len(s.Writes), writes, len(s.Writes)-writes,
			err)
	}
}
