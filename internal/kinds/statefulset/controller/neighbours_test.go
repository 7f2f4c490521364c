package controller

import (
	"testing"
	"time"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/statefulset"
	"github.com/afloat-project/afloat/internal/simulation"
)

// TestAPodThatCannotBeCreatedHoldsUpNoOther: a policy refuses the pods of two ordinals alone (ASTS-136).
func TestAPodThatCannotBeCreatedHoldsUpNoOther(t *testing.T) {
	set := makeSet(6)
	set.Spec.PodManagementPolicy = appsv1beta1.ParallelPodManagement
	s := simulate(1, set, statefulset.Features{})
	s.Refused = func(w simulation.Write) bool {
		return w.Verb == "create" && (w.Key.Name == "web-0" || w.Key.Name == "web-1")
	}
	s.spend(10 * time.Minute)
	if got := len(s.pods()); got != 4 {
		t.Errorf("%d pods: %s", got, s.describe())
	}
}
