package controller

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/afloat-project/afloat/internal/simulation"
)

// A node changes after a tenant has created a large job, which goes before a worker has come to it, since all are busy: nothing is kept of the job.
func TestNothingIsKeptOfAJobThatGoesBeforeItsFirstPass(t *testing.T) {
	s := simulate(1, makeJob(), "n1")
	key := simulation.Key{Kind: "BroadcastJob", Name: "brief"}
	brief := makeJob()
	brief.Name = key.Name
	s.Store(key, brief)
	s.Deliver(1 << 20)
	stored := s.Get(key)
	loop := s.controller.Loop(nil)

	s.kube.jobsOfNode(t.Context(), nil, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n2"}})
	s.Remove(key)
	s.Deliver(1 << 20)
	for range 2 {
		if _, err := loop.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: "default", Name: key.Name}}); err != nil {
			t.Fatal(err)
		}
	}
	kept := false
	s.kind.rules.Of(stored, func(present *rules) *rules {
		kept = present != nil
		return present
	})
	if kept {
		t.Error("the template's rules of a job that is gone stay in memory for ever")
	}
}
