package controller

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/inplace"
	"github.com/afloat-project/afloat/internal/engine/readiness"
	"github.com/afloat-project/afloat/internal/kinds/cloneset"
	"github.com/afloat-project/afloat/internal/kinds/cloneset/clonesettest"
	"github.com/afloat-project/afloat/internal/simulation"
)

// TestRefusedCreationIsNoLoop: pods that the server refuses have other names in each attempt. Neither the
// condition that tells of it nor claims that find no pod call for the next attempt at once, and what else is
// to be done goes on (CS-072, CS-225).
func TestRefusedCreationIsNoLoop(t *testing.T) {
	set := clonesettest.Set(3, clonesettest.Claims("1Gi"), clonesettest.MaxUnavailable(2))
	set.Spec.ScaleStrategy.EnablePVCReuse = false
	s := simulate(1, set, cloneset.Features{})
	if err := s.Settle(100); err != nil {
		t.Fatal(err)
	}
	s.Refused = func(w simulation.Write) bool { return w.Key.Kind == "Pod" && w.Verb == "create" }
	s.Edit(clonesettest.Both(clonesettest.Replicas(4), clonesettest.Image("nginx:2")))
	writes, start := len(s.Writes), s.Now()
	for s.Now().Sub(start) < 10*time.Minute {
		if !s.Round() {
			s.Pass(s.Queue.Due().Sub(s.Now()))
		}
		if len(s.Writes)-writes > 200 {
			t.Fatalf("%d writes in %s: %v", len(s.Writes)-writes, s.Now().Sub(start), s.Writes[writes:])
		}
	}
	if status := s.set().Status; status.UpdatedReadyReplicas != 3 {
		t.Errorf("%d pods updated", status.UpdatedReadyReplicas)
	}
	s.Refused = nil
	if err := s.Settle(100); err != nil {
		t.Fatal(err)
	}
	status := s.set().Status
	if status.UpdatedAvailableReplicas != 4 {
		t.Errorf("updated and available replicas: got %d, want 4\n%+v", status.UpdatedAvailableReplicas, status)
	}
	if len(status.Conditions) > 0 {
		t.Errorf("conditions: got %v, want none\n%+v", status.Conditions, status)
	}
}

// TestWebhookRewritesImages: a webhook gives pods, instead of the image that they shall have, the one that an
// older revision names. The rollout ends, and nobody fights (IPU-182, IPU-326).
func TestWebhookRewritesImages(t *testing.T) {
	for _, p := range []appsv1beta1.CloneSetPodUpdatePolicy{appsv1beta1.ReCreateCloneSetPodUpdatePolicy,
		appsv1beta1.InPlaceIfPossibleCloneSetPodUpdatePolicy} {
		t.Run(string(p), func(t *testing.T) {
			s := simulate(1, clonesettest.Set(2, clonesettest.Policy(p)), cloneset.Features{})
			if err := s.Settle(100); err != nil {
				t.Fatal(err)
			}
			s.Answer = rewriting
			s.Edit(clonesettest.Image("nginx:2"))
			if err := s.Settle(300); err != nil {
				t.Fatal(err)
			}
			status := s.set().Status
			if status.UpdatedAvailableReplicas != 2 {
				t.Errorf("updated and available replicas: got %d, want 2\n%+v\n%s", status.UpdatedAvailableReplicas,
					status, s.describe())
			}
			if status.CurrentRevision != status.UpdateRevision {
				t.Errorf("current revision: got %q, want %q\n%+v\n%s", status.CurrentRevision, status.UpdateRevision,
					status, s.describe())
			}
		})
	}
}

// A disruption budget, a quota or a policy that refuses an update in place is waited for, and its words are
// shown; the pod is not deleted to get round it (IPU-174, IPU-184).
func TestForbiddenUpdatesAreWaitedFor(t *testing.T) {
	s := simulate(1, clonesettest.Set(5, clonesettest.MaxUnavailable(3)), cloneset.Features{})
	if err := s.Settle(100); err != nil {
		t.Fatal(err)
	}
	name := s.active()[0].Name
	s.Answer = forbidding
	s.Edit(clonesettest.Image("nginx:2"))
	for range 30 {
		s.Round()
	}
	if c := cloneset.Condition(&s.set().Status, appsv1beta1.CloneSetConditionFailedUpdate); c == nil {
		t.Error("c: got nil, want a value")
	} else if !strings.Contains(c.Message, "budget") {
		t.Errorf("message: got %q, want it to contain %q; condition %+v", c.Message, "budget", c)
	}
	held := 0 // one pod in a while tries again; the others, and that one in between, serve
	for range 30 {
		for _, pod := range s.active() {
			if !readiness.Ready(pod) {
				held++
			}
		}
		s.Round()
	}
	if held > 10 {
		t.Errorf("pods that run what they should are out of service %d times in 30 rounds of 5 pods", held)
	}
	s.Answer = nil
	if err := s.Settle(100); err != nil {
		t.Fatal(err)
	}
	status := s.set().Status
	if got := s.active()[0].Name; got != name {
		t.Errorf("name of the first active: got %q, want %q; pod %s instead of %s, %+v", got, name,
			s.active()[0].Name, name, status)
	}
	if status.UpdatedAvailableReplicas != 5 {
		t.Errorf("updated and available replicas: got %d, want 5; pod %s instead of %s, %+v",
			status.UpdatedAvailableReplicas,
			s.active()[0].Name, name, status)
	}
	if len(status.Conditions) > 0 {
		t.Errorf("conditions: got %v, want none; pod %s instead of %s, %+v", status.Conditions, s.active()[0].Name,
			name, status)
	}
}

func forbidding(r *simulation.Request) error {
	if r.Verb == "patch" && strings.Contains(string(r.Body), `"image"`) {
		return apierrors.NewForbidden(corev1.Resource("pods"), r.Key.Name, errors.New("admission webhook denied the request: budget"))
	}
	return nil
}

// A refusal is remembered until an update succeeds: that other pods are written, or that the next attempt
// gets no answer, is no sign of that.
func TestRefusalsAreRemembered(t *testing.T) {
	s := simulate(1, clonesettest.Set(5, clonesettest.MaxUnavailable(3)), cloneset.Features{})
	if err := s.Settle(100); err != nil {
		t.Fatal(err)
	}
	refusing := &answering{err: apierrors.NewForbidden(corev1.Resource("pods"), "p", errors.New("policy"))}
	s.Answer = refusing.answer
	s.Edit(clonesettest.Image("nginx:2"))
	for refusing.asked == 0 {
		s.Round()
	}
	refusing.err = apierrors.NewInternalError(errors.New("no answer")) // of the pod that tries again
	most := 0
	for range 200 {
		before := refusing.asked
		s.Pass(time.Second)
		s.Round()
		most = max(most, refusing.asked-before)
	}
	if most != 1 {
		t.Errorf("%d pods try at the same time", most)
	}
	refusing.err = nil
	if err := s.Settle(300); err != nil {
		t.Fatal(err)
	}
	if status := s.set().Status; status.UpdatedAvailableReplicas != 5 {
		t.Errorf("updated and available replicas: got %d, want 5\n%+v", status.UpdatedAvailableReplicas, status)
	}
}

// answering answers changes of images with an error.
type answering struct {
	err   error
	asked int
}

func (c *answering) answer(r *simulation.Request) error {
	if c.err != nil && r.Verb == "patch" && strings.Contains(string(r.Body), `"image"`) {
		c.asked++
		return c.err
	}
	return nil
}

// CS-076: a pass that runs out of time and wrote nothing is not repeated at once.
func TestRefusedPassesBackOff(t *testing.T) {
	s := simulate(1, clonesettest.Set(20, clonesettest.MaxUnavailable(20)), cloneset.Features{})
	if err := s.Settle(200); err != nil {
		t.Fatal(err)
	}
	s.Answer = forbidding
	late := time.Duration(0)
	s.kube.Now = func() time.Time { late += 100 * time.Millisecond; return s.Now().Add(late) }
	s.Edit(clonesettest.Image("nginx:2"))
	seen := false
	for range 5 {
		s.Events(1000)
		_, outcome, err := s.Once()
		if err == nil || !outcome.Unfinished {
			continue
		}
		if seen = true; outcome.After == time.Millisecond {
			t.Errorf("after %v the next pass comes at once", err)
		}
	}
	if !seen {
		t.Error("no pass ran out of time")
	}
}

// Whatever got past admission, pods are neither given up nor miscounted (CS-096, CS-220).
func TestUnusableSpecsGiveUpNoPods(t *testing.T) {
	for name, spoil := range map[string]func(*appsv1beta1.CloneSet){
		"no selector": func(set *appsv1beta1.CloneSet) { set.Spec.Selector = nil },
		"a selector that is malformed": func(set *appsv1beta1.CloneSet) {
			set.Spec.Selector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Like"}}
		},
		"a template that the selector does not match": clonesettest.Templated(`{"metadata":{"labels":{"app":"other"}},"spec":{"containers":[{"name":"nginx","image":"nginx:1"}]}}`),
		"a template that is none":                     clonesettest.Templated(`{"metadata":{"labels":{"app":"web"}},"spec":{"containers":"none"}}`),
	} {
		t.Run(name, func(t *testing.T) {
			s := simulate(1, clonesettest.Set(2), cloneset.Features{})
			if err := s.Settle(100); err != nil {
				t.Fatal(err)
			}
			before := s.set().Status
			s.Edit(clonesettest.Both(clonesettest.Replicas(3), spoil))
			writes := len(s.Writes)
			if err := s.Settle(100); err != nil {
				t.Fatal(err)
			}
			for _, w := range s.Writes[writes:] {
				if w.Key.Kind != "CloneSet" {
					t.Errorf("kind of the key: got %q, want %q\n%+v", w.Key.Kind, "CloneSet", w)
				}
			}
			after := s.set().Status
			if after.Replicas != 2 {
				t.Errorf("replicas: got %d, want 2\n%+v", after.Replicas, after)
			}
			if after.AvailableReplicas != 2 {
				t.Errorf("available replicas: got %d, want 2\n%+v", after.AvailableReplicas, after)
			}
			if after.UpdatedReplicas != 2 {
				t.Errorf("updated replicas: got %d, want 2\n%+v", after.UpdatedReplicas, after)
			}
			if after.UpdateRevision != before.UpdateRevision {
				t.Errorf("update revision: got %q, want %q\n%+v", after.UpdateRevision, before.UpdateRevision, after)
			}
			if got := cloneset.Condition(&after, appsv1beta1.CloneSetConditionFailedUpdate); got == nil {
				t.Errorf("condition about failed updates: got nil, want a value\n%+v", after)
			}
			s.Edit(clonesettest.Both(clonesettest.Image("nginx:1"),
				func(set *appsv1beta1.CloneSet) { set.Spec.Selector = clonesettest.Set(1).Spec.Selector }))
			if err := s.Settle(100); err != nil {
				t.Fatal(err)
			}
			if after := s.set().Status; after.UpdatedAvailableReplicas != 3 {
				t.Errorf("updated and available replicas: got %d, want 3\n%+v", after.UpdatedAvailableReplicas, after)
			} else if len(after.Conditions) > 0 {
				t.Errorf("conditions: got %v, want none\n%+v", after.Conditions, after)
			}
		})
	}
}

// That names cannot be removed from podsToDelete is told (CS-134, CS-225).
func TestNamesThatCannotBePrunedAreTold(t *testing.T) {
	s := simulate(1, clonesettest.Set(1), cloneset.Features{})
	if err := s.Settle(100); err != nil {
		t.Fatal(err)
	}
	s.Refused = func(w simulation.Write) bool { return w.Key == setKey && w.Subresource == "" }
	s.Edit(clonesettest.ToDelete("gone"))
	for range 10 {
		s.Round()
	}
	if c := cloneset.Condition(&s.set().Status, appsv1beta1.CloneSetConditionFailedScale); c == nil {
		t.Error("c: got nil, want a value")
	} else if !strings.Contains(c.Message, "podsToDelete") {
		t.Errorf("message: got %q, want it to contain %q\n%+v", c.Message, "podsToDelete", c)
	}
}

// rewriting is a webhook.
func rewriting(r *simulation.Request) error {
	rewrite := func(body []byte) []byte {
		return bytes.ReplaceAll(body, []byte(`"image":"nginx:2"`), []byte(`"image":"nginx:1"`))
	}
	r.Body = rewrite(r.Body)
	if document, ok := r.Object.(*unstructured.Unstructured); ok && r.Key.Kind == "Pod" {
		body, err := document.MarshalJSON()
		if err != nil {
			return err
		}
		return document.UnmarshalJSON(rewrite(body))
	}
	return nil
}

// TestPodsThatServeAreLeftAlone: the record of an update that the reference completed reads as incomplete,
// because the daemon that told of it is gone. The pod serves, so it is neither replaced nor held, nor does
// its next update wait for it (IPU-312, IPU-325).
func TestPodsThatServeAreLeftAlone(t *testing.T) {
	s := simulate(1, clonesettest.Set(1, clonesettest.App("nginx:1", "a", "", "")),
		cloneset.Features{InPlace: inplace.Options{EnvFromMetadata: true}})
	if err := s.Settle(100); err != nil {
		t.Fatal(err)
	}
	name := s.active()[0].Name
	s.Change(podKey(name), func(o client.Object) {
		delete(o.GetAnnotations(), pub.RuntimeContainersMeta)
		o.GetAnnotations()[pub.InPlaceUpdateState] = `{"revision":"` + o.GetLabels()[pub.ControllerRevisionHash] +
			`","updateTimestamp":"2030-01-01T01:00:00Z","lastContainerStatuses":null,"updateEnvFromMetadata":true}`
	})
	s.Start()
	s.Pass(2 * time.Hour)
	writes := len(s.Writes)
	if err := s.Settle(100); err != nil {
		t.Fatalf("coming to rest: unexpected error: %v\n%v\n%s", err, s.Writes[writes:], s.describe())
	} else if len(s.Writes) > writes {
		t.Fatalf("number of writes: got %d, want at most %d\n%v\n%v\n%s", len(s.Writes), writes, err,
			s.Writes[writes:], s.describe())
	}
	s.Edit(clonesettest.App("nginx:2", "a", "", ""))
	if err := s.Settle(100); err != nil {
		t.Fatal(err)
	}
	status := s.set().Status
	if got := s.active()[0].Name; got != name {
		t.Errorf("name of the first active: got %q, want %q\n%+v\n%s", got, name, status, s.describe())
	}
	if status.UpdatedAvailableReplicas != 1 {
		t.Errorf("updated and available replicas: got %d, want 1\n%+v\n%s", status.UpdatedAvailableReplicas,
			status, s.describe())
	}
}
