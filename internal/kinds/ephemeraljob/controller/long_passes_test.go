package controller

import (
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	. "github.com/afloat-project/afloat/internal/kinds/ephemeraljob/ephemeraljobtest"
	"github.com/afloat-project/afloat/internal/simulation"
)

// EJ-013: each patch takes 100 ms, and the user pauses a job of 90 pods after one second, since its containers break the pods. No further pods are treated soon after that: a pass does
// not go through all pods of its plan, however long that takes, before it looks at the job again.
func TestAPauseIsHeededInTheMiddleOfManyPods(t *testing.T) {
	s := newStage(t, Job(parallel(1000)), many(90)...)
	began, paused, after := s.Now(), false, 0
	s.Answer = func(r *simulation.Request) error {
		if r.Subresource != subresource {
			return nil
		}
		s.Pass(100 * time.Millisecond)
		if !paused && s.Now().Sub(began) >= time.Second {
			paused = true
			s.Change(jobKey, func(o client.Object) {
				o.(*appsv1alpha1.EphemeralJob).Spec.Paused = true
				o.SetGeneration(2)
			})
			s.Deliver(1000)
		} else if paused {
			after++
		}
		return nil
	}
	for range 100 {
		if _, err := s.pass(); err != nil {
			t.Fatal(err)
		}
		s.Pass(time.Second)
	}
	if !paused {
		t.Fatal("it was not paused")
	}
	if after > 20 {
		t.Errorf("%d of 90 pods were treated in the %s after the job was paused", after, time.Duration(after)*100*time.Millisecond)
	}
}
