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

// oneBudget returns the check of a PodUnavailableBudget that is used up, which is cached as it is stored, beside other objects.
func oneBudget(t *testing.T, others ...client.Object) (*Budgets, client.Client, *policyv1beta1.PodUnavailableBudget) {
	t.Helper()
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, policyv1beta1.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	pub := build.Budget(build.Counted(3, 2, 2))
	pub.ResourceVersion = ""
	api := fake.NewClientBuilder().WithScheme(s).WithStatusSubresource(pub).WithObjects(append(others, pub)...).Build()
	stored := &policyv1beta1.PodUnavailableBudget{}
	if err := api.Get(t.Context(), client.ObjectKeyFromObject(pub), stored); err != nil {
		t.Fatal(err)
	}
	index := &podunavailablebudgetcontroller.Index{}
	index.Set(stored.DeepCopy())
	guard := podunavailablebudgetcontroller.NewGuard(api, api, index,
		podunavailablebudgetcontroller.NewOwners(api, meta.NewDefaultRESTMapper(nil), clock.RealClock{}), podunavailablebudget.Options{Deletes: true},
		func(context.Context) error { return nil }, time.Now)
	return &Budgets{Guard: guard, Cached: api, Tell: func(*Disruption, string) {}}, api, stored
}

// PUB-081 (part), PUB-086 (part): an eviction of a pod that is out of service is booked, unless a PodDisruptionBudget is about
// to refuse it. A drain that waits for such a budget asks every 5 s: the pod was booked for as long, did not count for 20 s
// once it was back in service, and events told that its deletion had been admitted.
func TestAnEvictionOfAPodOutOfServiceThatIsRefusedElsewhereBooksNothing(t *testing.T) {
	always := policyv1.AlwaysAllow
	disruptions := func(desired, current int32, policy *policyv1.UnhealthyPodEvictionPolicyType) *policyv1.PodDisruptionBudget {
		return &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "closed"},
			Spec:   policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}, UnhealthyPodEvictionPolicy: policy},
			Status: policyv1.PodDisruptionBudgetStatus{DesiredHealthy: desired, CurrentHealthy: current}}
	}
	for name, tt := range map[string]struct {
		budget *policyv1.PodDisruptionBudget
		phase  corev1.PodPhase
		booked bool
	}{
		"refused":                             {disruptions(3, 2, nil), corev1.PodRunning, false},
		"no pod is healthy":                   {disruptions(0, 0, nil), corev1.PodRunning, false},
		"enough others are healthy":           {disruptions(2, 2, nil), corev1.PodRunning, true},
		"it does not care for unhealthy pods": {disruptions(3, 2, &always), corev1.PodRunning, true},
		"there is none":                       {nil, corev1.PodRunning, true},
		"it is not asked about pending pods":  {disruptions(3, 2, nil), corev1.PodPending, true},
	} {
		t.Run(name, func(t *testing.T) {
			var others []client.Object
			if tt.budget != nil {
				others = append(others, tt.budget)
			}
			budgets, api, stored := oneBudget(t, others...)
			pod := build.Pod("p", build.NotReady, build.Phase(tt.phase), func(pod *corev1.Pod) { pod.OwnerReferences, pod.Spec.NodeName = nil, "node" })
			if err := budgets.Check().Apply(t.Context(), &Disruption{Pod: pod, By: policyv1beta1.Evict}); err != nil {
				t.Errorf("the eviction is left to the API server: got %v, want no error", err)
			}
			if err := api.Get(t.Context(), client.ObjectKeyFromObject(stored), stored); err != nil {
				t.Fatal(err)
			}
			if _, booked := stored.Status.DisruptedPods["p"]; booked != tt.booked {
				t.Errorf("booked: got %t, want %t\n%+v", booked, tt.booked, stored.Status)
			}
		})
	}
}

// PUB-081 (part): an eviction that a PodDisruptionBudget is about to refuse books nothing. Here the cache says that the budget is used up,
// and the API server that it is not any more.
func TestAnEvictionThatAPodDisruptionBudgetRefusesBooksNothingByAnOldBudget(t *testing.T) {
	budgets, api, stored := oneBudget(t, &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "closed"},
		Spec:   policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
		Status: policyv1.PodDisruptionBudgetStatus{DesiredHealthy: 3, CurrentHealthy: 3}})
	stored.Status.CurrentAvailable, stored.Status.UnavailableAllowed = 3, 1 // a pod came back
	if err := api.Status().Update(t.Context(), stored); err != nil {
		t.Fatal(err)
	}
	pod := build.Pod("p", func(pod *corev1.Pod) { pod.OwnerReferences, pod.Spec.NodeName = nil, "node" })
	if err := budgets.Check().Apply(t.Context(), &Disruption{Pod: pod, By: policyv1beta1.Evict}); err == nil {
		t.Error("the eviction is allowed")
	}
	if err := api.Get(t.Context(), client.ObjectKeyFromObject(stored), stored); err != nil {
		t.Fatal(err)
	}
	if _, booked := stored.Status.DisruptedPods["p"]; booked {
		t.Errorf("an eviction that a PodDisruptionBudget refuses is booked: %+v", stored.Status)
	}
}
