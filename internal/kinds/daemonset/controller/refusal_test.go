package controller

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/nodes"
	"github.com/afloat-project/afloat/internal/kinds/daemonset"
	"github.com/afloat-project/afloat/internal/simulation"
)

// forbid has a webhook of the namespace refuse a request about the pods of one node, and counts how often.
func (s *simulated) forbid(verb, node string) *int {
	refused := new(int)
	s.Answer = func(r *simulation.Request) error {
		if r.Verb != verb || r.Key.Kind != "Pod" {
			return nil
		}
		target, _ := s.Get(r.Key).(*corev1.Pod)
		own := target != nil && target.Spec.NodeName == node
		if verb == "create" {
			own = r.Key.Name == nodes.PodName(setKey.Name, string(s.set().UID), node, 0)
		}
		if !own {
			return nil
		}
		*refused++
		return apierrors.NewForbidden(corev1.Resource("pods"), r.Key.Name, context.Canceled)
	}
	return refused
}

// with counts the pods that stay and have the image.
func (s *simulated) with(image string) (n int) {
	for _, pod := range s.AllPods() {
		if pod.DeletionTimestamp == nil && pod.Spec.Containers[0].Image == image {
			n++
		}
	}
	return n
}

func settled(t *testing.T, s *simulated) {
	t.Helper()
	if err := s.Settle(300); err != nil {
		t.Fatal(err)
	}
}

// One pod whose deletion a webhook refuses does not keep the others from being updated, whichever node it is
// on and however few may go at a time.
func TestRefusedDeletionHoldsUpNoOther(t *testing.T) {
	for name, option := range map[string]func(*appsv1beta1.DaemonSet){
		"maxUnavailable 1": func(*appsv1beta1.DaemonSet) {},
		"burstReplicas 1": func(set *appsv1beta1.DaemonSet) {
			set.Spec.BurstReplicas, set.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable = number(1), number(3)
		},
	} {
		for _, node := range []string{"n1", "n2", "n3"} {
			t.Run(name+", "+node, func(t *testing.T) {
				s := simulate(1, makeSet(option), daemonset.Features{}, "n1", "n2", "n3")
				settled(t, s)
				refused := s.forbid("delete", node)
				s.Edit(image("agent:2"))
				s.RunFor(time.Minute)
				if n := s.with("agent:2"); n != 2 {
					t.Errorf("%d of 2 other pods are updated", n)
				}
				if *refused == 0 {
					t.Errorf("*refused: got %d, want another value", *refused)
				} else if *refused > 60 {
					t.Errorf("*refused: got %d, want at most 60", *refused)
				}
			})
		}
	}
}

// A pod that may not stay on its node and whose deletion is refused does not take the place of others that
// burstReplicas counts.
func TestRefusedDeletionTakesNoBurst(t *testing.T) {
	s := simulate(1, makeSet(func(set *appsv1beta1.DaemonSet) {
		set.Spec.BurstReplicas, set.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable = number(1), number(2)
	}), daemonset.Features{}, "n1", "n2", "n3")
	settled(t, s)
	refused := s.forbid("delete", "n1")
	for _, node := range []string{"n1", "n2"} {
		s.taint(node, "k", corev1.TaintEffectNoExecute)
	}
	s.Edit(image("agent:2"))
	s.RunFor(time.Minute)
	if got := len(s.PodsOn("n2")); got > 0 {
		t.Errorf(`pods on n2: got %d, want none`, got)
	}
	if got := s.with("agent:2"); got != 1 {
		t.Errorf(`pods with agent:2: got %d, want 1`, got)
	}
	if *refused == 0 {
		t.Errorf("*refused: got %d, want another value", *refused)
	} else if *refused > 60 {
		t.Errorf("*refused: got %d, want at most 60", *refused)
	}
}

// One node for which a webhook refuses pods does not keep the others from getting theirs.
func TestRefusedCreationHoldsUpNoOther(t *testing.T) {
	for _, node := range []string{"n1", "n2", "n3"} {
		t.Run(node, func(t *testing.T) {
			s := simulate(1, makeSet(), daemonset.Features{}, "n1", "n2", "n3")
			refused := s.forbid("create", node)
			s.RunFor(2 * time.Minute)
			if n := s.with("agent:1"); n != 2 {
				t.Errorf("%d of 2 other nodes have a pod", n)
			}
			if *refused == 0 {
				t.Errorf("*refused: got %d, want another value", *refused)
			} else if *refused > 60 {
				t.Errorf("*refused: got %d, want at most 60", *refused)
			}
		})
	}
}

// Nodes for which a webhook refuses pods hold up no burst either: the others, 100 of which are added at once, soon have
// theirs, in whatever order they come.
func TestRefusedCreationsEndNoBurst(t *testing.T) {
	var names []string
	for i := range 100 {
		names = append(names, fmt.Sprintf("n%02d", i))
	}
	s := simulate(1, makeSet(), daemonset.Features{}, names...)
	refused := 0
	s.Answer = func(r *simulation.Request) error {
		for _, node := range []string{"n00", "n01", "n50", "n99"} {
			if r.Verb == "create" && r.Key.Kind == "Pod" && r.Key.Name == nodes.PodName(setKey.Name, string(s.set().UID), node, 0) {
				refused++
				return apierrors.NewForbidden(corev1.Resource("pods"), r.Key.Name, context.Canceled)
			}
		}
		return nil
	}
	s.RunFor(30 * time.Second)
	if n := s.with("agent:1"); n != 96 || refused > 20 {
		t.Errorf("after 30 s %d of 96 other nodes have a pod, and %d requests were refused", n, refused)
	}
}

// A webhook refuses the pod of one node for good. A node that joins the cluster afterwards gets its pod soon, as from the DaemonSet of
// Kubernetes: the manager knows that the failure concerns another node (FailedNodes).
func TestANewNodeDoesNotWaitForTheRetryOfAnother(t *testing.T) {
	s := simulate(1, makeSet(), daemonset.Features{}, "n1", "n2", "n3")
	refused := s.forbid("create", "n1")
	s.RunFor(5*time.Minute + 5*time.Second)
	if n := s.with("agent:1"); n != 2 || *refused == 0 {
		t.Fatalf("%d of 2 other nodes have a pod, %d refused", n, *refused)
	}
	for _, name := range []string{"n4", "n5", "n6"} {
		s.addNode(name, nil)
		waited := time.Duration(0)
		for ; len(s.PodsOn(name)) == 0 && waited < 5*time.Minute; waited += time.Second {
			s.RunFor(time.Second)
		}
		if waited > 10*time.Second {
			t.Errorf("node %s joined and had its pod after %s", name, waited)
		}
		s.RunFor(5*time.Minute + 5*time.Second)
	}
}

// As above: a pod of another node that is deleted, as by an eviction, comes back soon.
func TestADeletedPodDoesNotWaitForTheRetryOfAnother(t *testing.T) {
	s := simulate(1, makeSet(), daemonset.Features{}, "n1", "n2", "n3")
	refused := s.forbid("create", "n1")
	s.RunFor(5*time.Minute + 5*time.Second)
	if n := s.with("agent:1"); n != 2 || *refused == 0 {
		t.Fatalf("%d of 2 other nodes have a pod, %d refused", n, *refused)
	}
	s.Remove(podKey(s.only(t, "n2").Name))
	waited := time.Duration(0)
	for ; len(s.PodsOn("n2")) == 0 && waited < 5*time.Minute; waited += time.Second {
		s.RunFor(time.Second)
	}
	if waited > 10*time.Second {
		t.Errorf("node n2 had no pod for %s", waited)
	}
}

// An update in place that is refused for one pod does not keep the others from theirs.
func TestRefusedUpdateHoldsUpNoOther(t *testing.T) {
	for _, node := range []string{"n1", "n2", "n3"} {
		t.Run(node, func(t *testing.T) {
			s := simulate(1, makeSet(func(set *appsv1beta1.DaemonSet) {
				set.Spec.UpdateStrategy.RollingUpdate.Type = appsv1beta1.InPlaceIfPossibleRollingUpdateType
			}), daemonset.Features{}, "n1", "n2", "n3")
			s.Node.Daemon = true
			settled(t, s)
			s.Answer = func(r *simulation.Request) error {
				pod, _ := s.Get(r.Key).(*corev1.Pod)
				if r.Verb == "patch" && r.Subresource == "" && pod != nil && pod.Spec.NodeName == node {
					return apierrors.NewForbidden(corev1.Resource("pods"), r.Key.Name, context.Canceled)
				}
				return nil
			}
			s.Edit(image("agent:2"))
			s.RunFor(3 * time.Minute)
			if n := s.with("agent:2"); n != 2 {
				t.Errorf("%d of 2 other pods are updated", n)
			}
		})
	}
}

// A webhook that rewrites the affinity of pods does not make pods without bound that are meant for no node.
func TestPodsThatAdmissionLeadsAstray(t *testing.T) {
	s := simulate(1, makeSet(), daemonset.Features{}, "n1", "n2", "n3")
	created := 0
	s.Answer = func(r *simulation.Request) error {
		if r.Verb == "create" && r.Key.Kind == "Pod" {
			if created++; created > 1000 {
				t.Fatal("pods are created without end")
			}
			unstructured.RemoveNestedField(r.Object.(*unstructured.Unstructured).Object, "spec", "affinity")
		}
		return nil
	}
	s.RunFor(10 * time.Minute)
	if created > 30 {
		t.Errorf("created: got %d, want at most 30", created)
	}
	if got := len(s.AllPods()); got > 0 {
		t.Errorf("pods: got %d, want none", got)
	}
	s.Answer = nil
	s.RunFor(10 * time.Minute)
	if got := len(s.AllPods()); got != 3 {
		t.Errorf("number of pods: got %d, want 3\n%s", got, s.describe())
	}
}
