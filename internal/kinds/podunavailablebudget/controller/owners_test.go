package controller

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	policyv1beta1 "github.com/afloat-project/afloat/api/policy/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/podunavailablebudget/podunavailablebudgettest"
	"github.com/afloat-project/afloat/internal/simulation"
)

// PUB-072 (part), PUB-041 (part): what a pod says of its controller holds for that pod alone. A pod with the
// UID of a ReplicaSet and another name once freed all pods of that ReplicaSet, because what was found out
// about one was remembered by the UID for the others.
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
				t.Errorf("the count: %s", r.failure)
			}
			r.Pass(time.Minute)
			for _, m := range r.managers {
				_, _ = m.watch.Guard.Book(t.Context(), Request{Pod: liar, By: policyv1beta1.Delete})
				answer, err := m.watch.Guard.Book(t.Context(), Request{Pod: r.pods()[1], By: policyv1beta1.Delete})
				if err != nil {
					t.Errorf("another pod of the ReplicaSet: unexpected error: %v\n%+v", err, answer)
				} else if answer.Allowed {
					t.Errorf("another pod of the ReplicaSet: allowed: got true, want false\n%+v\n%v", answer, err)
				}
			}
		})
	}
}

// PUB-072 (part), PUB-074 (part): the API server takes any name of a controller, and clients ask for none
// that cannot be part of a path. One pod with such a name once kept all budgets of its namespace from being
// counted, and could not be deleted.
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
			if r.exact(); r.failure != "" {
				t.Errorf("the count: %s", r.failure)
			}
			if want := name == "selector"; kept != want {
				t.Errorf("the pod is there: got %t, want %t", kept, want)
			}
		})
	}
}

// PUB-042 (part): of a workload that the manager may not read the pods count that there are, whether the
// budget names it or selects its pods. A budget with a selector once expected none, and let all go.
func TestPodsOfWorkloadsThatMayNotBeReadCount(t *testing.T) {
	for _, name := range []string{"target", "selector"} {
		t.Run(name, func(t *testing.T) {
			r := newWorld(1)
			r.withRollout(3)
			r.rollout = forbidden
			r.begin()
			r.rest()
			r.budgetOfRollout(name)
			r.rest()
			status := r.budget(name).Status
			if r.failure != "" {
				t.Errorf("failure: got %q, want %q\n%+v", r.failure, "", status)
			}
			if status.TotalReplicas != 3 {
				t.Errorf("total replicas: got %d, want 3\n%+v", status.TotalReplicas, status)
			}
			if status.DesiredAvailable != 3 {
				t.Errorf("pods that must be available: got %d, want 3\n%+v", status.DesiredAvailable, status)
			}
			if status.CurrentAvailable != 3 {
				t.Errorf("available pods: got %d, want 3\n%+v", status.CurrentAvailable, status)
			}
		})
	}
}

// withRollout adds a Rollout with so many pods, which a ReplicaSet has.
func (r *budgetRun) withRollout(replicas int) {
	r.rollout = replicas
	r.replicaSet("dep-1", "dep", int32(replicas), nil)
	yes, rs := true, r.Get(simulation.Key{Kind: "ReplicaSet", Name: "dep-1"})
	rs.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: rollouts.GroupVersion().String(), Kind: rollouts.Kind, Name: "rollout", UID: "rollout",
		Controller: &yes}})
	r.Store(simulation.Key{Kind: "ReplicaSet", Name: "dep-1"}, rs)
}

// budgetOfRollout adds a budget that allows nothing for its pods.
func (r *budgetRun) budgetOfRollout(name string) {
	b := &policyv1beta1.PodUnavailableBudget{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	if covered(b, name); name == "target" {
		b.Spec.TargetReference = &policyv1beta1.TargetReference{APIVersion: rollouts.GroupVersion().String(), Kind: rollouts.Kind, Name: "rollout"}
	}
	r.Store(budgetKey(name), b)
}

// PUB-105 (part), PUB-106 (part): a workload of a kind that is not watched is read again within a minute,
// although nothing is told of it. One that was scaled out once left its budget with the former number, by
// which all pods that came could go.
func TestAWorkloadThatIsNotWatchedIsReadAgain(t *testing.T) {
	for _, name := range []string{"target", "selector"} {
		t.Run(name, func(t *testing.T) {
			r := newWorld(1)
			r.withRollout(3)
			r.begin()
			r.budgetOfRollout(name)
			r.rest()
			r.rollout = 5
			r.rest()
			status := r.budget(name).Status
			if r.failure != "" {
				t.Errorf("failure: got %q, want %q\n%+v", r.failure, "", status)
			}
			if status.TotalReplicas != 5 {
				t.Errorf("total replicas: got %d, want 5\n%+v", status.TotalReplicas, status)
			}
		})
	}
}

// PUB-107 (part): a workload that appears right after its budget was counted counts once it has pods.
func TestAWorkloadThatIsNotWatchedAppears(t *testing.T) {
	r := newWorld(1)
	r.begin()
	r.budgetOfRollout("target")
	r.round()
	r.withRollout(3)
	for range 20 {
		r.round()
		r.Pass(500 * time.Millisecond)
	}
	status := r.budget("target").Status
	if r.failure != "" {
		t.Errorf("failure: got %q, want %q\n%+v", r.failure, "", status)
	}
	if status.TotalReplicas != 3 {
		t.Errorf("total replicas: got %d, want 3\n%+v", status.TotalReplicas, status)
	}
	if status.CurrentAvailable != 3 {
		t.Errorf("available pods: got %d, want 3\n%+v", status.CurrentAvailable, status)
	}
}

// PUB-042 (part): the same holds where the manager may read a workload, and not its scale subresource, as
// with the roles of an older version. Such workloads once counted as gone, so that all their pods could go.
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
				t.Errorf("the count: %s", r.failure)
			}
		})
	}
}

// PUB-101 (part): a pod of which nobody knows what controls it waits alone. A SidecarSet plans for pods of
// many namespaces, and one such pod once kept it from all others.
func TestAPodOfWhichNobodyKnowsTheControllerWaitsAlone(t *testing.T) {
	r := newWorld(1)
	r.withDeployment(3)
	r.begin()
	b := &policyv1beta1.PodUnavailableBudget{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "target"}}
	covered(b, "target")
	b.Spec.MaxUnavailable = new(intstr.FromInt32(1))
	r.Store(budgetKey("target"), b)
	r.rest()
	pods := r.pods()
	pods[0].OwnerReferences[0].Name = unreadable
	limits, err := r.leader.watch.Guard.Limits(t.Context(), pods)
	if err != nil {
		t.Fatal(err)
	}
	for i, waits := range []bool{true, false, true} { // one may go
		if refusal := limits.Take(pods[i], policyv1beta1.Delete); (refusal != "") != waits {
			t.Errorf("pod %d: %q", i, refusal)
		}
	}
}

// reads answers by namespace and name.
type reads struct {
	client.Reader
	objects map[client.ObjectKey]*metav1.PartialObjectMetadata
}

func (r reads) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	found := r.objects[key]
	if found == nil {
		return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
	}
	found.DeepCopyInto(into.(*metav1.PartialObjectMetadata))
	return nil
}

// PUB-072 (part): a pod of another namespace that names the same controller says nothing about those that it
// has. A plan for pods of many namespaces once took them for uncovered, and asked in vain, again and again.
func TestPodsOfAnotherNamespaceSayNothing(t *testing.T) {
	yes, index := true, &Index{}
	for _, namespace := range []string{"a", "b"} {
		b := &policyv1beta1.PodUnavailableBudget{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "target", Generation: 1}}
		covered(b, "target")
		b.Status = policyv1beta1.PodUnavailableBudgetStatus{ObservedGeneration: 1, TotalReplicas: 1, DesiredAvailable: 1, CurrentAvailable: 1}
		index.Set(b)
	}
	owner := func(kind, name string) []metav1.OwnerReference {
		return []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: kind, Name: name, UID: types.UID(name), Controller: &yes}}
	}
	live := reads{objects: map[client.ObjectKey]*metav1.PartialObjectMetadata{
		{Namespace: "b", Name: "rs"}:  {ObjectMeta: metav1.ObjectMeta{Name: "rs", UID: "rs", OwnerReferences: owner("Deployment", "dep")}},
		{Namespace: "b", Name: "dep"}: {ObjectMeta: metav1.ObjectMeta{Name: "dep", UID: "dep"}}}}
	guard := NewGuard(nil, live, index, NewOwners(live, mapper, clock.RealClock{}), podunavailablebudgettest.AllGates, nil, time.Now)
	var pods []*corev1.Pod
	for _, namespace := range []string{"a", "b"} {
		pods = append(pods, podunavailablebudgettest.Pod("p", func(pod *corev1.Pod) {
			pod.Namespace, pod.OwnerReferences = namespace, owner("ReplicaSet", "rs")
		}))
	}
	limits, err := guard.Limits(t.Context(), pods)
	if err != nil {
		t.Fatal(err)
	}
	if refusal := limits.Take(pods[1], policyv1beta1.Delete); refusal == "" {
		t.Error("the pod is not covered")
	}
}

// covered has a budget that allows nothing cover the Deployment, in one of two ways.
func covered(b *policyv1beta1.PodUnavailableBudget, by string) {
	b.Spec.MaxUnavailable, b.Spec.Selector = new(intstr.FromInt32(0)), &metav1.LabelSelector{MatchLabels: map[string]string{"app": "dep"}}
	if by == "target" {
		b.Spec.Selector, b.Spec.TargetReference = nil, &policyv1beta1.TargetReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "dep"}
	}
}
