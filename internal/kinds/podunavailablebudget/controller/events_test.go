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

// PUB-073 (part), PUB-075 (part): of two budgets that cover a pod the one of its workload decides, whichever counts first.
func TestPodsAreToldOfTheBudgetOfTheirWorkload(t *testing.T) {
	r := newWorld(1)
	r.unasked = true
	r.withSet(3, 1)
	r.withDeployment(3)
	for name, target := range map[string]*policyv1beta1.TargetReference{"a-of-all": nil,
		"of-set":        {APIVersion: "apps.kruise.io/v1beta1", Kind: "CloneSet", Name: setName},
		"of-deployment": {APIVersion: "apps/v1", Kind: "Deployment", Name: "dep"}} {
		b := &policyv1beta1.PodUnavailableBudget{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		b.Spec.MaxUnavailable, b.Spec.TargetReference = kindtest.Number(1), target
		if target == nil {
			b.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "a"}}
		}
		r.Store(budgetKey(name), b)
	}
	r.begin()
	r.rest()
	for _, pod := range r.pods() {
		want := map[string]string{"web": "of-set", "dep": "of-deployment"}[pod.Labels["app"]]
		if got := pod.Annotations["pub.kruise.io/related-pub"]; got != want {
			t.Errorf("pod %s is told of budget %s", pod.Name, got)
		}
	}
}

// PUB-089 (part): a budget that is gone holds nobody, and another one that covers the pod decides in its place, however late a replica hears
// of it all. Who replaced a budget by one of another name once left its pods unprotected for a moment.
func TestAnotherBudgetDecidesInThePlaceOfOneThatIsGone(t *testing.T) {
	for _, test := range []struct {
		both    bool
		allowed bool
	}{{false, true}, {true, false}} {
		r := newWorld(1)
		r.withSet(3, 1)
		r.begin()
		add := func(name, label, value string) {
			b := &policyv1beta1.PodUnavailableBudget{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
			b.Spec.MaxUnavailable, b.Spec.Selector = kindtest.Number(0), &metav1.LabelSelector{MatchLabels: map[string]string{label: value}}
			r.Store(budgetKey(name), b)
			r.rest()
		}
		add("old", "team", "a")
		if test.both {
			add("new", "app", "web")
		}
		r.Remove(budgetKey("old"))
		for _, m := range r.managers { // no event has come yet
			answer, err := m.watch.Guard.Book(t.Context(), Request{Pod: r.pods()[0], By: policyv1beta1.Delete})
			if err != nil || answer.Allowed != test.allowed {
				t.Errorf("%+v: %+v %v", test, answer, err)
			}
		}
	}
}

// PUB-070 (part), PUB-076 (part): who writes the name of a budget on a pod frees it from none that covers it. A budget of a workload of another kind
// may have pods that only its scale subresource selects, which was believed of each pod that names it.
func TestAPodCannotChooseABudgetThatDoesNotCoverIt(t *testing.T) {
	for _, strict := range []string{"target", "selector"} {
		r := newWorld(1)
		r.withDeployment(3)
		r.begin()
		for _, name := range []string{strict, "lax"} {
			b := &policyv1beta1.PodUnavailableBudget{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
			if covered(b, name); name == "lax" { // its workload does not exist, so that it lets all pods go
				b.Spec.Selector, b.Spec.TargetReference = nil, &policyv1beta1.TargetReference{APIVersion: "argoproj.io/v1alpha1", Kind: "Rollout", Name: "gone"}
			}
			r.Store(budgetKey(name), b)
		}
		r.rest()
		pod := r.pods()[0]
		for _, annotation := range []string{"pub.kruise.io/related-pub", "kruise.io/related-pub"} {
			pod.Annotations = map[string]string{annotation: "lax"}
			for _, m := range r.managers {
				answer, err := m.watch.Guard.Book(t.Context(), Request{Pod: pod, By: policyv1beta1.Delete})
				if err != nil || answer.Allowed {
					t.Errorf("%s, %s: %+v %v", strict, annotation, answer, err)
				}
			}
		}
		r.Store(podKey(pod.Name), pod)
		if r.rest(); r.pods()[0].Annotations["pub.kruise.io/related-pub"] != strict {
			t.Error(strict, r.pods()[0].Annotations)
		}
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
		r.leader.led.queue.Add(requestOf("b1"))
		r.Pass(time.Second)
		r.leader.work()
	}
	if !<-counts {
		t.Error("the budget does not count for the CloneSet")
	}
	close(stop)
}
