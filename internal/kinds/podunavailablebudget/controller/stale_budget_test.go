package controller

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	policyv1beta1 "github.com/afloat-project/afloat/api/policy/v1beta1"
	"github.com/afloat-project/afloat/internal/simulation"
)

// TestNoPodIsFreeByAnOldBudget: the budget that a replica knows says that no pod need stay, that the pod is
// ignored, that the operation is not protected, or that the pod is booked. Others have changed that. What is
// not booked is not written either, so that nobody found out (PUB-087 (part)).
func TestNoPodIsFreeByAnOldBudget(t *testing.T) {
	for name, before := range map[string]func(b *policyv1beta1.PodUnavailableBudget, pod *corev1.Pod, now time.Time){
		"no pod need stay": func(b *policyv1beta1.PodUnavailableBudget, _ *corev1.Pod, _ time.Time) {
			b.Status.DesiredAvailable, b.Status.TotalReplicas = 0, 0
		},
		"ignored": func(b *policyv1beta1.PodUnavailableBudget, pod *corev1.Pod, _ time.Time) {
			b.Spec.IgnoredPodSelector = &metav1.LabelSelector{MatchLabels: pod.Labels}
		},
		"not protected": func(b *policyv1beta1.PodUnavailableBudget, _ *corev1.Pod, _ time.Time) {
			b.Spec.ProtectOperations = []policyv1beta1.PodUnavailableBudgetOperation{policyv1beta1.Update}
		},
		"booked": func(b *policyv1beta1.PodUnavailableBudget, pod *corev1.Pod, now time.Time) {
			b.Status.DisruptedPods = map[string]metav1.Time{pod.Name: metav1.NewTime(now.Add(-5 * time.Second))}
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newWorld(1)
			r.withSet(3, 1)
			r.protect("b")
			r.beginOnTime()
			r.rest()
			pod := r.pods()[0]
			r.Pass(time.Minute)
			r.Change(budgetKey("b"), func(o client.Object) {
				b := o.(*policyv1beta1.PodUnavailableBudget)
				before(b, pod, r.Now())
				b.Generation++
				b.Status.ObservedGeneration = b.Generation
			})
			r.leader.as(func() { r.Deliver(1 << 20) })
			answer := r.book(t, pod, policyv1beta1.Delete)
			if !answer.Allowed {
				t.Fatalf("allowed: got false, want true\n%+v", answer)
			}
			if answer.Booked {
				t.Fatalf("booked: got true, want false\n%+v", answer)
			}
			r.Pass(3 * time.Second)
			r.Change(budgetKey("b"), func(o client.Object) {
				b := o.(*policyv1beta1.PodUnavailableBudget)
				b.Spec.IgnoredPodSelector, b.Spec.ProtectOperations = nil, nil
				b.Generation++
				b.Status.ObservedGeneration, b.Status.TotalReplicas = b.Generation, 3
				b.Status.DesiredAvailable, b.Status.CurrentAvailable, b.Status.UnavailableAllowed, b.Status.DisruptedPods = 3, 3, 0, nil
			})
			if answer := r.book(t, pod, policyv1beta1.Delete); answer.Allowed {
				t.Errorf("allowed: got true, want false\n%+v", answer)
			}
		})
	}
}

// TestFreePodsCostNoReadEach: who answers for many pods at the same time, or for one that was booked just
// now, does not read the budget for each of them.
func TestFreePodsCostNoReadEach(t *testing.T) {
	r := newWorld(1)
	r.withSet(3, 1)
	r.protect("b")
	r.beginOnTime()
	r.rest()
	reads := 0
	r.Answer = func(q *simulation.Request) error {
		if q.Verb == "get" && q.Key.Kind == "PodUnavailableBudget" {
			reads++
		}
		return nil
	}
	pods := r.pods()
	for range 5 { // our own controller, and then the webhook
		if answer := r.book(t, pods[0], policyv1beta1.Delete); !answer.Allowed {
			t.Fatalf("allowed: got false, want true\n%+v", answer)
		}
	}
	if reads > 0 {
		t.Errorf("%d reads for what was booked just now", reads)
	}
	r.Change(budgetKey("b"), func(o client.Object) {
		status := &o.(*policyv1beta1.PodUnavailableBudget).Status
		status.DesiredAvailable, status.TotalReplicas = 0, 0
	})
	r.leader.as(func() { r.Deliver(1 << 20) })
	r.Pass(time.Minute)
	for range 5 {
		r.book(t, pods[1], policyv1beta1.Delete)
		r.Pass(100 * time.Millisecond)
	}
	if reads != 1 {
		t.Errorf("%d reads", reads)
	}
}
