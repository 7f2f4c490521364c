package controller

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	policyv1beta1 "github.com/afloat-project/afloat/api/policy/v1beta1"
	"github.com/afloat-project/afloat/internal/reconcile"
)

// protect adds a budget that lets one pod be out of service; options change it.
func (r *budgetRun) protect(name string, options ...func(*policyv1beta1.PodUnavailableBudget)) {
	b := &policyv1beta1.PodUnavailableBudget{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	b.Spec.Selector, b.Spec.MaxUnavailable = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "a"}}, new(intstr.FromInt32(1))
	for _, option := range options {
		option(b)
	}
	r.Store(budgetKey(name), b)
}

// target has the budget name a workload instead of labels.
func target(apiVersion, kind, name string) func(*policyv1beta1.PodUnavailableBudget) {
	return func(b *policyv1beta1.PodUnavailableBudget) {
		b.Spec.Selector, b.Spec.TargetReference = nil, &policyv1beta1.TargetReference{APIVersion: apiVersion, Kind: kind, Name: name}
	}
}

// beginOnTime starts the replicas of the manager, whose clocks are right, and which nobody disturbs in the
// middle of what they do.
func (r *budgetRun) beginOnTime() {
	r.undisturbed = true
	r.begin()
	for _, m := range r.managers {
		m.skew = 0
	}
}

// count lets the managers see everything and do what is due. Nobody else does anything.
func (r *budgetRun) count() {
	for _, m := range r.managers {
		m.as(func() { r.Deliver(1 << 20) })
		for m.work() {
		}
	}
}

// counts does so for some seconds: the caches have more of a pod once it says that a budget covers it.
func (r *budgetRun) counts() {
	for range 5 {
		r.Pass(time.Second)
		r.count()
	}
}

// book asks the manager that leads, as it knows the world.
func (r *budgetRun) book(t *testing.T, pod *corev1.Pod, by operation) Answer {
	t.Helper()
	answer, err := r.ask(t, pod, by)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

func (r *budgetRun) ask(t *testing.T, pod *corev1.Pod, by operation) (answer Answer, err error) {
	t.Helper()
	r.leader.as(func() { answer, err = r.leader.watch.Guard.Book(t.Context(), Request{Pod: pod, By: by}) })
	return answer, err
}

// events are those of a reason, each with the name of what it is about.
func (r *budgetRun) events(reason string) []string {
	return slices.DeleteFunc(slices.Clone(r.told), func(event string) bool { return !strings.Contains(event, " "+reason+" ") })
}

// PUB-061, PUB-062, PUB-D6: a booking ends 20 s or 10 s after it, by a look at the API server: a pod that is
// out of service there counts no more, though the cache does not show that yet, for however long. Of a deletion that has not
// come the pod is told, and of an update or a resize, which is booked as one, it is not.
// TestHowLongBookingsLive shows the other ends.
func TestTheEndOfABooking(t *testing.T) {
	for by, want := range map[operation]struct {
		life time.Duration
		told string
	}{
		policyv1beta1.Delete: {20 * time.Second, ": Warning NotDeleted PodUnavailableBudget b admitted the deletion of the pod, which has not come"},
		policyv1beta1.Evict:  {20 * time.Second, ": Warning NotDeleted PodUnavailableBudget b admitted the deletion of the pod, which has not come"},
		policyv1beta1.Update: {life: 10 * time.Second},
		policyv1beta1.Resize: {life: 10 * time.Second},
	} {
		for _, end := range []string{"stays", "crashes", "goes"} {
			lost := end != "stays"
			r := newWorld(1)
			r.options.Updates, r.options.Resizes = true, true
			r.withSet(3, 1)
			r.protect("b", func(b *policyv1beta1.PodUnavailableBudget) { b.Spec.ProtectOperations = policyv1beta1.BudgetOperations })
			r.beginOnTime()
			r.rest()
			pod := r.pods()[0]
			at := metav1.NewTime(r.Now().Truncate(time.Second))
			if answer := r.book(t, pod, by); !answer.Booked {
				t.Fatalf("%s: booked: got false, want true\n%+v", by, answer)
			}
			deletions, updates := map[string]metav1.Time(nil), map[string]metav1.Time{pod.Name: at}
			if want.told != "" {
				deletions, updates = updates, deletions
			}
			holds := func(when string) {
				t.Helper()
				s := r.budget("b").Status
				if !sameTimes(s.DisruptedPods, deletions) {
					t.Errorf("%s, %s: the times of the deletions stay: got false, want true\n%+v", by, when, s)
				}
				if !sameTimes(s.UnavailablePods, updates) {
					t.Errorf("%s, %s: the times of the updates stay: got false, want true\n%+v", by, when, s)
				}
				if s.CurrentAvailable != 2 {
					t.Errorf("%s, %s: available pods: got %d, want 2\n%+v", by, when, s.CurrentAvailable, s)
				}
				if s.UnavailableAllowed != 0 {
					t.Errorf("%s, %s: pods that may become unavailable: got %d, want 0\n%+v", by, when,
						s.UnavailableAllowed, s)
				}
			}
			holds("at once")
			for r.Now().Sub(at.Time) < want.life-time.Second {
				r.Pass(500 * time.Millisecond)
				r.count()
				holds("within its life")
			}
			switch end { // less than the caches lag behind before the end
			case "crashes":
				r.node.Crash(pod.Name)
			case "goes":
				r.Remove(podKey(pod.Name))
			}
			r.Pass(at.Add(want.life).Sub(r.Now()))
			for r.leader.work() { // nothing has come to the caches
			}
			current := int32(3)
			if lost {
				current = 2
			}
			s := r.budget("b").Status
			if len(s.DisruptedPods)+len(s.UnavailablePods) > 0 {
				t.Errorf("number of disrupted pods and unavailable pods: got %d, want 0; %s, lost %v, at the end: %+v",
					len(s.DisruptedPods)+len(s.UnavailablePods), by, lost, s)
			}
			if s.CurrentAvailable != current {
				t.Errorf("available pods: got %d, want %d; %s, lost %v, at the end: %+v", s.CurrentAvailable, current,
					by, lost, s)
			}
			var told []string
			if want.told != "" {
				told = []string{pod.Name + want.told}
			}
			if end == "goes" {
				told = nil
			}
			if got := r.events("NotDeleted"); !slices.Equal(got, told) {
				t.Errorf("%s, %s: %q", by, end, got)
			}
			for range 3 { // something else happens, before anything has come to the caches
				r.Pass(reconcile.RetrySoon)
				for request := range r.leader.led.queue.due {
					r.leader.led.queue.due[request] = r.Now()
				}
				for r.leader.work() {
				}
			}
			if s := r.budget("b").Status; s.CurrentAvailable != current {
				t.Errorf("available pods: got %d, want %d; %s, the pod %s, counted again: %+v", s.CurrentAvailable, current, by, end, s)
			}
		}
	}
}

// PUB-086 (part): an API server deletes a pod a while after it has asked about it. A pod that was out of service then may be in
// service again by the time it goes, or for the first time: a kubelet reports with one write that the containers run and are
// ready. It does not count until then, so that no other pod is taken beside it.
func TestAPodThatIsOutOfServiceMayBeBackBeforeItGoes(t *testing.T) {
	for name, phase := range map[string]corev1.PodPhase{"back": corev1.PodRunning, "there for the first time": corev1.PodPending} {
		for _, by := range []operation{policyv1beta1.Delete, policyv1beta1.Evict} {
			r := newWorld(1)
			r.options.Updates = true
			r.withSet(3, 1)
			r.protect("b")
			r.beginOnTime()
			r.rest()
			pod := r.pods()[0]
			down := pod.DeepCopy()
			down.Spec.NodeName, down.Status.Phase = "node", phase
			for i := range down.Status.Conditions {
				if c := &down.Status.Conditions[i]; c.Type == corev1.PodReady {
					c.Status = corev1.ConditionFalse
				}
			}
			if answer := r.book(t, down, by); !answer.Allowed {
				t.Fatalf("%s, %s of a pod that is out of service: allowed: got false, want true\n%+v", name, by, answer)
			}
			r.count() // the pod is in service
			if s := r.budget("b").Status; s.CurrentAvailable != 2 {
				t.Errorf("%s, %s: available pods: got %d, want 2\n%+v", name, by, s.CurrentAvailable, s)
			}
			if answer := r.book(t, r.pods()[1], policyv1beta1.Update); answer.Allowed {
				t.Errorf("%s, %s: another pod may go before the first one is gone\n%+v", name, by, answer)
			}
		}
	}
}

func sameTimes(a, b map[string]metav1.Time) bool {
	for name, at := range a {
		if other, found := b[name]; !found || !other.Equal(&at) {
			return false
		}
	}
	return len(a) == len(b)
}

// PUB-075, PUB-076, PUB-D4: whatever pods say of their budgets, they are protected at once, and say the truth
// again a moment later. What no budget covers may say what it likes. PUB-074: so it is with pods of whose
// creation nobody found out.
func TestWhatPodsSayOfTheirBudgets(t *testing.T) {
	const key, legacy = "pub.kruise.io/related-pub", "kruise.io/related-pub"
	for name, says := range map[string]map[string]string{"nothing": nil, "one that is not there": {key: "gone", legacy: "gone"},
		"one that does not cover it": {key: "other", legacy: "other"}, "two": {key: "b", legacy: "other"}, "only the former key": {legacy: "b"},
		"nothing in words": {key: "", legacy: ""}} {
		t.Run(name, func(t *testing.T) {
			r := newWorld(1)
			r.unasked = true
			r.withSet(2, 1)
			r.replicaSet("free", "free", 1, nil)
			r.protect("b", func(b *policyv1beta1.PodUnavailableBudget) {
				b.Spec.Selector.MatchLabels, b.Spec.MaxUnavailable = map[string]string{"app": "web"}, new(intstr.FromInt32(0))
			})
			r.protect("other", func(b *policyv1beta1.PodUnavailableBudget) {
				b.Spec.Selector.MatchLabels, b.Spec.MaxUnavailable = map[string]string{"app": "other"}, new(intstr.FromInt32(0))
			})
			r.beginOnTime()
			r.rest()
			for _, pod := range r.pods() {
				r.Change(podKey(pod.Name), func(o client.Object) { o.SetAnnotations(says) })
			}
			for _, pod := range r.pods() {
				if answer := r.book(t, pod, policyv1beta1.Delete); answer.Allowed != (pod.Labels["app"] == "free") {
					t.Errorf("pod %s: %+v", pod.Name, answer)
				}
			}
			r.count()
			for _, pod := range r.pods() {
				want := map[string]string{key: "b", legacy: "b"}
				if pod.Labels["app"] == "free" {
					want = says
				}
				if pod.Annotations[key] != want[key] {
					t.Errorf("annotation key of the pod: got %q, want %q; pod %s says %v", pod.Annotations[key], want[key],
						pod.Name, pod.Annotations)
				}
				if pod.Annotations[legacy] != want[legacy] {
					t.Errorf("annotation legacy of the pod: got %q, want %q; pod %s says %v", pod.Annotations[legacy],
						want[legacy], pod.Name,
						pod.Annotations)
				}
			}
		})
	}
	t.Run("a budget that is replaced", func(t *testing.T) {
		r := newWorld(1)
		r.withSet(2, 1)
		r.protect("old")
		r.beginOnTime()
		r.rest()
		r.Remove(budgetKey("old"))
		r.protect("new")
		r.Pass(time.Second)
		r.count()
		if r.exact(); r.failure != "" {
			t.Errorf("the count: %s", r.failure)
		}
		if got := r.pods()[0].Annotations[key]; got != "new" {
			t.Errorf("budget of the pod: got %q, want new", got)
		}
	})
}
