package controller

import (
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/kinds/statefulset"
	"github.com/afloat-project/afloat/internal/simulation"
)

// ASTS-136: one pod that is specified for deletion is protected by a policy; the others are updated.
func TestOneRefusedSpecifiedPodHoldsUpNoUpdate(t *testing.T) {
	s := simulate(1, makeSet(5, unordered, inPlace), statefulset.Features{})
	s.ActFor(time.Minute)
	s.Deny(func(r *simulation.Request) bool { return r.Verb == "delete" && r.Key == podKey("web-4") })
	s.Change(podKey("web-4"), func(o client.Object) { o.GetLabels()[pub.SpecifiedDelete] = "true" })
	s.ActFor(time.Minute)
	s.Edit(image("nginx:2"))
	s.ActFor(60 * time.Minute)
	if got := s.set().Status.UpdatedReplicas; got < 4 {
		t.Errorf("%d of 4 pods updated that nobody protects: %s", got, s.describe())
	}
}
