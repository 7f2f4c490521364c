package podunavailablebudget

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	policyv1beta1 "github.com/afloat-project/afloat/api/policy/v1beta1"
)

// PUB-086 (part), PUB-087 (part): who was admitted goes later only if so many others are in service then as
// must be. A drain that a PodDisruptionBudget held up once took a pod of a workload that had grown meanwhile.
func TestABookingHoldsOnlyWhileTheBudgetAllowsIt(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 1, 0, 0, time.UTC)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", CreationTimestamp: metav1.NewTime(now.Add(-time.Hour))}}
	pod.Status.Phase = corev1.PodRunning
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	for name, test := range map[string]struct {
		age             time.Duration
		current         int32
		allowed, renews bool
	}{
		"a young booking holds":                    {9 * time.Second, 4, true, false},
		"a young one does not hold below the rest": {9 * time.Second, 3, false, false},
		"an old one is renewed":                    {10 * time.Second, 4, true, true},
		"an old one is not renewed below the rest": {10 * time.Second, 3, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			budget := &policyv1beta1.PodUnavailableBudget{}
			budget.Status = policyv1beta1.PodUnavailableBudgetStatus{DesiredAvailable: 4, TotalReplicas: 6, CurrentAvailable: test.current,
				DisruptedPods: map[string]metav1.Time{"p": metav1.NewTime(now.Add(-test.age))}}
			ledger := NewLedger(NewRules(budget), Options{Deletes: true}, now)
			decision := ledger.Book(pod, policyv1beta1.Evict)
			if decision.Allowed != test.allowed {
				t.Errorf("decision is allowed: got %t, want %t\n%+v\n%v", decision.Allowed, test.allowed, decision,
					ledger.Changes())
			}
			if decision.Booked {
				t.Errorf("decision is booked: got true, want false\n%+v\n%v", decision, ledger.Changes())
			}
			if decision.Renewed != test.renews {
				t.Errorf("the booking is renewed: got %t, want %t\n%+v\n%v", decision.Renewed, test.renews, decision,
					ledger.Changes())
			}
			if got := (ledger.Changes() != nil); got != test.renews {
				t.Errorf("there are changes: got %t, want %t\n%+v\n%v", got, test.renews, decision, ledger.Changes())
			}
		})
	}
}

// PUB-061 (part): the clock of who books is behind that of the API server, and the pod is young. Its booking
// was taken for one of a former pod of its name: it was dropped at once, and another pod could go.
func TestAYoungPodIsBookedByAClockThatIsBehind(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 1, 0, 0, time.UTC)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", CreationTimestamp: metav1.NewTime(now.Add(5 * time.Second))}}
	pod.Status.Phase = corev1.PodRunning
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	budget := &policyv1beta1.PodUnavailableBudget{}
	budget.Status = policyv1beta1.PodUnavailableBudgetStatus{DesiredAvailable: 1, TotalReplicas: 2, CurrentAvailable: 2, UnavailableAllowed: 1}
	ledger := NewLedger(NewRules(budget), Options{Deletes: true}, now)
	first, second := ledger.Book(pod, policyv1beta1.Evict), ledger.Book(pod, policyv1beta1.Evict)
	if !first.Booked {
		t.Errorf("booked the first time: got false, want true; %+v, then %+v", first, second)
	}
	if !second.Allowed {
		t.Errorf("allowed the second time: got false, want true; %+v, then %+v", first, second)
	}
	if second.Booked {
		t.Errorf("booked the second time: got true, want false; %+v, then %+v", first, second)
	}
	booked := budget.DeepCopy()
	booked.Status = ledger.status
	if plan := Make(Snapshot{Rules: NewRules(booked), Pods: []*corev1.Pod{pod}, Now: now}); len(plan.Status.DisruptedPods) != 1 {
		t.Errorf("number of disrupted pods: got %d, want 1\n%+v", len(plan.Status.DisruptedPods), plan.Status)
	}
}
