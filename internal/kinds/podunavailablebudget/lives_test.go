package podunavailablebudget

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	policyv1beta1 "github.com/afloat-project/afloat/api/policy/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/firstseen"
)

var noon = time.Date(2030, 1, 1, 0, 1, 0, 0, time.UTC)

func servingPod(name string, born time.Time) *corev1.Pod {
	yes := true
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), CreationTimestamp: metav1.NewTime(born),
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "rs", UID: "rs", Controller: &yes}}}}
	pod.Status.Phase = corev1.PodRunning
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	return pod
}

// PUB-061 (part), PUB-086 (part): the clock of who books is half a minute behind that of the API server, and the pod is young. A booking that
// is renewed keeps its date, so that its life does not begin anew for the manager that counts, whose clock is right.
func TestARenewedBookingOfAYoungPodLivesAnew(t *testing.T) {
	const behind = 30 * time.Second
	pod := servingPod("p", noon)
	budget := &policyv1beta1.PodUnavailableBudget{}
	budget.Status = policyv1beta1.PodUnavailableBudgetStatus{DesiredAvailable: 1, TotalReplicas: 2, CurrentAvailable: 2, UnavailableAllowed: 1}
	at := func(after time.Duration) time.Time { return noon.Add(after) } // the true time
	book := func(after time.Duration) Decision {
		ledger := NewLedger(NewRules(budget), Options{Deletes: true}, at(after).Add(-behind))
		decision := ledger.Book(pod, policyv1beta1.Delete)
		budget.Status = ledger.status
		return decision
	}
	if d := book(time.Second); !d.Booked {
		t.Fatalf("first: %+v", d)
	}
	seen := Note(nil, budget, at(time.Second))
	if d := book(19 * time.Second); !d.Renewed {
		t.Fatalf("asked again after 18 s: %+v", d)
	}
	seen = Note(seen, budget, at(19*time.Second))
	plan := Make(Snapshot{Rules: NewRules(budget), Pods: []*corev1.Pod{pod, servingPod("q", noon.Add(-time.Hour))}, Now: at(22 * time.Second), Seen: seen,
		Workloads: []Workload{{Replicas: new(int32(2))}}})
	if len(plan.Status.DisruptedPods) != 1 {
		t.Errorf("3 s after its booking was renewed the pod counts as in service: %+v", plan.Status)
	}
}

// PUB-062 (part): the clock of who books is 10 s behind that of the controller that updated the pod 5 s ago. The record of that former
// update is taken for the one of the update that was booked.
func TestTheRecordOfAFormerUpdateDoesNotEndABooking(t *testing.T) {
	pod := servingPod("p", noon.Add(-time.Hour))
	pod.Annotations = map[string]string{pub.InPlaceUpdateState: `{"revision":"r","updateTimestamp":"` + noon.Add(-5*time.Second).Format(time.RFC3339) + `","lastContainerStatuses":{}}`}
	if why, _ := Why(pod, noon); why != "" {
		t.Fatalf("the pod is not in service: %s", why)
	}
	budget := &policyv1beta1.PodUnavailableBudget{}
	budget.Status = policyv1beta1.PodUnavailableBudgetStatus{DesiredAvailable: 1, TotalReplicas: 2, CurrentAvailable: 2, UnavailableAllowed: 1}
	ledger := NewLedger(NewRules(budget), Options{Updates: true}, noon.Add(-10*time.Second))
	if d := ledger.Book(pod, policyv1beta1.Update); !d.Booked {
		t.Fatalf("%+v", d)
	}
	budget.Status = ledger.status
	s := Snapshot{Rules: NewRules(budget), Pods: []*corev1.Pod{pod}, Seen: Note(nil, budget, noon), Now: noon.Add(3 * time.Second)}
	if overdue := Overdue(&s); len(overdue) == 0 {
		if plan := Make(s); len(plan.Status.UnavailablePods) != 1 {
			t.Errorf("3 s after its update was booked, which the cache does not show, the pod counts as in service, and nobody looks at the API server: %+v", plan.Status)
		}
	}
}

// PUB-062 (part): the booking of an update ends 2 s after it at least. The time when it was first seen is cut to whole seconds.
func TestABookingOfAnUpdateLivesTwoSeconds(t *testing.T) {
	pod := servingPod("p", noon.Add(-time.Hour))
	pod.Annotations = map[string]string{pub.InPlaceUpdateState: `{"revision":"r","updateTimestamp":"` + noon.Format(time.RFC3339) + `","lastContainerStatuses":{}}`}
	budget := &policyv1beta1.PodUnavailableBudget{}
	budget.Status = policyv1beta1.PodUnavailableBudgetStatus{DesiredAvailable: 1, TotalReplicas: 2, CurrentAvailable: 2, UnavailableAllowed: 1}
	ledger := NewLedger(NewRules(budget), Options{Updates: true}, noon.Add(900*time.Millisecond))
	if d := ledger.Book(pod, policyv1beta1.Update); !d.Booked {
		t.Fatalf("%+v", d)
	}
	budget.Status = ledger.status
	seen := Note(nil, budget, noon.Add(950*time.Millisecond))
	after := 2 * time.Second // 1.1 s after the booking
	if plan := Make(Snapshot{Rules: NewRules(budget), Pods: []*corev1.Pod{pod}, Seen: seen, Now: noon.Add(after)}); len(plan.Status.UnavailablePods) != 1 {
		t.Errorf("%s after its update was booked the pod counts as in service: %+v", after-900*time.Millisecond, plan.Status)
	}
}

// PUB-087 (part): the deletion of p is asked for every 5 s, as by a drain, and never happens, since another webhook refuses it. q is to be let go
// at some time, because p is in service all the time.
func TestAPodThatNeverGoesDoesNotHoldTheOthersForEver(t *testing.T) {
	p, q := servingPod("p", noon.Add(-time.Hour)), servingPod("q", noon.Add(-time.Hour))
	budget := &policyv1beta1.PodUnavailableBudget{}
	budget.Status = policyv1beta1.PodUnavailableBudgetStatus{DesiredAvailable: 1, TotalReplicas: 2, CurrentAvailable: 2, UnavailableAllowed: 1}
	one := intstr.FromInt32(1)
	budget.Spec.MaxUnavailable = &one
	var seen firstseen.Times
	now := noon
	for ; now.Before(noon.Add(time.Hour)); now = now.Add(time.Second) {
		if now.Second()%5 == 0 {
			ledger := NewLedger(NewRules(budget), Options{Deletes: true}, now)
			ledger.Book(p, policyv1beta1.Evict)
			budget.Status = ledger.status
		}
		seen = Note(seen, budget, now)
		budget.Status = Make(Snapshot{Rules: NewRules(budget), Pods: []*corev1.Pod{p, q}, Seen: seen, Now: now, Workloads: []Workload{{Replicas: new(int32(2))}}}).Status
		if NewLedger(NewRules(budget), Options{Deletes: true}, now).Book(q, policyv1beta1.Evict).Allowed {
			return
		}
	}
	t.Errorf("for an hour q could not go, although both pods were in service all the time: %+v", budget.Status)
}
