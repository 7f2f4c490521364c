package controller

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	policyv1beta1 "github.com/afloat-project/afloat/api/policy/v1beta1"
	"github.com/afloat-project/afloat/internal/simulation"
)

// running adds a pod in service, which nobody controls unless an object is given.
func (r *budgetRun) running(name string, labels map[string]string, owners ...metav1.OwnerReference) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels, OwnerReferences: owners}}
	pod.Spec.Containers = []corev1.Container{{Name: "app", Image: "app:1"}}
	pod.Status.Phase = corev1.PodRunning
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	r.Store(podKey(name), pod)
	return pod
}

// wait lets time pass, second by second, in which only budgets are counted.
func (r *budgetRun) wait(d time.Duration) {
	for end := r.Now().Add(d); r.Now().Before(end); {
		r.Pass(time.Second)
		r.count()
	}
}

// allowed is how many of the pods with a label may go at once, by what one replica of the manager after the
// other says.
func (r *budgetRun) allowed(t *testing.T, app string, by operation) (n int) {
	for _, pod := range r.pods() {
		if pod.Labels["app"] == app && r.book(t, pod, by).Allowed {
			n++
		}
	}
	return n
}

// leave is kubectl delete deployment dep --cascade=orphan: the ReplicaSet loses the reference, and the
// Deployment goes.
func (r *budgetRun) leave() {
	r.Change(simulation.Key{Kind: "ReplicaSet", Name: "dep-1"}, func(o client.Object) { o.SetOwnerReferences(nil) })
	r.Remove(deploymentKey)
}

// PUB-041 (part), PUB-105 (part): a Deployment that was deleted with its pods left behind leaves a ReplicaSet
// that wants them still. It was remembered as theirs, so that nothing was expected any more, and no event
// told otherwise.
func TestPodsThatADeploymentLeftBehindStayProtected(t *testing.T) {
	for _, d := range []time.Duration{time.Second, 20 * time.Second, 10 * time.Minute} {
		t.Run(d.String(), func(t *testing.T) {
			r := newWorld(1)
			r.withDeployment(5)
			r.protect("b", func(b *policyv1beta1.PodUnavailableBudget) {
				b.Spec.Selector.MatchLabels = map[string]string{"app": "dep"}
			})
			r.beginOnTime()
			r.rest()
			r.Change(podKey(r.pods()[0].Name), func(o client.Object) { o.GetLabels()["note"] = "a" }) // so that it is counted just before
			r.wait(time.Second)
			r.leave()
			r.wait(d)
			s := r.budget("b").Status
			if s.TotalReplicas != 5 {
				t.Errorf("total replicas: got %d, want 5\n%+v", s.TotalReplicas, s)
			}
			if s.DesiredAvailable != 4 {
				t.Errorf("pods that must be available: got %d, want 4\n%+v", s.DesiredAvailable, s)
			}
			if n := r.allowed(t, "dep", policyv1beta1.Evict); n > 1 {
				t.Errorf("%d of 5 pods may be evicted at once", n)
			}
		})
	}
}

// PUB-072 (part): a Deployment that is applied again takes its ReplicaSets over at once, and so does its
// budget the pods. That a ReplicaSet had no controller, and that its former Deployment was another, was
// remembered for half a minute.
func TestPodsThatADeploymentTookOverAgainAreProtectedAtOnce(t *testing.T) {
	for name, ask := range map[string]bool{"a drain asked meanwhile": true, "nobody asked": false} {
		t.Run(name, func(t *testing.T) {
			r := newWorld(1)
			r.withDeployment(5)
			r.protect("b", target("apps/v1", "Deployment", "dep"))
			r.beginOnTime()
			r.rest()
			everywhere := func() {
				for _, m := range r.managers {
					_, _ = m.watch.Guard.Book(t.Context(), Request{Pod: r.pods()[0], By: policyv1beta1.Evict, DryRun: true})
				}
			}
			everywhere()
			r.leave()
			if ask {
				r.wait(time.Second)
				everywhere()
			}
			replicas := int32(5)
			again := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "dep", Annotations: map[string]string{"version": "1"}}}
			again.Spec.Replicas = &replicas
			r.Store(deploymentKey, again)
			r.wait(time.Second)
			r.Change(simulation.Key{Kind: "ReplicaSet", Name: "dep-1"}, func(o client.Object) {
				o.SetOwnerReferences(controlledBy(r.Get(deploymentKey), "apps/v1", "Deployment"))
			})
			r.wait(time.Second)
			s := r.budget("b").Status
			if s.TotalReplicas != 5 {
				t.Errorf("total replicas: got %d, want 5\n%+v", s.TotalReplicas, s)
			}
			if s.CurrentAvailable != 5 {
				t.Errorf("available pods: got %d, want 5\n%+v", s.CurrentAvailable, s)
			}
			for i, m := range r.managers {
				answer, err := m.watch.Guard.Book(t.Context(), Request{Pod: r.pods()[i], By: policyv1beta1.Delete, DryRun: true})
				if err != nil {
					t.Errorf("unexpected error: %v; replica %d: %+v %v", err, i, answer, err)
				} else if answer.Budget == nil {
					t.Errorf("budget: got nil, want a value; replica %d: %+v %v", i, answer, err)
				}
			}
			if n := r.allowed(t, "dep", policyv1beta1.Delete); n != 1 {
				t.Errorf("%d of 5 pods may be deleted at once", n)
			}
		})
	}
}

// PUB-035 (part), PUB-D11 (part): kubectl replace --force makes a StatefulSet anew while the pods of the
// former one are there. These are not of the new one, which cannot make its own before they are gone.
func TestPodsOfAStatefulSetThatWasReplacedByForceCanGo(t *testing.T) {
	r := newWorld(1)
	set := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "apps/v1", "kind": "StatefulSet",
		"metadata": map[string]any{"namespace": namespace, "name": "db"}, "spec": map[string]any{"replicas": int64(3)}}}
	key := simulation.Key{Kind: "StatefulSet", Name: "db"}
	r.Store(key, set)
	for i := range 3 {
		r.running(fmt.Sprint("db-", i), map[string]string{"app": "db"}, controlledBy(set, "apps/v1", "StatefulSet")...)
	}
	r.protect("b", target("apps/v1", "StatefulSet", "db"))
	r.beginOnTime()
	r.counts()
	s := r.budget("b").Status
	if s.TotalReplicas != 3 {
		t.Fatalf("before: total replicas: got %d, want 3\n%+v", s.TotalReplicas, s)
	}
	if s.CurrentAvailable != 3 {
		t.Fatalf("before: available pods: got %d, want 3\n%+v", s.CurrentAvailable, s)
	}
	if got := r.allowed(t, "db", policyv1beta1.Delete); got != 1 {
		t.Fatalf("before: deletions of db are allowed: got %d, want 1\n%+v", got, s)
	}
	r.Remove(key)
	next := set.DeepCopy()
	next.SetUID("")
	next.SetResourceVersion("")
	r.Store(key, next)
	r.wait(time.Second)
	if n := r.allowed(t, "db", policyv1beta1.Delete); n != 3 {
		t.Errorf("%d of 3 pods of the former StatefulSet may be collected", n)
	}
}

// PUB-036 (part), PUB-052 (part): once a workload is gone for sure, protectTotalReplicas holds none of its
// pods. They stayed for ever.
func TestPodsOfADeletedWorkloadGoAlsoWithProtectTotalReplicas(t *testing.T) {
	for name, option := range map[string]func(*policyv1beta1.PodUnavailableBudget){"labels": func(*policyv1beta1.PodUnavailableBudget) {},
		"target": target("apps/v1", "ReplicaSet", "rs")} {
		t.Run(name, func(t *testing.T) {
			r := newWorld(1)
			r.replicaSet("rs", "rs", 3, nil)
			r.protect("b", option, func(b *policyv1beta1.PodUnavailableBudget) { b.Spec.ProtectTotalReplicas = new(int32(3)) })
			r.beginOnTime()
			r.rest()
			r.Remove(simulation.Key{Kind: "ReplicaSet", Name: "rs"})
			r.rest() // the garbage collector tries
			left := r.pods()
			if len(left) > 0 {
				t.Errorf("pods: got %v, want none; %d pods stay: %+v %s", left, len(left), r.budget("b").Status,
					r.failure)
			}
			if r.failure != "" {
				t.Errorf("failure: got %q, want %q; %d pods stay: %+v %s", r.failure, "", len(left),
					r.budget("b").Status, r.failure)
			}
		})
	}
}

// PUB-052 (part): one pod without controller, as of kubectl debug --copy-to, keeps no workload from being
// scaled to 0, whatever becomes of it, and stays protected itself.
func TestAWorkloadBesideACopyOfItsPodIsScaledToNothing(t *testing.T) {
	for name, ready := range map[string]bool{"in service": true, "not in service": false} {
		t.Run(name, func(t *testing.T) {
			r := newWorld(1)
			r.replicaSet("rs", "rs", 3, nil)
			copied := r.running("debug", map[string]string{"team": "a", "app": "debug"})
			if !ready {
				r.Change(podKey("debug"), func(o client.Object) { o.(*corev1.Pod).Status.Conditions = nil })
			}
			r.protect("b", minAvailable(2))
			r.beginOnTime()
			r.rest()
			r.scale(simulation.Key{Kind: "ReplicaSet", Name: "rs"}, 0)
			r.rest()
			if left := r.pods(); len(left) != 1 {
				t.Errorf("number left: got %d, want 1; %d pods stay: %+v %s", len(left), len(left), r.budget("b").Status,
					r.failure)
			} else if left[0].UID != copied.UID {
				t.Errorf("UID of the first left: got %q, want %q; %d pods stay: %+v %s", left[0].UID, copied.UID,
					len(left), r.budget("b").Status, r.failure)
			} else if r.failure != "" {
				t.Errorf("failure: got %q, want %q; %d pods stay: %+v %s", r.failure, "", len(left),
					r.budget("b").Status, r.failure)
			}
			if n := r.allowed(t, "debug", policyv1beta1.Delete); ready && n > 0 {
				t.Error("the copy may go too")
			}
		})
	}
}

// PUB-042 (part): a workload whose scale, or which itself, never answers holds nobody else: of it the pods
// count that there are, which is told, and the others are protected as ever. A new budget over one such
// workload once refused everything, for ever.
func TestAWorkloadThatNeverAnswersHoldsNobodyElse(t *testing.T) {
	for name, tt := range map[string]struct {
		fleet   string
		answers bool
		option  func(*policyv1beta1.PodUnavailableBudget)
		total   int32
	}{
		"the scale, selected":    {"fleet", true, func(*policyv1beta1.PodUnavailableBudget) {}, 4},
		"the scale, the target":  {"fleet", true, target("x.io/v1", "Fleet", "fleet"), 1},
		"all of it, selected":    {unreadable, false, func(*policyv1beta1.PodUnavailableBudget) {}, 4},
		"all of it, the target":  {unreadable, false, target("x.io/v1", "Fleet", unreadable), 1},
		"all of it, beside that": {unreadable, false, target("apps/v1", "Deployment", "dep"), 3},
	} {
		t.Run(name, func(t *testing.T) {
			r := newWorld(1)
			r.withDeployment(3)
			for _, pod := range r.pods() {
				r.Change(podKey(pod.Name), func(o client.Object) { o.GetLabels()["team"] = "a" })
			}
			fleet := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "x.io/v1", "kind": "Fleet",
				"metadata": map[string]any{"namespace": namespace, "name": tt.fleet}, "spec": map[string]any{"replicas": int64(9)}}}
			r.Store(simulation.Key{Kind: "Fleet", Name: tt.fleet}, fleet)
			r.noScale = func(kind string) error {
				if kind == "Fleet" {
					return apierrors.NewInternalError(errors.New("the spec replicas field does not exist"))
				}
				return nil
			}
			r.beginOnTime()
			r.rest()
			for _, pod := range r.pods() {
				r.Change(podKey(pod.Name), func(o client.Object) { o.GetLabels()["team"] = "a" })
			}
			r.running("t1", map[string]string{"team": "a", "app": "t1"}, controlledBy(fleet, "x.io/v1", "Fleet")...)
			r.protect("b", tt.option)
			r.wait(time.Minute)
			s := r.budget("b").Status
			if want := r.budget("b").Generation; s.ObservedGeneration != want {
				t.Errorf("observed generation: got %d, want %d\n%+v", s.ObservedGeneration, want, s)
			}
			if s.TotalReplicas != tt.total {
				t.Errorf("total replicas: got %d, want %d\n%+v", s.TotalReplicas, tt.total, s)
			}
			if s.CurrentAvailable != tt.total {
				t.Errorf("available pods: got %d, want %d\n%+v", s.CurrentAvailable, tt.total, s)
			}
			if unknown := strings.Join(r.events("UnknownReplicas"), "\n"); (tt.total == 3) == strings.Contains(unknown, "Fleet") {
				t.Errorf("told: %q", unknown)
			}
			n := r.allowed(t, "dep", policyv1beta1.Delete)
			if tt.total == 1 && n != 3 && tt.answers {
				t.Error("answers: got true, want false")
			}
			if tt.total > 1 && n != 1 {
				t.Errorf(`deletions of dep are allowed: got %d, want 1`, n)
			}
		})
	}
}
