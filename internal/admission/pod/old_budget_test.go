package pod

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	policyv1beta1 "github.com/afloat-project/afloat/api/policy/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/podunavailablebudget"
	podunavailablebudgetcontroller "github.com/afloat-project/afloat/internal/kinds/podunavailablebudget/controller"
	build "github.com/afloat-project/afloat/internal/kinds/podunavailablebudget/podunavailablebudgettest"
)

// PUB-081 (part): an eviction that a PodDisruptionBudget is about to refuse books nothing. Here the cache says that the budget is used up,
// and the API server that it is not any more.
func TestAnEvictionThatAPodDisruptionBudgetRefusesBooksNothingByAnOldBudget(t *testing.T) {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, policyv1beta1.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	pub := build.Budget(build.Counted(3, 2, 2))
	pub.ResourceVersion = ""
	closed := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "closed"},
		Spec:   policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
		Status: policyv1.PodDisruptionBudgetStatus{DesiredHealthy: 3, CurrentHealthy: 3}}
	api := fake.NewClientBuilder().WithScheme(s).WithStatusSubresource(pub).WithObjects(pub, closed).Build()
	stored := &policyv1beta1.PodUnavailableBudget{}
	if err := api.Get(t.Context(), client.ObjectKeyFromObject(pub), stored); err != nil {
		t.Fatal(err)
	}
	index := &podunavailablebudgetcontroller.Index{}
	index.Set(stored.DeepCopy())
	stored.Status.CurrentAvailable, stored.Status.UnavailableAllowed = 3, 1 // a pod came back
	if err := api.Status().Update(t.Context(), stored); err != nil {
		t.Fatal(err)
	}
	guard := podunavailablebudgetcontroller.NewGuard(api, api, index,
		podunavailablebudgetcontroller.NewOwners(api, meta.NewDefaultRESTMapper(nil), clock.RealClock{}), podunavailablebudget.Options{Deletes: true},
		func(context.Context) error { return nil }, time.Now)
	budgets := &Budgets{Guard: guard, Cached: api, Tell: func(*Disruption, string) {}}
	pod := build.Pod("p", func(pod *corev1.Pod) { pod.OwnerReferences, pod.Spec.NodeName = nil, "node" })
	err := budgets.Check().Apply(t.Context(), &Disruption{Pod: pod, By: policyv1beta1.Evict})
	if err := api.Get(t.Context(), client.ObjectKeyFromObject(pub), stored); err != nil {
		t.Fatal(err)
	}
	if _, booked := stored.Status.DisruptedPods["p"]; booked {
		t.Errorf("an eviction that a PodDisruptionBudget refuses (answer here: %v) is booked: %+v", err, stored.Status)
	}
}
