package controller

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	policyv1beta1 "github.com/afloat-project/afloat/api/policy/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/disruption"
	"github.com/afloat-project/afloat/internal/engine/readiness"
	"github.com/afloat-project/afloat/internal/kinds/cloneset/clonesettest"
	"github.com/afloat-project/afloat/internal/kinds/podunavailablebudget"
	"github.com/afloat-project/afloat/internal/kinds/podunavailablebudget/controller/guardtest"
	"github.com/afloat-project/afloat/internal/kinds/podunavailablebudget/podunavailablebudgettest"
)

// under has a PodUnavailableBudget limit what the manager does from a minute later on, and writes down what
// is asked. The webhooks find everything booked.
func (n *tale) under(options ...func(*policyv1beta1.PodUnavailableBudget)) *policyv1beta1.PodUnavailableBudget {
	budget := podunavailablebudgettest.Budget(append(options, func(b *policyv1beta1.PodUnavailableBudget) { b.Namespace = "default" })...)
	guard := &guardtest.Guard{Budget: budget, Now: n.Now, Pods: n.AllPods,
		Replicas: func() int32 { return *n.set().Spec.Replicas },
		Asked: func(pod *corev1.Pod, by disruption.Operation, answer podunavailablebudget.Decision) {
			n.say("asked: %s pod %s: %s", by, pod.Name, answer.Reason)
		}}
	n.Pass(time.Minute) // no pod is as young as a booking
	guard.Watch(n.Cluster, func(err error) { n.t.Errorf("the budget: %v", err) })
	n.kube.Guard = guard
	return budget
}

// budgetTales are rollouts under a PodUnavailableBudget.
func budgetTales() map[string]story {
	down := func(n *tale, count int) func() bool {
		return func() bool {
			return len(slices.DeleteFunc(n.active(), readiness.Ready)) == count && len(n.active()) == 3
		}
	}
	return map[string]story{
		"a budget paces updates in place": {clonesettest.Set(3, clonesettest.MaxUnavailable(3)), func(n *tale) {
			n.under() // PUB-100: who is refused is asked about again each second
			n.then("image nginx:2, one of three at a time", clonesettest.Image("nginx:2"))
			n.then("replicas 2", clonesettest.Replicas(2))
		}},
		"a budget paces recreation": {clonesettest.Set(2, clonesettest.MaxUnavailable(2),
			clonesettest.Policy(appsv1beta1.ReCreateCloneSetPodUpdatePolicy)), func(n *tale) {
			n.under()
			n.then("image nginx:2", clonesettest.Image("nginx:2"))
		}},
		"a budget that allows nothing, and then one more": {clonesettest.Set(3), func(n *tale) {
			budget := n.under(podunavailablebudgettest.MinAvailable(new(intstr.FromInt32(3))))
			n.midway("image nginx:2", clonesettest.Image("nginx:2"), func() bool { return n.text.Last != "" && n.Now().Second()%10 == 9 })
			n.act("minAvailable 2", func() { budget.Generation++; budget.Spec.MinAvailable = new(intstr.FromInt32(2)) })
		}},
		"a bad image is mended while a budget holds deletions": {clonesettest.Set(3, clonesettest.MaxUnavailable(2),
			clonesettest.Policy(appsv1beta1.ReCreateCloneSetPodUpdatePolicy)), func(n *tale) {
			n.under()
			n.midway("image nginx:bad, two pods at a time", clonesettest.Image("nginx:bad"), func() bool {
				return down(n, 1)() && n.Now().Second()%10 == 9
			})
			n.then("image nginx:2", clonesettest.Image("nginx:2"))
		}},
	}
}
