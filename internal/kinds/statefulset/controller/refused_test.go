package controller

import (
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/kinds/statefulset"
	"github.com/afloat-project/afloat/internal/simulation"
)

func unordered(set *appsv1beta1.StatefulSet) {
	set.Spec.PodManagementPolicy = appsv1beta1.ParallelPodManagement
	set.Spec.UpdateStrategy.RollingUpdate.UnorderedUpdate = &appsv1beta1.StatefulSetUnorderedUpdate{}
}

// IPU-184, ASTS-136: a policy refuses the update in place of one pod alone; the others are updated.
func TestOneRefusedUpdateInPlaceHoldsUpNoOther(t *testing.T) {
	s := simulate(1, makeSet(5, unordered, inPlace), statefulset.Features{})
	s.ActFor(time.Minute)
	s.Deny(func(r *simulation.Request) bool {
		return r.Verb == "patch" && r.Key == podKey("web-4") && strings.Contains(string(r.Body), "nginx:2")
	})
	s.Edit(image("nginx:2"))
	s.ActFor(30 * time.Minute)
	if got := s.set().Status.UpdatedReplicas; got < 4 {
		t.Errorf("%d of 4 pods updated that nobody protects: %s", got, s.describe())
	}
}

// ASTS-136: a policy refuses the deletion of one pod alone; the others are recreated.
func TestOneRefusedDeletionHoldsUpNoOther(t *testing.T) {
	recreate := func(set *appsv1beta1.StatefulSet) {
		set.Spec.UpdateStrategy.RollingUpdate.PodUpdatePolicy = appsv1beta1.ReCreateStatefulSetPodUpdatePolicy
	}
	s := simulate(1, makeSet(5, unordered, recreate), statefulset.Features{})
	s.ActFor(time.Minute)
	s.Deny(func(r *simulation.Request) bool { return r.Verb == "delete" && r.Key == podKey("web-4") })
	s.Edit(image("nginx:2"))
	s.ActFor(30 * time.Minute)
	if got := s.set().Status.UpdatedReplicas; got < 4 {
		t.Errorf("%d of 4 pods updated that nobody protects: %s", got, s.describe())
	}
}

// ASTS-235, ASTS-136: of two pods specified for deletion one is protected by a policy.
func TestOneRefusedSpecifiedDeletionHoldsUpNoOther(t *testing.T) {
	s := simulate(1, makeSet(5, inParallel), statefulset.Features{})
	s.ActFor(time.Minute)
	uid := s.Pod("web-1").UID
	s.Deny(func(r *simulation.Request) bool { return r.Verb == "delete" && r.Key == podKey("web-4") })
	for _, name := range []string{"web-4", "web-1"} {
		s.Change(podKey(name), func(o client.Object) { o.GetLabels()[pub.SpecifiedDelete] = "true" })
	}
	s.ActFor(30 * time.Minute)
	if s.Pod("web-1").UID == uid {
		t.Errorf("web-1 is specified for deletion and still there after half an hour: %s", s.describe())
	}
}
