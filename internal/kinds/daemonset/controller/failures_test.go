package controller

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/simulation"
)

func condition(set *appsv1beta1.DaemonSet, of appsv1beta1.DaemonSetConditionType) string {
	for _, c := range set.Status.Conditions {
		if c.Type == of {
			return c.Message
		}
	}
	return ""
}

const (
	failedCreate = appsv1beta1.DaemonSetConditionFailedCreatePod
	failedUpdate = appsv1beta1.DaemonSetConditionFailedUpdatePod
)

// TestEveryFailureIsTold shows ADS-044, ADS-192 (part), ADS-194 and ADS-D9: whichever request is refused, the
// counts are written and the generation stays; a condition says what failed until it does not.
func TestEveryFailureIsTold(t *testing.T) {
	for name, tt := range map[string]struct {
		denied    func(*simulation.Request) bool
		change    func(*simulated)
		condition appsv1beta1.DaemonSetConditionType
	}{
		"a revision is created": {verb("create", "ControllerRevision"), func(s *simulated) { s.Edit(image("agent:2")) }, failedUpdate},
		"a revision is raised": {verb("patch", "ControllerRevision"), func(s *simulated) {
			s.Edit(image("agent:2"))
			s.RunFor(5 * time.Minute)
			s.Edit(image("agent:1"))
		}, failedUpdate},
		"a pod is created": {verb("create", "Pod"), func(s *simulated) { s.Edit(image("agent:1")); s.addNode("n9", nil) }, failedCreate},
		"a pod is deleted": {verb("delete", "Pod"), func(s *simulated) {
			s.Edit(rolling(func(r *appsv1beta1.RollingUpdateDaemonSet) { r.Type = appsv1beta1.StandardRollingUpdateType }))
			s.Edit(image("agent:2"))
		}, failedCreate},
		"a pod is updated in place": {func(r *simulation.Request) bool {
			return r.Verb == "patch" && r.Key.Kind == "Pod" && r.Subresource == ""
		}, func(s *simulated) { s.Edit(image("agent:2")) }, failedUpdate},
		"a pod is taken out of service": {func(r *simulation.Request) bool { return r.Key.Kind == "Pod" && r.Subresource == "status" },
			func(s *simulated) { s.Edit(image("agent:2")) }, failedUpdate},
		"a former revision is deleted": {verb("delete", "ControllerRevision"), func(s *simulated) {
			s.Edit(func(set *appsv1beta1.DaemonSet) {
				none := int32(0)
				set.Spec.RevisionHistoryLimit = &none
			})
			s.storeRevision("agent-left", map[string]string{"app": "agent"})
		}, failedUpdate},
	} {
		t.Run(name, func(t *testing.T) {
			s := started(t, makeSet(inPlace), everything, "n1", "n2", "n3")
			denied := s.Deny(tt.denied)
			generation := s.set().Status.ObservedGeneration
			tt.change(s)
			s.RunFor(10 * time.Minute)
			pod := s.PodsOn("n1")[0]
			s.Change(podKey(pod.Name), func(o client.Object) { // which is news for the counts
				o.(*corev1.Pod).Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse}}
			})
			s.Node.Frozen[pod.Name] = true
			s.RunFor(10 * time.Minute)
			is := s.set().Status
			if is.NumberReady >= is.DesiredNumberScheduled {
				t.Errorf("ready pods: got %d, want less than %d; generation %d, status %+v", is.NumberReady,
					is.DesiredNumberScheduled,
					s.set().Generation, is)
			}
			if is.NumberReady != is.DesiredNumberScheduled-is.NumberUnavailable {
				t.Errorf("ready pods: got %d, want %d; generation %d, status %+v", is.NumberReady,
					is.DesiredNumberScheduled-is.NumberUnavailable, s.set().Generation, is)
			}
			if want := s.set().Generation; is.ObservedGeneration == want {
				t.Errorf("observed generation: got %d, want another value; generation %d, status %+v",
					is.ObservedGeneration, s.set().Generation,
					is)
			}
			if is.ObservedGeneration < generation {
				t.Errorf("observed generation: got %d, want at least %d; generation %d, status %+v",
					is.ObservedGeneration, generation,
					s.set().Generation, is)
			}
			if said := condition(s.set(), tt.condition); !strings.Contains(said, "a policy says no") {
				t.Errorf("conditions %+v", s.set().Status.Conditions)
			}
			if len(*denied) < 3 {
				t.Errorf("tried at %v", *denied)
			}
			s.Answer = nil
			s.Node.Frozen[pod.Name] = false
			s.RunFor(20 * time.Minute)
			if is := s.set().Status; len(is.Conditions) > 0 {
				t.Errorf("conditions: got %v, want none; status %+v\n%s", is.Conditions, is, s.describe())
			} else if want := s.set().Generation; is.ObservedGeneration != want {
				t.Errorf("observed generation: got %d, want %d; status %+v\n%s", is.ObservedGeneration, want, is,
					s.describe())
			} else if is.NumberAvailable != is.DesiredNumberScheduled {
				t.Errorf("available pods: got %d, want %d; status %+v\n%s", is.NumberAvailable,
					is.DesiredNumberScheduled, is, s.describe())
			}
		})
	}
}

// TestTemplatesThatCannotBeCompleted shows ADS-061 (part): as long as the API server does not complete
// templates, nobody can tell what changed: that is told, pods stay as they are, and the rollout goes on when
// it does.
func TestTemplatesThatCannotBeCompleted(t *testing.T) {
	s := started(t, makeSet(), everything, "n1", "n2")
	complete := s.kind.Template
	s.kind.Template = func(context.Context, string, []byte) ([]byte, error) { return nil, errors.New("no room for templates") }
	writes := len(s.Writes)
	s.Edit(image("agent:2"))
	s.Node.Fail(s.only(t, "n1").Name)
	s.RunFor(10 * time.Minute)
	for _, w := range s.Writes[writes:] {
		if w.Key != setKey {
			t.Errorf("key: got %+v, want %+v\n%v", w.Key, setKey, w)
		}
		if w.Subresource != "status" {
			t.Errorf("subresource: got %q, want %q\n%v", w.Subresource, "status", w)
		}
	}
	is := s.set().Status
	if got := condition(s.set(), failedUpdate); !strings.Contains(got, "no room for templates") {
		t.Errorf("condition about failed updates: got %q, want it to contain %q; %+v, told %q", got,
			"no room for templates", is, s.Recorded)
	}
	if want := s.set().Generation; is.ObservedGeneration == want {
		t.Errorf("observed generation: got %d, want another value; %+v, told %q", is.ObservedGeneration, is,
			s.Recorded)
	}
	if got := len(s.EventsWith("no room for templates")); got == 0 {
		t.Errorf(`events about no room for templates: got none, want some; %+v, told %q`, is, s.Recorded)
	}
	s.kind.Template = complete
	s.RunFor(20 * time.Minute)
	if s.images() != "2 2" {
		t.Errorf("images: got %q, want both updated: %s", s.images(), s.describe())
	}
	if is := s.set().Status; len(is.Conditions) > 0 {
		t.Errorf("conditions: got %+v, want none: %s", is.Conditions, s.describe())
	}
	if is := s.set(); is.Status.ObservedGeneration != is.Generation {
		t.Errorf("observed generation: got %d, want %d: %s", is.Status.ObservedGeneration, is.Generation,
			s.describe())
	}
}

// TestCreationStopsAtAFailure shows ADS-111: creations go on side by side, and stop when one fails; what the
// end of the namespace refuses is no failure, and a pod that is gone already is deleted.
func TestCreationStopsAtAFailure(t *testing.T) {
	nodes := []string{"n0", "n1", "n2", "n3", "n4", "n5", "n6", "n7", "n8", "n9"}
	s := simulate(1, makeSet(), everything, nodes...)
	denied := s.Deny(verb("create", "Pod"))
	for range 3 {
		s.Round()
	}
	n := len(*denied)
	if n == 0 {
		t.Errorf("number denied: got %d, want another value", n)
	}
	if n >= len(nodes) {
		t.Errorf("number denied: got %d, want less than %d", n, len(nodes))
	}
	s.Answer = nil
	s.RunFor(10 * time.Minute)
	if got := int(s.set().Status.NumberAvailable); got != len(nodes) {
		t.Errorf("available pods: got %d, want %d\n%s", got, len(nodes), s.describe())
	}
	ends := &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: 403, Reason: metav1.StatusReasonForbidden,
		Message: "it is being terminated", Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}}}}
	refused := 0
	s.Answer = func(r *simulation.Request) error {
		if r.Verb == "create" {
			refused++
			return ends
		}
		return nil
	}
	s.addNode("nA", nil)
	s.Recorded = nil
	s.RunFor(time.Minute)
	if refused == 0 || refused > 7 {
		t.Errorf("requests to create: got %d in a minute, want at least one and fewer each time", refused)
	}
	if got := len(s.EventsWith("FailedCreate")); got > 0 {
		t.Errorf("events FailedCreate: got %d, want none\n%q\n%+v", got, s.Recorded, s.set().Status.Conditions)
	}
	if got := len(s.set().Status.Conditions); got > 0 {
		t.Errorf("conditions: got %d, want none\n%q\n%+v", got, s.Recorded, s.set().Status.Conditions)
	}
	s.Answer = func(r *simulation.Request) error {
		if r.Verb == "delete" {
			s.Remove(r.Key)
			return apierrors.NewNotFound(corev1.Resource("pods"), r.Key.Name)
		}
		return nil
	}
	s.Remove(nodeKey("nA"))
	s.taint("n0", "broken", corev1.TaintEffectNoExecute)
	s.Recorded = nil
	s.RunFor(time.Minute)
	if got := len(s.EventsWith("FailedDelete")); got > 0 {
		t.Errorf("events FailedDelete: got %d, want none\n%q\n%+v", got, s.Recorded, s.set().Status.Conditions)
	}
	if got := len(s.set().Status.Conditions); got > 0 {
		t.Errorf("conditions: got %d, want none\n%q\n%+v", got, s.Recorded, s.set().Status.Conditions)
	}
}

// TestPodsThatEnd shows ADS-091, ADS-092, ADS-164 and ADS-D5, with TestFailuresBackOff of the planner: a pod
// that ends again and again is replaced after one second at first, twice as long each time, and 15 minutes at
// last, on its node alone and for one generation of the set; it is told of.
func TestPodsThatEnd(t *testing.T) {
	for phase, reason := range map[corev1.PodPhase]string{corev1.PodFailed: "Warning FailedDaemonPod",
		corev1.PodSucceeded: "Normal SucceededDaemonPod"} {
		for _, option := range []option{maxUnavailable(1), maxSurge(1)} {
			s := started(t, makeSet(option), everything, "n1", "n2")
			end := func(node string) {
				for _, pod := range s.PodsOn(node) {
					if pod.DeletionTimestamp == nil && pod.Status.Phase == corev1.PodRunning {
						s.Change(podKey(pod.Name), func(o client.Object) {
							o.(*corev1.Pod).Status = corev1.PodStatus{Phase: phase}
						})
						s.Node.Frozen[pod.Name] = true
					}
				}
			}
			s.Others = func() bool { // what is deleted ends
				for _, pod := range s.AllPods() {
					if pod.DeletionTimestamp != nil {
						s.Node.Frozen[pod.Name] = false
					}
				}
				return false
			}
			var gone []time.Time
			s.BeforeWrite = func(w simulation.Write, before, _ client.Object) {
				if w.Verb == "delete" && strings.HasSuffix(before.(*corev1.Pod).Spec.NodeName, "n1") {
					gone = append(gone, s.Now())
				}
			}
			for range 13 {
				end("n1")
				for before := len(gone); len(gone) == before; {
					s.RunFor(100 * time.Millisecond)
				}
				for len(s.PodsOn("n1")) != 1 || s.PodsOn("n1")[0].Status.Phase != corev1.PodRunning {
					s.RunFor(100 * time.Millisecond)
				}
			}
			for i := 1; i < len(gone); i++ {
				is, want := gone[i].Sub(gone[i-1]), min(time.Second<<(i-1), 15*time.Minute)
				if is < want {
					t.Errorf("%s: is: got %v, want at least %v", phase, is, want)
				}
				if is > want+2*time.Second {
					t.Errorf("%s: is: got %v, want at most %v; waits %s, not %s", phase, is, want+2*time.Second, is, want)
				}
			}
			if len(s.EventsWith(reason, "n1")) < 13 {
				t.Errorf("told %q", s.Recorded)
			}
			end("n2")
			s.RunFor(10 * time.Second)
			if pod := s.only(t, "n2"); pod.Status.Phase != corev1.PodRunning {
				t.Error("another node waits as well: ", s.describe())
			}
			end("n1")
			s.RunFor(time.Minute)
			if pod := s.only(t, "n1"); pod.Status.Phase != phase {
				t.Error("it does not wait: ", s.describe())
			}
			s.Edit(image("agent:2"))
			s.RunFor(10 * time.Second)
			if pod := s.only(t, "n1"); pod.Status.Phase != corev1.PodRunning {
				t.Error("another generation waits as well: ", s.describe())
			}
		}
	}
}
