package controller

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	policyv1beta1 "github.com/afloat-project/afloat/api/policy/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/kindtest"
	"github.com/afloat-project/afloat/internal/kinds/podunavailablebudget"
)

// PUB-105 (part): a budget counts anew when one of its pods leaves service, also if the pod names another budget that covers it too. Once that
// one is gone it would allow too much.
func TestABudgetCountsPodsThatAnotherOneDecidesAbout(t *testing.T) {
	for app, target := range map[string]policyv1beta1.TargetReference{
		"web": {APIVersion: "apps.kruise.io/v1beta1", Kind: "CloneSet", Name: setName},
		"dep": {APIVersion: "apps/v1", Kind: "Deployment", Name: "dep"},
	} {
		t.Run(target.Kind, func(t *testing.T) {
			r := newWorld(1)
			r.withSet(3, 1)
			r.withDeployment(3)
			r.begin()
			add := func(name string, spec policyv1beta1.PodUnavailableBudgetSpec) {
				spec.MaxUnavailable = kindtest.Number(1)
				r.Store(budgetKey(name), &policyv1beta1.PodUnavailableBudget{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: spec})
				r.rest()
			}
			all, one := policyv1beta1.PodUnavailableBudgetSpec{}, policyv1beta1.PodUnavailableBudgetSpec{}
			all.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "a"}}
			one.TargetReference = &target
			add("all", all) // its name is on the pods from now on
			add("one", one)
			pods := r.pods()
			pod := pods[slices.IndexFunc(pods, func(p *corev1.Pod) bool { return p.Labels["app"] == app })]
			r.node.Crash(pod.Name)
			r.node.Frozen = map[string]bool{pod.Name: true}
			r.rest()
			if r.exact(); r.failure != "" || pod.Annotations["pub.kruise.io/related-pub"] != "all" {
				t.Error(r.failure, pod.Annotations)
			}
		})
	}
}

// Events ask which budgets a workload counts for while these are counted. This once ended the process: a map was read and written.
func TestEventsComeDuringAPass(t *testing.T) {
	r := newWorld(1)
	r.withSet(3, 1)
	r.newBudget(1)
	r.begin()
	r.rest()
	pass, rules, counts := r.leader.led.budgets.pass, r.leader.watch.Index.In(namespace)[0], make(chan bool)
	stop := make(chan struct{})
	go func() {
		known := true
		for {
			select {
			case counts <- known:
			case <-stop:
				return
			default:
				known = pass.Counts(rules, podunavailablebudget.Reference{GroupKind: appsv1beta1.GroupVersion.WithKind("CloneSet").GroupKind(), Name: setName})
			}
		}
	}()
	for range 100 {
		r.leader.led.queue.Add(requestOf(namespace, "b1"))
		r.Pass(time.Second)
		r.leader.work()
	}
	if !<-counts {
		t.Error("the budget does not count for the CloneSet")
	}
	close(stop)
}
