package controller

import (
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/kinds/statefulset"
	"github.com/afloat-project/afloat/internal/simulation"
)

// As of a CloneSet: refused for three minutes, allowed afterwards, in a long rollout.
func TestAPodRefusedOnceIsDeletedDuringALongRollout(t *testing.T) {
	slow := func(set *appsv1beta1.StatefulSet) {
		set.Spec.UpdateStrategy.RollingUpdate.MinReadySeconds = new(int32(300))
	}
	s := simulate(1, makeSet(60, unordered, inPlace, slow), statefulset.Features{})
	s.RunFor(30 * time.Minute)
	holds := true
	refused := s.Deny(func(r *simulation.Request) bool { return holds && r.Verb == "delete" && r.Key == podKey("web-4") })
	before := s.Get(podKey("web-4")).GetUID()
	s.Change(podKey("web-4"), func(o client.Object) { o.GetLabels()[pub.SpecifiedDelete] = "true" })
	s.RunFor(time.Minute)
	s.Edit(image("nginx:2"))
	s.RunFor(2 * time.Minute)
	if len(*refused) == 0 {
		t.Fatal("nothing was refused")
	}
	holds = false
	waited := time.Duration(0)
	for ; waited < 4*time.Hour; waited += time.Minute {
		if pod := s.Get(podKey("web-4")); pod == nil || pod.GetUID() != before {
			break
		}
		s.RunFor(time.Minute)
	}
	if waited > 20*time.Minute {
		t.Errorf("the pod was deleted %s after the policy let it go; %d of 60 pods are updated", waited, s.set().Status.UpdatedReplicas)
	}
}
