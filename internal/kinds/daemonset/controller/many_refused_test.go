package controller

import (
	"context"
	"fmt"
	"strings"
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

// ADS-111: a policy refuses the pods of the thirty nodes of a pool for good. They are tried one by one, a minute apart, so that it takes long until
// all were tried. The others get their pods nevertheless.
func TestManyRefusedNodesHoldUpNoOther(t *testing.T) {
	var names []string
	refuses := map[string]bool{}
	for i := range 30 {
		names = append(names, fmt.Sprintf("a%02d", i))
	}
	s := simulate(1, makeSet(), daemonset.Features{}, append(names, "n1", "n2")...)
	for _, node := range names {
		refuses[nodes.PodName(setKey.Name, string(s.set().UID), node, 0)] = true
	}
	s.Answer = func(r *simulation.Request) error {
		if r.Verb == "create" && r.Key.Kind == "Pod" && refuses[r.Key.Name] {
			return apierrors.NewForbidden(corev1.Resource("pods"), r.Key.Name, context.Canceled)
		}
		return nil
	}
	s.RunFor(40 * time.Minute)
	if n := s.with("agent:1"); n != 2 {
		t.Errorf("after forty minutes %d of 2 other nodes have a pod", n)
	}
}

// As above, of a node that joins when all others have their pods.
func TestManyRefusedNodesHoldUpNoNewNode(t *testing.T) {
	refuses := map[string]bool{}
	s := simulate(1, makeSet(), daemonset.Features{}, "n1", "n2")
	settled(t, s)
	s.Answer = func(r *simulation.Request) error {
		if r.Verb == "create" && r.Key.Kind == "Pod" && refuses[r.Key.Name] {
			return apierrors.NewForbidden(corev1.Resource("pods"), r.Key.Name, context.Canceled)
		}
		return nil
	}
	for i := range 30 {
		name := fmt.Sprintf("a%02d", i)
		refuses[nodes.PodName(setKey.Name, string(s.set().UID), name, 0)] = true
		s.addNode(name, nil)
	}
	s.RunFor(40 * time.Minute)
	s.addNode("z1", nil)
	waited := time.Duration(0)
	for ; len(s.PodsOn("z1")) == 0 && waited < 10*time.Minute; waited += time.Second {
		s.RunFor(time.Second)
	}
	if waited > 65*time.Second { // the retry of another node
		t.Errorf("a node joined and had its pod after %s", waited)
	}
}

// A policy refuses for good that the pods of thirty nodes are deleted, or updated in place. Those of other nodes are updated nevertheless.
func TestManyRefusedUpdatesHoldUpNoOther(t *testing.T) {
	for name, option := range map[string]func(*appsv1beta1.DaemonSet){
		"Standard": func(*appsv1beta1.DaemonSet) {},
		"in place": func(set *appsv1beta1.DaemonSet) {
			set.Spec.UpdateStrategy.RollingUpdate.Type = appsv1beta1.InPlaceIfPossibleRollingUpdateType
		},
	} {
		t.Run(name, func(t *testing.T) {
			names := []string{"n1", "n2", "z1", "z2"}
			for i := range 30 {
				names = append(names, fmt.Sprintf("o%02d", i))
			}
			s := simulate(1, makeSet(option), daemonset.Features{}, names...)
			settled(t, s)
			refused := 0
			s.Answer = func(r *simulation.Request) error {
				if r.Key.Kind != "Pod" || r.Verb == "create" || r.Verb == "get" {
					return nil
				}
				if target, _ := s.Get(r.Key).(*corev1.Pod); target == nil || !strings.HasPrefix(target.Spec.NodeName, "o") {
					return nil
				}
				refused++
				return apierrors.NewForbidden(corev1.Resource("pods"), r.Key.Name, context.Canceled)
			}
			s.Edit(image("agent:2"))
			s.RunFor(2 * time.Hour)
			if n := s.with("agent:2"); n != 4 {
				t.Errorf("after two hours %d of 4 other pods are updated; %d refused", n, refused)
			}
		})
	}
}

// Nodes for which pods were refused have left the cluster. One node is refused now. A node that joins waits for its retry nevertheless.
func TestGoneNodesDoNotCountAsFailed(t *testing.T) {
	s := simulate(1, makeSet(), daemonset.Features{}, "n1", "n2", "n3")
	settled(t, s)
	refuses := map[string]bool{}
	s.Answer = func(r *simulation.Request) error {
		if r.Verb == "create" && r.Key.Kind == "Pod" && refuses[r.Key.Name] {
			return apierrors.NewForbidden(corev1.Resource("pods"), r.Key.Name, context.Canceled)
		}
		return nil
	}
	for i := range 6 { // spot nodes that come and go
		name := fmt.Sprintf("spot%d", i)
		refuses[nodes.PodName(setKey.Name, string(s.set().UID), name, 0)] = true
		s.addNode(name, nil)
		s.RunFor(30 * time.Minute)
		if i < 5 {
			s.Remove(simulation.Key{Kind: "Node", Name: name})
			s.RunFor(30 * time.Minute)
		}
	}
	for _, name := range []string{"z1", "z2", "z3"} {
		s.addNode(name, nil)
		waited := time.Duration(0)
		for ; len(s.PodsOn(name)) == 0 && waited < 5*time.Minute; waited += time.Second {
			s.RunFor(time.Second)
		}
		if waited > 10*time.Second {
			t.Errorf("node %s joined and had its pod after %s, while one node is refused", name, waited)
		}
		s.RunFor(5*time.Minute + 5*time.Second)
	}
}

// The answers of some creations are lost, although the pods come into being. Later one node is refused, and others join: these nodes, which have their pods, do not
// count as such for which pods could not be created.
func TestLostAnswersAreNoFailures(t *testing.T) {
	s := simulate(1, makeSet(), daemonset.Features{}, "n1")
	settled(t, s)
	s.Faults.Lose = 1
	for i := range 6 {
		s.addNode(fmt.Sprintf("m%d", i), nil)
		s.RunFor(5 * time.Minute)
	}
	s.Faults.Lose = 0
	s.RunFor(30 * time.Minute)
	if n := s.with("agent:1"); n != 7 {
		t.Fatalf("%d of 7 pods", n)
	}
	refused := s.forbid("create", "bad")
	s.addNode("bad", nil)
	s.RunFor(30*time.Minute + 5*time.Second)
	for _, name := range []string{"z1", "z2", "z3"} {
		s.addNode(name, nil)
		waited := time.Duration(0)
		for ; len(s.PodsOn(name)) == 0 && waited < 5*time.Minute; waited += time.Second {
			s.RunFor(time.Second)
		}
		if waited > 10*time.Second {
			t.Errorf("node %s joined and had its pod after %s; %d refused", name, waited, *refused)
		}
		s.RunFor(5*time.Minute + 5*time.Second)
	}
}

// A policy refuses new pods on one node for good, in a rollout with maxSurge 1.
func TestASurgeThatIsRefusedHoldsUpNoOther(t *testing.T) {
	for _, node := range []string{"n1", "n2", "n3", "n4"} {
		t.Run(node, func(t *testing.T) {
			s := simulate(1, makeSet(func(set *appsv1beta1.DaemonSet) {
				r := set.Spec.UpdateStrategy.RollingUpdate
				zero, one := intstr.FromInt32(0), intstr.FromInt32(1)
				r.MaxUnavailable, r.MaxSurge = &zero, &one
			}), daemonset.Features{}, "n1", "n2", "n3", "n4")
			settled(t, s)
			refused := 0
			s.Answer = func(r *simulation.Request) error {
				if r.Verb == "create" && r.Key.Kind == "Pod" {
					for n := range 3 {
						if r.Key.Name == nodes.PodName(setKey.Name, string(s.set().UID), node, n) {
							refused++
							return apierrors.NewForbidden(corev1.Resource("pods"), r.Key.Name, context.Canceled)
						}
					}
				}
				return nil
			}
			s.Edit(image("agent:2"))
			s.RunFor(time.Hour)
			if n := s.with("agent:2"); n != 3 {
				t.Errorf("after an hour %d of 3 other pods are updated; %d refused", n, refused)
			}
		})
	}
}

// partitionedScaling, with a partition that leaves two of the nodes: the one for which pods are refused takes the place of no other.
func TestARefusedNodeTakesNoPlaceOfThePartition(t *testing.T) {
	for _, node := range []string{"n1", "n2", "n3", "n4"} {
		t.Run(node, func(t *testing.T) {
			s := simulate(1, makeSet(func(set *appsv1beta1.DaemonSet) {
				two := intstr.FromInt32(2)
				set.Spec.UpdateStrategy.RollingUpdate.Partition = &two
				set.Spec.ScaleStrategy = &appsv1beta1.DaemonSetScaleStrategy{PartitionedScaling: true}
			}), daemonset.Features{}, "n1", "n2", "n3", "n4")
			refused := s.forbid("create", node)
			s.RunFor(time.Hour)
			if n := s.with("agent:1"); n != 2 {
				t.Errorf("after an hour %d of 2 nodes that partition leaves have pods; %d refused", n, *refused)
			}
		})
	}
}

// A new DaemonSet on 100 nodes and a pool whose pods a policy refuses: how long until the 100 have theirs.
func TestARefusedPoolSlowsNoOtherNode(t *testing.T) {
	for _, pool := range []int{150} {
		t.Run(fmt.Sprint(pool), func(t *testing.T) {
			var names []string
			for i := range pool {
				names = append(names, fmt.Sprintf("a%03d", i))
			}
			for i := range 100 {
				names = append(names, fmt.Sprintf("n%03d", i))
			}
			refuses := map[string]bool{}
			s := simulate(1, makeSet(), daemonset.Features{}, names...)
			for _, name := range names[:pool] {
				refuses[nodes.PodName(setKey.Name, string(s.set().UID), name, 0)] = true
			}
			s.Answer = func(r *simulation.Request) error {
				if r.Verb == "create" && r.Key.Kind == "Pod" && refuses[r.Key.Name] {
					return apierrors.NewForbidden(corev1.Resource("pods"), r.Key.Name, context.Canceled)
				}
				return nil
			}
			waited := time.Duration(0)
			for ; s.with("agent:1") < 100 && waited < 2*time.Hour; waited += 10 * time.Second {
				s.RunFor(10 * time.Second)
			}
			if waited > 10*time.Minute {
				t.Errorf("%d of 100 other nodes have a pod after %s", s.with("agent:1"), waited)
			}
		})
	}
}
