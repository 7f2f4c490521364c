package controller

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	policyv1beta1 "github.com/afloat-project/afloat/api/policy/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/kindtest"
	"github.com/afloat-project/afloat/internal/simulation"
)

// PUB-072 (part), PUB-041 (part): what a pod says of its controller holds for that pod alone. A pod with the UID of a ReplicaSet and another
// name once freed all pods of that ReplicaSet, because what was found out about one was remembered by the UID for the others.
func TestAPodThatLiesAboutItsControllerFreesNoOther(t *testing.T) {
	for _, name := range []string{"target", "selector"} {
		t.Run(name, func(t *testing.T) {
			r := newWorld(1)
			r.withDeployment(3)
			r.replicaSet("rs", "rs", 0, nil)
			r.begin()
			r.rest()
			liar := r.pods()[0]
			liar.OwnerReferences[0].Name = "rs"
			r.Store(podKey(liar.Name), liar)
			r.Pass(time.Minute) // what was read before is forgotten
			b := &policyv1beta1.PodUnavailableBudget{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
			covered(b, name)
			r.Store(budgetKey(name), b)
			r.rest()
			if r.exact(); r.failure != "" {
				t.Error(r.failure)
			}
			r.Pass(time.Minute)
			for _, m := range r.managers {
				_, _ = m.watch.Guard.Book(t.Context(), Request{Pod: liar, By: policyv1beta1.Delete})
				answer, err := m.watch.Guard.Book(t.Context(), Request{Pod: r.pods()[1], By: policyv1beta1.Delete})
				if err != nil || answer.Allowed {
					t.Errorf("another pod of the ReplicaSet: %+v %v", answer, err)
				}
			}
		})
	}
}

// PUB-072 (part), PUB-074 (part): the API server takes any name of a controller, and clients ask for none that cannot be part of a path. One
// pod with such a name once kept all budgets of its namespace from being counted, and could not be deleted.
func TestAControllerThatNobodyCanAskForDoesNotExist(t *testing.T) {
	for _, name := range []string{"target", "selector"} {
		t.Run(name, func(t *testing.T) {
			r := newWorld(1)
			r.withDeployment(3)
			r.begin()
			r.rest()
			liar := r.pods()[0]
			liar.OwnerReferences[0].Name = "../dep"
			r.Store(podKey(liar.Name), liar)
			b := &policyv1beta1.PodUnavailableBudget{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
			covered(b, name)
			r.Store(budgetKey(name), b)
			r.rest()
			kept := r.Get(podKey(liar.Name)) != nil // else the garbage collector deleted it
			if r.exact(); r.failure != "" || kept != (name == "selector") {
				t.Error("the pod is there:", kept, r.failure)
			}
		})
	}
}

// PUB-042 (part): of a workload that the manager may not read the pods count that there are, whether the budget names it or selects its pods. A
// budget with a selector once expected none, and let all go.
func TestPodsOfWorkloadsThatMayNotBeReadCount(t *testing.T) {
	for _, name := range []string{"target", "selector"} {
		t.Run(name, func(t *testing.T) {
			r := newWorld(1)
			r.replicaSet("dep-1", "dep", 3, nil)
			yes, rs := true, r.Get(simulation.Key{Kind: "ReplicaSet", Name: "dep-1"})
			rs.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: rollouts.GroupVersion().String(), Kind: rollouts.Kind, Name: "rollout", UID: "rollout",
				Controller: &yes}})
			r.Store(simulation.Key{Kind: "ReplicaSet", Name: "dep-1"}, rs)
			r.begin()
			r.rest()
			b := &policyv1beta1.PodUnavailableBudget{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
			covered(b, name)
			if name == "target" {
				b.Spec.TargetReference = &policyv1beta1.TargetReference{APIVersion: rollouts.GroupVersion().String(), Kind: rollouts.Kind, Name: "rollout"}
			}
			r.Store(budgetKey(name), b)
			r.rest()
			if status := r.budget(name).Status; r.failure != "" || status.TotalReplicas != 3 || status.DesiredAvailable != 3 || status.CurrentAvailable != 3 {
				t.Errorf("%+v %s", status, r.failure)
			}
		})
	}
}

// PUB-042 (part): the same holds where the manager may read a workload, and not its scale subresource, as with the roles of an older version.
// Such workloads once counted as gone, so that all their pods could go.
func TestPodsOfWorkloadsWithoutTheRightToTheirScaleCount(t *testing.T) {
	for _, name := range []string{"target", "selector"} {
		t.Run(name, func(t *testing.T) {
			r := newWorld(1)
			r.unscaled = true
			r.withDeployment(3)
			r.begin()
			r.rest()
			b := &policyv1beta1.PodUnavailableBudget{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
			covered(b, name)
			r.Store(budgetKey(name), b)
			r.rest()
			if r.exact(); r.failure != "" {
				t.Error(r.failure)
			}
		})
	}
}

// covered has a budget that allows nothing cover the Deployment, in one of two ways.
func covered(b *policyv1beta1.PodUnavailableBudget, by string) {
	b.Spec.MaxUnavailable, b.Spec.Selector = kindtest.Number(0), &metav1.LabelSelector{MatchLabels: map[string]string{"app": "dep"}}
	if by == "target" {
		b.Spec.Selector, b.Spec.TargetReference = nil, &policyv1beta1.TargetReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "dep"}
	}
}
