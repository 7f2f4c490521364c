package controller

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/simulation"
)

// refuse makes the API server refuse one sort of request.
func (s *simulated) refuse(verb, kind string) {
	s.Answer = func(r *simulation.Request) error {
		if r.Verb == verb && r.Key.Kind == kind {
			return apierrors.NewForbidden(corev1.Resource(strings.ToLower(kind)+"s"), r.Key.Name, errors.New("a policy"))
		}
		return nil
	}
}

// TestEventsOfStatefulSets shows ASTS-308, with TestEventsOfUpdatesInPlace, TestClaimsGrow,
// TestClaimsThatCannotGrow, TestImagesArePulledAhead, and TestEventsOfAStatefulSet of the API server: each
// event with its type, the name of the object, and a failure with its error.
func TestEventsOfStatefulSets(t *testing.T) {
	unlabelled := func(s *simulated) {
		s.edit("web-0", func(pod *corev1.Pod) { delete(pod.Labels, appsv1.StatefulSetPodNameLabel) })
	}
	nothing, attempts := func(*appsv1beta1.StatefulSet) {}, 0
	hidden := func(s *simulated) { // from the cache alone
		s.Hide(podKey("web-1"))
		s.Answer = func(r *simulation.Request) error {
			if r.Verb == "create" {
				attempts++
			}
			return nil
		}
	}
	for name, test := range map[string]struct {
		disturb func(*simulated)
		change  func(*appsv1beta1.StatefulSet)
		want    string
	}{
		"a pod is created": {nil, replicas(3), "Normal SuccessfulCreate created pod web-2 "},
		"a pod is refused": {func(s *simulated) { s.refuse("create", "Pod") }, replicas(3),
			"Warning FailedCreate failed to create pod web-2: "},
		"a claim is refused": {func(s *simulated) { s.refuse("create", "PersistentVolumeClaim") }, replicas(3),
			"Warning FailedCreate failed to create claim data-web-2: "},
		"a pod is deleted": {nil, replicas(1), "Normal SuccessfulDelete deleted pod web-1: "},
		"a deletion is refused": {func(s *simulated) { s.refuse("delete", "Pod") }, replicas(1),
			"Warning FailedDelete failed to delete pod web-1: "},
		"a pod gets its label back": {unlabelled, nothing, "Normal SuccessfulUpdate updated pod web-0: "},
		"a label is refused": {func(s *simulated) { unlabelled(s); s.refuse("patch", "Pod") }, nothing,
			"Warning FailedUpdate failed to update pod web-0: "},
		"the owner of a claim is": {func(s *simulated) { s.refuse("patch", "PersistentVolumeClaim") }, retain(remove, keep),
			"Warning FailedUpdate failed to change the owners of claim data-web-0: "},
		"a claim has an owner":         {nil, retain(remove, keep), ""},
		"a pod that exists is no news": {hidden, nothing, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := started(t, makeSet(2, claimed("data")), everything)
			s.Recorded = nil
			if test.disturb != nil {
				test.disturb(s)
			}
			s.Edit(test.change)
			for range 5 { // not for so long that it is told that nothing moves
				s.Round()
				s.Pass(time.Second)
			}
			told := s.EventsWith(test.want)
			if test.want == "" {
				if len(s.Recorded) > 0 {
					t.Errorf("events %q", s.Recorded)
				}
				return
			}
			if len(told) == 0 {
				t.Errorf("told: got none, want some; %q is not among %q", test.want, s.Recorded)
			} else if strings.HasPrefix(test.want, "Warning") && !strings.Contains(told[0], "a policy") {
				t.Errorf("told first: got %q, want it to contain %q; %q is not among %q", told[0], "a policy", test.want,
					s.Recorded)
			}
			if slices.ContainsFunc(s.Recorded, func(e string) bool {
				return strings.Contains(e, "SuccessfulCreate") && strings.Contains(e,
					"claim")
			}) {
				t.Errorf("events of claims: %q", s.Recorded)
			}
		})
	}
	if attempts == 0 {
		t.Error("the pod that exists was not created again")
	}
}

// TestConflictsOfTheStatus shows ASTS-305, with TestTheWholeStatusIsCompared: a status that changes is
// written, also when somebody changes the set just then, and one that does not is not written.
func TestConflictsOfTheStatus(t *testing.T) {
	s := started(t, makeSet(2), everything)
	writes, meddled := 0, false
	s.Answer = func(r *simulation.Request) error {
		if r.Key == setKey && r.Subresource == "status" {
			if writes++; !meddled {
				meddled = true
				s.Change(setKey, func(o client.Object) { o.SetLabels(map[string]string{"changed": "meanwhile"}) })
			}
		}
		return nil
	}
	for range 10 {
		s.onePass()
	}
	if writes != 0 {
		t.Errorf("%d writes of a status that is right", writes)
	}
	s.Edit(replicas(3))
	s.ActFor(time.Minute)
	if status := s.set().Status; !meddled {
		t.Errorf("meddled: got false, want true\n%+v", status)
	} else if status.Replicas != 3 {
		t.Errorf("replicas: got %d, want 3\n%+v", status.Replicas, status)
	} else if status.AvailableReplicas != 3 {
		t.Errorf("available replicas: got %d, want 3\n%+v", status.AvailableReplicas, status)
	} else if want := s.set().Generation; status.ObservedGeneration != want {
		t.Errorf("observed generation: got %d, want %d\n%+v", status.ObservedGeneration, want, status)
	} else if got := s.set().Labels["changed"]; got == "" {
		t.Errorf("label changed: got nothing, want some text\n%+v", status)
	}
}

// TestALostAnswerIsSettledWithinSeconds shows ASTS-356: whatever write has its answer lost, what became of it
// is found out at once, nothing is done twice, and no pass waits for minutes.
func TestALostAnswerIsSettledWithinSeconds(t *testing.T) {
	for n := range 6 {
		s := simulate(1, makeSet(3, claimed("data"), parallel), everything)
		count := 0
		s.BeforeWrite = func(simulation.Write, client.Object, client.Object) {
			if s.Faults.Lose = 0; count == n {
				s.Faults.Lose = 1
			}
			count++
		}
		s.ActFor(15 * time.Second)
		if got := len(s.AllPods()); got != 3 {
			t.Errorf("number of pods: got %d, want 3; write %d: %q %s", got, n+1, s.Recorded, s.describe())
		}
		if got := s.set().Status.AvailableReplicas; got != 3 {
			t.Errorf("available replicas: got %d, want 3; write %d: %q %s", got, n+1, s.Recorded, s.describe())
		}
		if got := len(s.EventsWith("SuccessfulCreate")); got > 3 {
			t.Errorf(`number of events SuccessfulCreate: got %d, want at most 3; write %d: %q %s`, got, n+1, s.Recorded,
				s.describe())
		}
	}
}
