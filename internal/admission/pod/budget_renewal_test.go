package pod

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	policyv1beta1 "github.com/afloat-project/afloat/api/policy/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/podunavailablebudget"
	podunavailablebudgetcontroller "github.com/afloat-project/afloat/internal/kinds/podunavailablebudget/controller"
)

// answers gives the same decision to all requests, and counts those that are no dry runs.
type answers struct {
	decision podunavailablebudget.Decision
	booked   int
}

func (a *answers) Book(_ context.Context, request podunavailablebudgetcontroller.Request) (podunavailablebudgetcontroller.Answer, error) {
	if !request.DryRun {
		a.booked++
	}
	return podunavailablebudgetcontroller.Answer{Decision: a.decision}, nil
}

func (a *answers) Covering(context.Context, *corev1.Pod) (*policyv1beta1.PodUnavailableBudget, error) {
	return nil, nil
}

// PUB-001 (part), PUB-089 (part): an eviction that a PodDisruptionBudget is about to refuse neither books the
// pod nor keeps its booking alive. A drain that waited for such a budget once held the place of all other
// pods for ever, because each attempt renewed the booking.
func TestAnEvictionThatIsRefusedElsewhereBooksNothing(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", Labels: map[string]string{"app": "web"}}}
	closed := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec: policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}}}
	for name, decision := range map[string]podunavailablebudget.Decision{"booked": {Allowed: true, Booked: true},
		"renewed": {Allowed: true, Renewed: true}} {
		t.Run(name, func(t *testing.T) {
			guard := &answers{decision: decision}
			budgets := &Budgets{Guard: guard, Cached: fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(closed).Build()}
			err := budgets.Check().Apply(t.Context(), &Disruption{Pod: pod, By: policyv1beta1.Evict})
			var refused *Refused
			if !errors.As(err, &refused) {
				t.Errorf("eviction: got %v, want it refused", err)
			}
			if guard.booked > 0 {
				t.Errorf("booked: got %d, want none", guard.booked)
			}
		})
	}
}
