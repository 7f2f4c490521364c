package controller

import (
	"errors"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	. "github.com/afloat-project/afloat/internal/kinds/ephemeraljob/ephemeraljobtest"
	"github.com/afloat-project/afloat/internal/simulation"
)

// EJ-041: the answer to an injection was lost, and pods cannot be read from the API server any more: deletion of the job does not hang, since nothing has to be known of
// pods for it.
func TestDeletionDoesNotWaitForWhatBecameOfAnInjection(t *testing.T) {
	s := newStage(t, Job(), many(2)...)
	name := types.NamespacedName{Namespace: "shop", Name: "dump"}
	s.Deliver(1000)
	s.Answer = func(r *simulation.Request) error {
		if r.Subresource == subresource {
			return apierrors.NewTimeoutError("lost", 1)
		}
		return nil
	}
	if _, err := s.c.Run(t.Context(), name, "job"); err == nil {
		t.Fatal("nothing was lost")
	}
	s.Answer = func(r *simulation.Request) error {
		if r.Key.Kind == "Pod" {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, r.Key.Name, errors.New("no"))
		}
		return nil
	}
	s.Change(jobKey, func(o client.Object) {
		now := metav1.NewTime(s.Now())
		o.SetDeletionTimestamp(&now)
	})
	var last error
	for range 10 {
		_, last = s.pass()
		s.Pass(time.Minute)
	}
	if job := s.job(); job != nil && len(job.Finalizers) > 0 {
		t.Errorf("the job still has finalizers %v ten minutes after its deletion: %v", job.Finalizers, last)
	}
}

// A job that was stored before webhooks checked it has a container that is null: the job says that it cannot be carried out, and does not panic.
func TestAContainerThatIsNull(t *testing.T) {
	s := newStage(t, Job(With(`[null]`)), many(2)...)
	for range 3 {
		if _, err := s.pass(); err != nil {
			t.Error(err)
		}
	}
	if got, want := s.job().Status.Phase, appsv1alpha1.EphemeralJobError; got != want {
		t.Errorf("phase: got %q, want %q", got, want)
	}
}
