package configuration

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
)

// Anybody can announce rules by reviews of objects that do not exist. However many and however long they are,
// they cost a few writes, what they leave in the configuration is small, a real rule is served before it is
// accepted, and pods of rules that are stored are sent as before.
func TestMadeUpAnnouncementsDoNotCrowdOutRealOnes(t *testing.T) {
	s := newSender(t)
	k := s.replica(t, nil)
	pass(t, k)
	writes := s.writes
	for i := range 500 {
		if err := k.Announce(t.Context(), fmt.Sprintf("object.made.up%d == '%s'", i, strings.Repeat("x", 300))); err != nil {
			t.Fatal(err)
		}
	}
	if n := s.writes - writes; n > 2*announcementsAtOnce {
		t.Errorf("writes: got %d, want %d at most", n, 2*announcementsAtOnce)
	}
	if n := len(s.probed); n > 2*announcementsAtOnce {
		t.Errorf("probes: got %d, want %d at most", n, 2*announcementsAtOnce)
	}
	if err := k.Announce(t.Context(), "object.real"); err != nil {
		t.Fatal(err)
	}
	config := s.mutating(t)
	if rules := recentOfTyped(config); !rules.wide() {
		t.Errorf("recent rules: got %.500v, want one for all pods", rules)
	}
	if n := len(config.Annotations[recentAnnotation]); n > 2*maxRecentLength {
		t.Errorf("characters of the annotation: got %d, want %d at most", n, 2*maxRecentLength)
	}
	if known := s.known(t); len(known) != 1 || known[0].Expression != "object.known" {
		t.Errorf("conditions for pods of known rules: got %v, want object.known alone", known)
	}
	if text := s.recent(t); !strings.HasSuffix(text, "|| !((object.known))") {
		t.Errorf("recent rules: got %s, want all pods but those of known rules", text)
	}
	policies := map[string]admissionv1.FailurePolicyType{}
	for _, entry := range config.Webhooks {
		if entry.FailurePolicy != nil {
			policies[entry.Name] = *entry.FailurePolicy
		}
	}
	if policy := policies["recent.kb.io"]; policy != admissionv1.Ignore {
		t.Errorf("while no manager answers: the recent rules have failure policy %s, want Ignore", policy)
	}
	if policy := policies["all.kb.io"]; policy != admissionv1.Fail {
		t.Errorf("while no manager answers: all.kb.io has failure policy %s, want Fail", policy)
	}
	pass(t, k)
	s.clock.Step(recentTime)
	pass(t, k)
	if text := s.recent(t); text != "" {
		t.Errorf("recent rules at rest: got %s, want none", text)
	}
	if known := s.known(t); len(known) != 1 {
		t.Errorf("conditions for pods of known rules at rest: got %v, want one", known)
	}
}

// What API servers could not evaluate is written neither for a rule that is announced nor for those that are
// known: they would refuse pods.
func TestWhatCannotBeEvaluatedIsNotWritten(t *testing.T) {
	s := newSender(t)
	k := s.replica(t, nil)
	broken := errors.New("int() may fail")
	k.Check = func(expression string) error {
		if strings.Contains(expression, "int(") {
			return broken
		}
		return nil
	}
	k.Scopes["all.kb.io"] = Scope{Policy: admissionv1.Fail, Conditions: func() ([]admissionv1.MatchCondition, bool) {
		return []admissionv1.MatchCondition{{Name: "asked", Expression: "object.known"}, {Name: "bad", Expression: "int('x') == 1"}}, true
	}}
	pass(t, k)
	if known := s.known(t); len(known) != 1 || known[0].Name != "asked" {
		t.Errorf("conditions: got %v, want the good one alone", known)
	}
	writes := s.writes
	if err := k.Announce(t.Context(), "int(request.operation) == 1"); !errors.Is(err, broken) {
		t.Errorf("announcing a broken expression: got %v, want %v", err, broken)
	}
	if n := s.writes - writes; n != 0 {
		t.Errorf("writes for a broken expression: got %d, want none", n)
	}
	if slices.ContainsFunc(s.mutating(t).Webhooks, func(w admissionv1.MutatingWebhook) bool { return w.Name == "recent.kb.io" }) {
		t.Error("it was announced")
	}
}
