package controller

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/intstr"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/nodes"
	"github.com/afloat-project/afloat/internal/kinds/daemonset"
	"github.com/afloat-project/afloat/internal/simulation"
)

// ADS-111: partitionedScaling leaves two of the nodes. One of them lost its pod, and a policy refuses another one there: it takes the place of no other.
func TestANodeThatLostItsPodAndIsRefusedTakesNoPlaceOfThePartition(t *testing.T) {
	s := simulate(1, makeSet(func(set *appsv1beta1.DaemonSet) {
		two := intstr.FromInt32(2)
		set.Spec.UpdateStrategy.RollingUpdate.Partition = &two
		set.Spec.ScaleStrategy = &appsv1beta1.DaemonSetScaleStrategy{PartitionedScaling: true}
	}), daemonset.Features{}, "n1", "n2", "n3", "n4")
	s.RunFor(5 * time.Minute)
	if n := s.with("agent:1"); n != 2 {
		t.Fatalf("%d of 2 nodes that partition leaves have pods", n)
	}
	refused := 0
	s.Answer = func(r *simulation.Request) error {
		for n := range 3 {
			if r.Verb == "create" && r.Key.Name == nodes.PodName(setKey.Name, string(s.set().UID), "n1", n) {
				refused++
				return apierrors.NewForbidden(corev1.Resource("pods"), r.Key.Name, context.Canceled)
			}
		}
		return nil
	}
	s.Remove(podKey(s.only(t, "n1").Name))
	s.RunFor(time.Hour)
	if n := s.with("agent:1"); n != 2 {
		t.Errorf("after an hour %d of 2 nodes that partition leaves have pods; %d refused: %s", n, refused, s.describe())
	}
}

// ADS-111: "while fewer than five of the missing pods are for such nodes, one that has not failed is tried at once". The node for which pods were refused is replaced by
// another one: its pod does not wait for the retry of the one that is gone.
func TestANodeThatReplacesARefusedOneDoesNotWaitForItsRetry(t *testing.T) {
	s := simulate(1, makeSet(), daemonset.Features{}, "n1", "n2", "n3")
	refused := s.forbid("create", "n1")
	s.RunFor(5 * time.Minute)
	for before := *refused; *refused == before; {
		s.RunFor(time.Second)
	}
	s.Remove(simulation.Key{Kind: "Node", Name: "n1"})
	s.RunFor(2 * time.Second)
	s.addNode("n4", nil)
	waited := time.Duration(0)
	for ; len(s.PodsOn("n4")) == 0 && waited < 5*time.Minute; waited += time.Second {
		s.RunFor(time.Second)
	}
	if waited > 10*time.Second {
		t.Errorf("node n4 joined and had its pod after %s", waited)
	}
}
