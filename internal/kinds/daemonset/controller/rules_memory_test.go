package controller

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/simulation"
)

// remembers tells whether the rules of a set are kept.
func (s *simulated) remembers(set *appsv1beta1.DaemonSet) (kept bool) {
	s.kind.rules.Of(set, func(present *rules) *rules {
		kept = present != nil
		return present
	})
	return kept
}

// A tenant creates a large set and a pod without an owner, and deletes the set before a worker has come to it, since all are busy: nothing is kept of the set.
func TestNothingIsKeptOfASetThatGoesBeforeItsFirstPass(t *testing.T) {
	s := simulate(1, makeSet(), everything, "n1")
	key := simulation.Key{Kind: "DaemonSet", Name: "brief"}
	brief := makeSet()
	brief.Name = key.Name
	s.Store(key, brief)
	s.Deliver(1 << 20)
	stored := s.Get(key).(*appsv1beta1.DaemonSet)
	loop := s.controller.Loop(nil)

	orphan := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "orphan", Labels: map[string]string{"app": "agent"}}}
	s.kube.setsOf(t.Context(), orphan)
	s.Remove(key)
	s.Deliver(1 << 20)
	for range 2 {
		if _, err := loop.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: "default", Name: key.Name}}); err != nil {
			t.Fatal(err)
		}
	}
	if s.remembers(stored) {
		t.Error("the template's rules of a set that is gone stay in memory for ever")
	}
}

// afterList calls next once when a list has been read.
type afterList struct {
	client.Client
	next func()
}

func (c *afterList) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	err := c.Client.List(ctx, list, options...)
	if next := c.next; next != nil {
		c.next = nil
		next()
	}
	return err
}

// A set goes while the event of a node is handled, which has listed it: nothing is kept of it.
func TestNothingIsKeptOfASetThatGoesDuringAnEvent(t *testing.T) {
	s := started(t, makeSet(), everything, "n1")
	stored, name := s.set(), types.NamespacedName{Namespace: "default", Name: "agent"}
	loop := s.controller.Loop(nil)
	s.controller.Pass = nil
	s.kube.Client = &afterList{s.kube.Client, func() {
		s.Remove(setKey)
		s.Deliver(1 << 20)
		s.controller.Forget(name, stored.UID) // as the loop does when it finds that the set is gone
	}}
	s.kube.setsOfNode(t.Context(), nil, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n2"}})
	for range 2 {
		if _, err := loop.Reconcile(t.Context(), ctrl.Request{NamespacedName: name}); err != nil {
			t.Fatal(err)
		}
	}
	if s.remembers(stored) {
		t.Error("the template's rules of a set that is gone stay in memory for ever")
	}
}
