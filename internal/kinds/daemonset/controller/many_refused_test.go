package controller

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

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
			s.RunFor(time.Hour)
			if n := s.with("agent:2"); n != 4 {
				t.Errorf("after an hour %d of 4 other pods are updated; %d refused", n, refused)
			}
		})
	}
}
