package controller

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	policyv1beta1 "github.com/afloat-project/afloat/api/policy/v1beta1"
	"github.com/afloat-project/afloat/internal/simulation"
)

func minAvailable(n int) func(*policyv1beta1.PodUnavailableBudget) {
	return func(b *policyv1beta1.PodUnavailableBudget) {
		b.Spec.MaxUnavailable, b.Spec.MinAvailable = nil, new(intstr.FromInt32(int32(n)))
	}
}

func controlledBy(object client.Object, apiVersion, kind string) []metav1.OwnerReference {
	yes := true
	return []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: object.GetName(), UID: object.GetUID(), Controller: &yes}}
}

// fleet adds a workload of somebody else's kind, which controls ReplicaSet rs.
func (r *budgetRun) fleet(replicas int64) {
	object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "x.io/v1", "kind": "Fleet",
		"metadata": map[string]any{"namespace": namespace, "name": "fleet"}, "spec": map[string]any{"replicas": replicas}}}
	r.Store(fleetKey, object)
	r.replicaSet("rs", "rs", int32(replicas), nil)
	r.Change(simulation.Key{Kind: "ReplicaSet", Name: "rs"}, func(o client.Object) { o.SetOwnerReferences(controlledBy(object, "x.io/v1", "Fleet")) })
}

var fleetKey = simulation.Key{Kind: "Fleet", Name: "fleet"}

// PUB-003: a crash, the eviction of a pod by its kubelet, and a node that is lost are not prevented, and
// leave fewer pods that may go.
func TestInvoluntaryLossLeavesFewerPodsThatMayGo(t *testing.T) {
	for name, lose := range map[string]func(r *budgetRun, pod string){
		"crash":            func(r *budgetRun, pod string) { r.node.Crash(pod) },
		"kubelet eviction": func(r *budgetRun, pod string) { r.node.Fail(pod) },
		"lost node": func(r *budgetRun, pod string) {
			r.Change(podKey(pod), func(o client.Object) { o.(*corev1.Pod).Status.Conditions = nil })
		},
	} {
		r := newWorld(1)
		r.withSet(3, 1)
		r.protect("b", minAvailable(1))
		r.beginOnTime()
		r.rest()
		pods := r.pods()
		for lost, want := range []int32{2, 1, 0, 0} {
			if lost > 0 {
				lose(r, pods[lost-1].Name)
				r.Pass(time.Second)
				r.count()
			}
			s := r.budget("b").Status
			if serve := int32(3 - lost); s.UnavailableAllowed != want {
				t.Errorf("%s: pods that may become unavailable: got %d, want %d; after %d: %+v", name, s.UnavailableAllowed, want, lost, s)
			} else if s.CurrentAvailable != serve {
				t.Errorf("%s: available pods: got %d, want %d; after %d: %+v", name, s.CurrentAvailable, serve, lost, s)
			} else if got := r.oracle.inService(r.Get(podKey(pods[2].Name)).(*corev1.Pod)); got != (lost < 3) {
				t.Errorf("%s: the pod counts as in service: got %t, want %t; after %d: %+v", name, got, lost < 3,
					lost, s)
			}
			if lost == 2 && r.book(t, pods[2], policyv1beta1.Delete).Allowed {
				t.Errorf("%s: the last pod may go", name)
			}
		}
	}
}

// PUB-036, PUB-D3: once a workload is gone, terminating or scaled to 0, none are expected and nothing holds
// the pods that are left, also of a budget with an integer minAvailable. Only pods of what is scaled to 0
// still are of the set of a budget that names it.
func TestTheLastPodsOfAWorkloadCanGo(t *testing.T) {
	for end, do := range map[string]func(r *budgetRun, key simulation.Key){
		"gone":        func(r *budgetRun, key simulation.Key) { r.Remove(key) },
		"terminating": func(r *budgetRun, key simulation.Key) { r.EndGracefully(key) },
		"scaled to 0": func(r *budgetRun, key simulation.Key) { r.scale(key, 0) },
	} {
		for by, option := range map[string]func(*policyv1beta1.PodUnavailableBudget){"labels": func(*policyv1beta1.PodUnavailableBudget) {},
			"target": target("apps/v1", "ReplicaSet", "rs")} {
			t.Run(end+" by "+by, func(t *testing.T) {
				r := newWorld(1)
				r.replicaSet("rs", "rs", 3, nil)
				key := simulation.Key{Kind: "ReplicaSet", Name: "rs"}
				r.Change(key, func(o client.Object) { o.SetFinalizers([]string{"x.io/foreground"}) })
				r.protect("b", minAvailable(3), option)
				r.beginOnTime()
				r.rest()
				if r.exact(); r.failure != "" || r.book(t, r.pods()[0], policyv1beta1.Delete).Allowed {
					t.Fatalf("before: a deletion is allowed, or the count is wrong: %s", r.failure)
				}
				do(r, key)
				r.Pass(time.Second)
				r.count()
				current := int32(3)
				if by == "target" && end != "scaled to 0" {
					current = 0
				}
				s := r.budget("b").Status
				if s.TotalReplicas != 0 {
					t.Errorf("total replicas: got %d, want 0\n%+v", s.TotalReplicas, s)
				}
				if s.DesiredAvailable != 0 {
					t.Errorf("pods that must be available: got %d, want 0\n%+v", s.DesiredAvailable, s)
				}
				if s.CurrentAvailable != current {
					t.Errorf("available pods: got %d, want %d\n%+v", s.CurrentAvailable, current, s)
				}
				for _, pod := range r.pods() {
					for _, by := range policyv1beta1.BudgetOperations {
						answer := r.book(t, pod, by)
						if !answer.Allowed {
							t.Errorf("%s: allowed: got false, want true\n%+v", by, answer)
						}
						if answer.Booked {
							t.Errorf("%s: booked: got true, want false\n%+v", by, answer)
						}
					}
				}
			})
		}
	}
}

// PUB-042: where nobody says how many pods there shall be, those that there are count, and an event asks for
// protectTotalReplicas, once. That a negative number never enters the sum shows TestTheNumbers.
func TestWorkloadsThatDoNotSayTheirReplicas(t *testing.T) {
	for name, option := range map[string]func(*policyv1beta1.PodUnavailableBudget){"labels": func(*policyv1beta1.PodUnavailableBudget) {},
		"target": target("apps/v1", "DaemonSet", "agent")} {
		for _, override := range []*int32{nil, new(int32(7))} {
			r := newWorld(1)
			set := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "agent"}}
			r.Store(simulation.Key{Kind: "DaemonSet", Name: "agent"}, set)
			for i, phase := range []corev1.PodPhase{corev1.PodRunning, corev1.PodRunning, corev1.PodPending, corev1.PodSucceeded} {
				pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: string(rune('a' + i)), Labels: map[string]string{"team": "a"},
					OwnerReferences: controlledBy(set, "apps/v1", "DaemonSet")}}
				pod.Status.Phase = phase
				pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
				r.Store(podKey(pod.Name), pod)
			}
			r.protect("b", option, func(b *policyv1beta1.PodUnavailableBudget) { b.Spec.ProtectTotalReplicas = override })
			r.beginOnTime()
			for range 5 {
				r.leader.led.queue.Add(requestOf("b"))
				r.Pass(time.Second)
				r.count()
			}
			want, told := int32(3), []string{"b: Warning UnknownReplicas it does not say how many pods there shall be, so those that there are count; " +
				"set protectTotalReplicas: DaemonSet agent"}
			if override != nil {
				want, told = *override, nil
			}
			s := r.budget("b").Status
			if s.TotalReplicas != want {
				t.Errorf("%s: total replicas: got %d, want %d\n%+v", name, s.TotalReplicas, want, s)
			}
			if s.DesiredAvailable != want-1 {
				t.Errorf("%s: pods that must be available: got %d, want %d\n%+v", name, s.DesiredAvailable, want-1, s)
			}
			if s.CurrentAvailable != 2 {
				t.Errorf("%s: available pods: got %d, want 2\n%+v", name, s.CurrentAvailable, s)
			}
			if got := r.events("UnknownReplicas"); !slices.Equal(got, told) {
				t.Errorf(`%s: events UnknownReplicas: got %q, want %q`, name, got, told)
			}
		}
	}
}

// PUB-042 (part), ADS-W4: a DaemonSet, native or ours, has no scale, but its status says how many pods there
// shall be; also when fewer are there.
func TestDaemonSetsSayTheirReplicas(t *testing.T) {
	native := &appsv1.DaemonSet{Status: appsv1.DaemonSetStatus{DesiredNumberScheduled: 5, ObservedGeneration: 1}}
	ours := &appsv1beta1.DaemonSet{}
	ours.Status.DesiredNumberScheduled, ours.Status.ObservedGeneration = 5, 1
	for apiVersion, set := range map[string]client.Object{"apps/v1": native, "apps.kruise.io/v1beta1": ours} {
		for name, option := range map[string]func(*policyv1beta1.PodUnavailableBudget){"labels": func(*policyv1beta1.PodUnavailableBudget) {},
			"target": target(apiVersion, "DaemonSet", "agent")} {
			r := newWorld(1)
			set := set.DeepCopyObject().(client.Object)
			set.SetNamespace(namespace)
			set.SetName("agent")
			r.Store(simulation.Key{Kind: "DaemonSet", Name: "agent"}, set)
			for _, name := range []string{"a", "b", "c"} {
				pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"team": "a"},
					OwnerReferences: controlledBy(set, apiVersion, "DaemonSet")}}
				pod.Status.Phase = corev1.PodRunning
				pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
				r.Store(podKey(pod.Name), pod)
			}
			r.protect("b", option)
			r.beginOnTime()
			for range 5 {
				r.leader.led.queue.Add(requestOf("b"))
				r.Pass(time.Second)
				r.count()
			}
			s := r.budget("b").Status
			if s.TotalReplicas != 5 {
				t.Errorf("%s, %s: total replicas: got %d, want 5\n%+v", apiVersion, name, s.TotalReplicas, s)
			}
			if s.DesiredAvailable != 4 {
				t.Errorf("%s, %s: pods that must be available: got %d, want 4\n%+v", apiVersion, name, s.DesiredAvailable, s)
			}
			if s.CurrentAvailable != 3 {
				t.Errorf("%s, %s: available pods: got %d, want 3\n%+v", apiVersion, name, s.CurrentAvailable, s)
			}
			if s.UnavailableAllowed != 0 {
				t.Errorf("%s, %s: pods that may become unavailable: got %d, want 0\n%+v", apiVersion, name, s.UnavailableAllowed, s)
			}
			if got := r.events("UnknownReplicas"); len(got) > 0 {
				t.Errorf(`%s, %s: events UnknownReplicas: got %q, want none`, apiVersion, name, got)
			}
		}
	}
}

// PUB-107, PUB-D2: a budget that is there before its pods, or before its workload, of whatever kind, picks
// them up: at once where it is told of them, and within a minute otherwise.
func TestBudgetsThatAreThereFirst(t *testing.T) {
	r := newWorld(1)
	r.protect("of-fleet", target("x.io/v1", "Fleet", "fleet"))
	r.protect("of-set", target("apps.kruise.io/v1beta1", "CloneSet", setName))
	r.protect("of-deployment", target("apps/v1", "Deployment", "dep"))
	r.beginOnTime()
	r.rest()
	for _, name := range []string{"of-fleet", "of-set", "of-deployment"} {
		if due, waits := r.leader.led.queue.due[requestOf(name)]; !waits {
			t.Errorf("waits: got false, want true; %s is looked at again at %v, now it is %v", name, due, r.Now())
		} else if got := due.Sub(r.Now()); got > time.Minute {
			t.Errorf("time until it is due: got %v, want at most %v; %s is looked at again at %v, now it is %v", got, time.Minute, name, due,
				r.Now())
		}
	}
	r.withSet(3, 1)
	r.withDeployment(2)
	r.fleet(4)
	r.rest()
	if r.exact(); r.failure != "" {
		t.Errorf("the count: %s", r.failure)
	}
	for name, total := range map[string]int32{"of-fleet": 4, "of-set": 3, "of-deployment": 2} {
		s := r.budget(name).Status
		if s.TotalReplicas != total {
			t.Errorf("%s: total replicas: got %d, want %d\n%+v", name, s.TotalReplicas, total, s)
		}
		if s.CurrentAvailable != total {
			t.Errorf("%s: available pods: got %d, want %d\n%+v", name, s.CurrentAvailable, total, s)
		}
	}
}

// PUB-106: a scale-in may go on at once, as soon as the new number of replicas is known.
func TestAScaleInIsNotHeld(t *testing.T) {
	r := newWorld(1)
	r.withSet(6, 1)
	r.withDeployment(6)
	r.replicaSet("rs", "rs", 6, nil)
	r.protect("of-set", target("apps.kruise.io/v1beta1", "CloneSet", setName))
	r.protect("of-deployment", target("apps/v1", "Deployment", "dep"))
	r.protect("of-rs", target("apps/v1", "ReplicaSet", "rs"))
	r.protect("of-all")
	r.beginOnTime()
	r.rest()
	for _, key := range []simulation.Key{setKey, deploymentKey, {Kind: "ReplicaSet", Name: "rs"}} {
		r.scale(key, 2)
	}
	r.leader.as(func() { r.Deliver(1 << 20) })
	for r.leader.work() { // at the same time
	}
	for name, allowed := range map[string]int32{"of-deployment": 5, "of-rs": 5} {
		s := r.budget(name).Status
		if s.TotalReplicas != 2 {
			t.Errorf("%s: total replicas: got %d, want 2\n%+v", name, s.TotalReplicas, s)
		}
		if s.UnavailableAllowed != allowed {
			t.Errorf("%s: pods that may become unavailable: got %d, want %d\n%+v", name, s.UnavailableAllowed, allowed, s)
		}
	}
	// The CloneSet has begun to take its pods in by what its budgets allow.
	s := r.budget("of-set").Status
	if s.TotalReplicas != 2 {
		t.Errorf("of-set: total replicas: got %d, want 2\n%+v", s.TotalReplicas, s)
	}
	if s.DesiredAvailable != 1 {
		t.Errorf("of-set: pods that must be available: got %d, want 1\n%+v", s.DesiredAvailable, s)
	}
	if s := r.budget("of-all").Status; s.TotalReplicas != 6 {
		t.Errorf("of-all: total replicas: got %d, want 6\n%+v", s.TotalReplicas, s)
	} else if s.DesiredAvailable != 5 {
		t.Errorf("of-all: pods that must be available: got %d, want 5\n%+v", s.DesiredAvailable, s)
	}
}

// PUB-105 (part): of kinds that are not watched the replicas are looked at from time to time, also where no
// pod changes. A budget that read them shortly before somebody changed them once kept the former number for
// ever.
func TestReplicasOfOtherKinds(t *testing.T) {
	for name, option := range map[string]func(*policyv1beta1.PodUnavailableBudget){"labels": func(*policyv1beta1.PodUnavailableBudget) {},
		"target": target("x.io/v1", "Fleet", "fleet")} {
		r := newWorld(1)
		r.fleet(3)
		r.protect("b", option)
		r.beginOnTime()
		r.rest()
		r.Change(fleetKey, func(o client.Object) {
			if err := unstructured.SetNestedField(o.(*unstructured.Unstructured).Object, int64(5), "spec", "replicas"); err != nil {
				t.Fatal(err)
			}
		})
		for range 61 {
			r.Pass(time.Second)
			r.count()
		}
		s := r.budget("b").Status
		if s.TotalReplicas != 5 {
			t.Errorf("%s: total replicas: got %d, want 5\n%+v", name, s.TotalReplicas, s)
		}
		if s.DesiredAvailable != 4 {
			t.Errorf("%s: pods that must be available: got %d, want 4\n%+v", name, s.DesiredAvailable, s)
		}
	}
}

// PUB-035, PUB-040: the active pods of a workload are those that its UID owns, by whatever kind, and how many
// there shall be is what it says, or else what the budget does. TestPodsOfADeployment and
// TestPodsThatAScaleSelects show the others, TestActivePods which are active.
func TestPodsOfAWorkload(t *testing.T) {
	for _, of := range [][2]string{{"apps/v1", "ReplicaSet"}, {"v1", "ReplicationController"}, {"apps/v1", "StatefulSet"},
		{"apps.kruise.io/v1beta1", "CloneSet"}, {"apps.kruise.io/v1beta1", "StatefulSet"}, {"x.io/v1", "Fleet"}} {
		for _, override := range []*int32{nil, new(int32(9))} {
			r := newWorld(1)
			object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": of[0], "kind": of[1],
				"metadata": map[string]any{"namespace": namespace, "name": "w"}, "spec": map[string]any{"replicas": int64(5)}}}
			r.Store(simulation.Key{Kind: of[1], Name: "w"}, object)
			for name, change := range map[string]func(*corev1.Pod){"a": nil, "b": nil, "ended": func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodSucceeded },
				"former": func(pod *corev1.Pod) { pod.OwnerReferences[0].UID = "former" }, "bare": func(pod *corev1.Pod) { pod.OwnerReferences = nil }} {
				pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, OwnerReferences: controlledBy(object, of[0], of[1])}}
				pod.Status.Phase = corev1.PodRunning
				pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
				if change != nil {
					change(pod)
				}
				r.Store(podKey(name), pod)
			}
			r.protect("b", target(of[0], of[1], "w"), func(b *policyv1beta1.PodUnavailableBudget) { b.Spec.ProtectTotalReplicas = override })
			r.beginOnTime()
			r.counts()
			total := int32(5)
			if override != nil {
				total = 9
			}
			s := r.budget("b").Status
			if s.TotalReplicas != total {
				t.Errorf("%v: total replicas: got %d, want %d\n%+v", of, s.TotalReplicas, total, s)
			}
			if s.CurrentAvailable != 2 {
				t.Errorf("%v: available pods: got %d, want 2\n%+v", of, s.CurrentAvailable, s)
			}
		}
	}
}

// PUB-035 (part): a Deployment has the pods of all its ReplicaSets, also of those that are scaled to 0 or
// terminating.
func TestPodsOfADeployment(t *testing.T) {
	r := newWorld(1)
	r.withDeployment(3)
	deployment := r.Get(deploymentKey).(*appsv1.Deployment)
	r.replicaSet("dep-0", "dep", 1, deployment)
	r.replicaSet("dep-9", "dep", 1, deployment)
	r.replicaSet("other", "other", 1, nil)
	for range 3 {
		for _, object := range r.List("ReplicaSet", false) {
			rs := object.(*appsv1.ReplicaSet)
			name := rs.Name + "-" + string(rune('a'+len(r.pods())))
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, OwnerReferences: controlledBy(rs, "apps/v1", "ReplicaSet")}}
			pod.Status.Phase = corev1.PodRunning
			pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
			r.Store(podKey(name), pod)
		}
	}
	r.scale(simulation.Key{Kind: "ReplicaSet", Name: "dep-0"}, 0)
	leaving := simulation.Key{Kind: "ReplicaSet", Name: "dep-9"}
	r.Change(leaving, func(o client.Object) { o.SetFinalizers([]string{"foregroundDeletion"}) })
	r.EndGracefully(leaving)
	r.protect("b", target("apps/v1", "Deployment", "dep"))
	r.beginOnTime()
	r.counts()
	s := r.budget("b").Status
	if s.TotalReplicas != 3 {
		t.Errorf("total replicas: got %d, want 3\n%+v", s.TotalReplicas, s)
	}
	if s.CurrentAvailable != 9 {
		t.Errorf("available pods: got %d, want 9\n%+v", s.CurrentAvailable, s)
	}
}

// PUB-035 (part), PUB-073 (part): pods that only the selector of a scale subresource finds are covered, told,
// and decided about, unless another budget covers them.
func TestPodsThatAScaleSelects(t *testing.T) {
	r := newWorld(1)
	object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "x.io/v1", "kind": "Fleet",
		"metadata": map[string]any{"namespace": namespace, "name": "fleet"}, "spec": map[string]any{"replicas": int64(2), "selector": "ship=yes"}}}
	r.Store(fleetKey, object)
	for name, labels := range map[string]map[string]string{"one": {"ship": "yes"}, "two": {"ship": "yes", "team": "a"}, "three": {"ship": "no"}} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels}}
		pod.Spec.Containers = []corev1.Container{{Name: "app", Image: "app:1"}}
		pod.Status.Phase = corev1.PodPending
		r.Store(podKey(name), pod)
		for range 10 {
			r.node.Step(name)
		}
	}
	none := func(b *policyv1beta1.PodUnavailableBudget) { b.Spec.MaxUnavailable = new(intstr.FromInt32(0)) }
	r.protect("fleet", target("x.io/v1", "Fleet", "fleet"), none)
	r.beginOnTime()
	for _, want := range []map[string]string{{"one": "fleet", "two": "fleet", "three": ""}, {"one": "fleet", "two": "labels", "three": ""}} {
		r.counts()
		s := r.budget("fleet").Status
		if s.TotalReplicas != 2 {
			t.Errorf("total replicas: got %d, want 2\n%+v", s.TotalReplicas, s)
		}
		if s.DesiredAvailable != 2 {
			t.Errorf("pods that must be available: got %d, want 2\n%+v", s.DesiredAvailable, s)
		}
		if s.CurrentAvailable != 2 {
			t.Errorf("available pods: got %d, want 2\n%+v", s.CurrentAvailable, s)
		}
		for _, pod := range r.pods() {
			if got := pod.Annotations["pub.kruise.io/related-pub"]; got != want[pod.Name] {
				t.Errorf("pod %s says %q, not %q", pod.Name, got, want[pod.Name])
			}
			answer := r.book(t, pod, policyv1beta1.Delete)
			by := answer.Budget
			if answer.Allowed != (pod.Name == "three") {
				t.Errorf("allowed: got %t, want %t; pod %s: %+v", answer.Allowed, pod.Name == "three", pod.Name, answer)
			}
			if by != nil && by.Name != want[pod.Name] {
				t.Errorf("name: got %q, want %q; pod %s: %+v", by.Name, want[pod.Name], pod.Name, answer)
			}
		}
		r.protect("labels", func(b *policyv1beta1.PodUnavailableBudget) {
			b.Spec.MaxUnavailable, b.Spec.MinAvailable = nil, new(intstr.FromInt32(9))
		})
	}
}

// PUB-110: the status has all numbers and both maps, of the generation that it was counted for, and is
// written only when something changes.
func TestTheStatusIsWrittenWhenItChanges(t *testing.T) {
	r := newWorld(1)
	r.withSet(4, 1)
	r.protect("b", minAvailable(1))
	r.beginOnTime()
	r.rest()
	writes := func() int {
		return len(slices.DeleteFunc(slices.Clone(r.Writes), func(w simulation.Write) bool { return w.Key != budgetKey("b") }))
	}
	before := writes()
	for range 20 { // it is counted again and again
		r.leader.led.queue.Add(requestOf("b"))
		r.Pass(time.Second)
		r.count()
	}
	if n := writes() - before; n != 0 {
		t.Errorf("%d writes of what did not change", n)
	}
	r.book(t, r.pods()[0], policyv1beta1.Delete)
	r.book(t, r.pods()[1], policyv1beta1.Update)
	at := metav1.NewTime(r.Now().Truncate(time.Second))
	r.edit("b", func(*policyv1beta1.PodUnavailableBudget) {})
	r.Pass(time.Second)
	r.count()
	s := r.budget("b").Status
	if s.TotalReplicas != 4 {
		t.Errorf("total replicas: got %d, want 4\n%+v", s.TotalReplicas, s)
	} else if s.DesiredAvailable != 1 {
		t.Errorf("pods that must be available: got %d, want 1\n%+v", s.DesiredAvailable, s)
	} else if s.CurrentAvailable != 2 {
		t.Errorf("available pods: got %d, want 2\n%+v", s.CurrentAvailable, s)
	} else if s.UnavailableAllowed != 1 {
		t.Errorf("pods that may become unavailable: got %d, want 1\n%+v", s.UnavailableAllowed, s)
	} else if s.ObservedGeneration != 2 {
		t.Errorf("observed generation: got %d, want 2\n%+v", s.ObservedGeneration, s)
	} else if !sameTimes(s.DisruptedPods, map[string]metav1.Time{r.pods()[0].Name: at}) {
		t.Errorf("the time of the disrupted pod stays: got false, want true\n%+v", s)
	} else if !sameTimes(s.UnavailablePods, map[string]metav1.Time{r.pods()[1].Name: at}) {
		t.Errorf("the time of the unavailable pod stays: got false, want true\n%+v", s)
	}
	if n := writes() - before; n != 3 { // two bookings, and one count
		t.Errorf("%d writes", n)
	}
}

// PUB-111: that a budget covers no pod, and that its number cannot be read, is told once for each change.
func TestEventsOfBudgets(t *testing.T) {
	r := newWorld(1)
	r.protect("b")
	r.protect("wrong", func(b *policyv1beta1.PodUnavailableBudget) { b.Spec.MaxUnavailable = new(intstr.FromString("some")) })
	r.beginOnTime()
	r.rest()
	told := func(reason, want string, times int) {
		t.Helper()
		got := slices.DeleteFunc(r.events(reason), func(event string) bool { return !strings.HasPrefix(event, want) })
		if len(got) != times {
			t.Errorf("%s: number of results: got %d, want %d\n%q", reason, len(got), times, r.events(reason))
		}
	}
	told("NoPods", "b: Normal NoPods ", 1)
	told("CalculateExpectedPodCountFailed", "wrong: Warning CalculateExpectedPodCountFailed ", 1)
	r.replicaSet("rs", "rs", 1, nil)
	r.Remove(budgetKey("wrong"))
	r.rest()
	told("NoPods", "b: Normal NoPods ", 1)
	r.scale(simulation.Key{Kind: "ReplicaSet", Name: "rs"}, 0)
	r.rest()
	told("NoPods", "b: Normal NoPods ", 2)
	told("CalculateExpectedPodCountFailed", "wrong: Warning CalculateExpectedPodCountFailed ", 1)
}

// PUB-113: the numbers of each budget are gauges, until it is gone.
func TestGaugesOfBudgets(t *testing.T) {
	r := newWorld(1)
	r.withSet(5, 1)
	r.protect("b", minAvailable(2))
	r.beginOnTime()
	r.rest()
	m := r.leader.led.budgets.meters
	for gauge, want := range map[*prometheus.GaugeVec]float64{m.allowed: 3, m.current: 5, m.desired: 2, m.total: 5} {
		if got := testutil.ToFloat64(gauge.WithLabelValues(namespace, "b")); got != want {
			t.Errorf("%v, not %v", got, want)
		}
	}
	if len(m.all()) != 4 {
		t.Error("some are not registered")
	}
	r.Remove(budgetKey("b"))
	r.rest()
	for _, gauge := range m.all() {
		if n := testutil.CollectAndCount(gauge); n != 0 {
			t.Errorf("%d are left of a budget that is gone", n)
		}
	}
}
