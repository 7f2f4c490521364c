package controller

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/daemonset"
	"github.com/afloat-project/afloat/internal/simulation"
)

// A set that takes over healthy pods of an older template begins its rollout with as many nodes as maxSurge
// says: the caches know of a pod without a controller no more than its phase, which is not that it is out of
// service.
func TestTakenOverPodsAreNoReasonToSurge(t *testing.T) {
	s := simulate(1, makeSet(), daemonset.Features{}, "n1", "n2", "n3", "n4")
	settled(t, s)
	for _, pod := range s.AllPods() {
		s.Change(podKey(pod.Name), func(o client.Object) { o.SetOwnerReferences(nil) })
	}
	for _, object := range s.List("ControllerRevision", false) {
		s.Change(simulation.Key{Kind: "ControllerRevision", Name: object.GetName()}, func(o client.Object) { o.SetOwnerReferences(nil) })
	}
	s.Remove(setKey)
	next := makeSet(image("agent:2"), func(set *appsv1beta1.DaemonSet) {
		set.Spec.UpdateStrategy.RollingUpdate = &appsv1beta1.RollingUpdateDaemonSet{MaxSurge: number(1)}
	})
	s.Store(setKey, next)
	most := 0
	s.AfterWrite = func(w simulation.Write) {
		two := 0
		for _, node := range s.nodes() {
			if len(s.PodsOn(node.Name)) > 1 {
				two++
			}
		}
		most = max(most, two)
	}
	settled(t, s)
	n := s.with("agent:2")
	if n != 4 {
		t.Errorf(`pods with agent:2: got %d, want 4`, n)
	}
	if most != 1 {
		t.Errorf("most: got %d, want 1", most)
	}
}

// With a maxSurge in percent no old pod goes before its new one is there, also when no node should have a new
// pod any more: a taint lets pods stay, and the update must not take them away for good.
func TestSurgeInPercentOfNoNodes(t *testing.T) {
	s := simulate(1, makeSet(func(set *appsv1beta1.DaemonSet) {
		half := intstr.FromString("50%")
		set.Spec.UpdateStrategy.RollingUpdate = &appsv1beta1.RollingUpdateDaemonSet{MaxSurge: &half}
	}), daemonset.Features{}, "n1", "n2")
	settled(t, s)
	for _, node := range []string{"n1", "n2"} {
		s.taint(node, "k", corev1.TaintEffectNoSchedule)
	}
	s.Edit(image("agent:2"))
	settled(t, s)
	if n := len(s.AllPods()); n != 2 {
		t.Errorf("%d of 2 nodes keep their pod", n)
	}
}

// A pod that was just given up by hand is known from the answer of the API server before the caches show it:
// it still has its node, and no second one comes beside it.
func TestPodGivenUpBeforeTheCachesShowIt(t *testing.T) {
	s := simulate(1, makeSet(func(set *appsv1beta1.DaemonSet) {
		set.Spec.UpdateStrategy.RollingUpdate.Type = appsv1beta1.InPlaceIfPossibleRollingUpdateType
	}), daemonset.Features{}, "n1")
	settled(t, s)
	s.Edit(image("agent:2"))
	s.Events(10)
	s.Change(podKey(s.AllPods()[0].Name), func(o client.Object) { o.SetOwnerReferences(nil) })
	for range 3 {
		s.Queue.Add()
		s.Manage()
	}
	if n := len(s.PodsOn("n1")); n != 1 {
		t.Errorf("%d pods on the node", n)
	}
	settled(t, s)
	n := s.with("agent:2")
	if n != 1 {
		t.Errorf(`pods with agent:2: got %d, want 1`, n)
	}
	if got := len(s.AllPods()); got != 1 {
		t.Errorf("number of pods: got %d, want 1", got)
	}
}
