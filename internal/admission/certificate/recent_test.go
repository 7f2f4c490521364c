package certificate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

// sender is a world whose mutating configuration has entries for pods, and whose API server uses a changed
// entry only after some probes.
type sender struct {
	*world
	mu     sync.Mutex
	probed []string
	// late is how many probes it takes until an entry is served.
	late int
}

func newSender(t *testing.T) *sender {
	t.Helper()
	s := &sender{world: newWorld(t)}
	config := s.mutating(t)
	path, all := "/mutate-pod-all", admissionv1.Fail
	config.Webhooks = append(config.Webhooks, admissionv1.MutatingWebhook{Name: "all.kb.io", FailurePolicy: &all,
		ClientConfig: admissionv1.WebhookClientConfig{Service: &admissionv1.ServiceReference{Namespace: "sys", Name: "hook",
			Path: &path}},
		MatchConditions: []admissionv1.MatchCondition{{Name: "asked", Expression: "object.known"}}})
	if err := s.Update(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *sender) mutating(t *testing.T) *admissionv1.MutatingWebhookConfiguration {
	t.Helper()
	config := &admissionv1.MutatingWebhookConfiguration{}
	if err := s.Get(context.Background(), types.NamespacedName{Name: "mutating"}, config); err != nil {
		t.Fatal(err)
	}
	return config
}

var errFound = errors.New("found")

// replica returns the keeper of a manager. It leads if elected is nil, and does not while elected is open.
func (s *sender) replica(t *testing.T, elected chan struct{}) *Keeper {
	t.Helper()
	options := s.keeper(t).options
	options.Elected = elected
	options.Paths = map[string]bool{"/mutate-x": true, "/mutate-off": false, "/mutate-pod-all": true, "/mutate-pod-recent": true}
	options.Scopes = map[string]Scope{"all.kb.io": {Policy: admissionv1.Fail, Conditions: func() ([]admissionv1.MatchCondition, bool) {
		return []admissionv1.MatchCondition{{Name: "asked", Expression: "object.known"}}, true
	}}}
	options.Recent = &Recent{Of: "all.kb.io", Name: "recent.kb.io", Path: "/mutate-pod-recent",
		Probe: func(_ context.Context, token string) error {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.probed = append(s.probed, token)
			if s.late--; s.late >= 0 || !strings.Contains(s.recent(t), "'"+token+"'") && s.recent(t) != "true" {
				return nil
			}
			return fmt.Errorf("%w %s", errFound, token)
		},
		Found: func(err error, token string) bool {
			return errors.Is(err, errFound) && strings.Contains(err.Error(), token)
		}}
	k := New(s, clock.RealClock{}, logr.Discard(), options)
	k.publisher.now = s.clock.Now
	return k
}

// recent is the condition of the entry of recent rules, empty if there is none; known is that of the other
// entry.
func (s *sender) recent(t *testing.T) string {
	t.Helper()
	for _, entry := range s.mutating(t).Webhooks {
		if entry.Name == "recent.kb.io" {
			policy := admissionv1.Fail
			if strings.Contains(entry.MatchConditions[0].Expression, "|| !((") { // all pods are asked for
				policy = admissionv1.Ignore
			}
			if *entry.ClientConfig.Service.Path != "/mutate-pod-recent" || *entry.FailurePolicy != policy || len(entry.MatchConditions) != 1 {
				t.Errorf("%+v", entry)
			}
			return entry.MatchConditions[0].Expression
		}
	}
	return ""
}

func (s *sender) known(t *testing.T) []admissionv1.MatchCondition {
	t.Helper()
	for _, entry := range s.mutating(t).Webhooks {
		if entry.Name == "all.kb.io" {
			return entry.MatchConditions
		}
	}
	return nil
}

// TestAnnouncedRuleIsServedBeforeItIsStored: before a rule is accepted the API server sends its pods, also if
// the replica does not lead. These pods are sent by an entry of their own and no other; the leader keeps the
// entry, and drops it when every replica has the rule (SS-006 (part)).
func TestAnnouncedRuleIsServedBeforeItIsStored(t *testing.T) {
	s := newSender(t)
	leader, other := s.replica(t, nil), s.replica(t, make(chan struct{}))
	pass(t, leader)
	before := s.mutating(t)
	s.late = 3
	if err := other.Announce(t.Context(), "object.a"); err != nil {
		t.Fatal(err)
	}
	if n := len(s.probed); n != 4 || !strings.Contains(s.recent(t), "(object.a)") {
		t.Errorf("%d probes, recent rules: %s", n, s.recent(t))
	}
	names := []string{}
	for _, entry := range s.mutating(t).Webhooks {
		names = append(names, entry.Name)
	}
	if diff := cmp.Diff([]string{"mx.kb.io", "recent.kb.io", "all.kb.io"}, names); diff != "" {
		t.Error(diff)
	}
	apart := []admissionv1.MatchCondition{{Name: "asked", Expression: "object.known"},
		{Name: "not-asked-for-recently", Expression: "!(" + s.recent(t) + ")"}}
	if diff := cmp.Diff(apart, s.known(t)); diff != "" {
		t.Error(diff)
	}
	writes := s.writes
	pass(t, leader)
	pass(t, other)
	if s.writes != writes {
		t.Errorf("%d writes by passes that have nothing to change", s.writes-writes)
	}
	s.clock.Step(recentTime - time.Second)
	if err := leader.Announce(t.Context(), "object.b"); err != nil {
		t.Fatal(err)
	}
	pass(t, leader)
	s.clock.Step(time.Second)
	pass(t, other)
	if text := s.recent(t); !strings.Contains(text, "(object.a)") {
		t.Errorf("dropped by a replica that does not lead: %s", text)
	}
	pass(t, leader)
	if text := s.recent(t); strings.Contains(text, "(object.a)") || !strings.Contains(text, "(object.b)") {
		t.Errorf("after %s: %s", recentTime, text)
	}
	s.clock.Step(recentTime)
	pass(t, leader)
	after := s.mutating(t)
	if diff := cmp.Diff(before.Webhooks, after.Webhooks); diff != "" {
		t.Errorf("at rest:\n%s", diff)
	}
	if strings.Contains(after.Annotations["template"], "recent.kb.io") || len(recentOfTyped(after)) != 0 {
		t.Errorf("%v", after.Annotations)
	}
}

func recentOfTyped(config *admissionv1.MutatingWebhookConfiguration) recentRules {
	object := &unstructured.Unstructured{}
	object.SetAnnotations(config.Annotations)
	return recentOf(object)
}

// TestAnnouncementsRace: if several replicas announce rules at once, the pods of all are sent.
func TestAnnouncementsRace(t *testing.T) {
	s := newSender(t)
	leader, other := s.replica(t, nil), s.replica(t, make(chan struct{}))
	pass(t, leader)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			by := leader
			if i%2 == 0 {
				by = other
			}
			if err := by.Announce(t.Context(), fmt.Sprintf("object.a%d", i)); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	pass(t, leader)
	for i := range 8 {
		if !strings.Contains(s.recent(t), fmt.Sprintf("(object.a%d)", i)) {
			t.Errorf("a%d is not asked for: %s", i, s.recent(t))
		}
	}
}

// TestAnnouncementsAreBounded: a rule that users write again and again costs one write in a while, and many
// rules become one for all pods.
func TestAnnouncementsAreBounded(t *testing.T) {
	s := newSender(t)
	k := s.replica(t, nil)
	pass(t, k)
	writes := s.writes
	for range 20 {
		if err := k.Announce(t.Context(), "object.a"); err != nil {
			t.Fatal(err)
		}
	}
	if n := s.writes - writes; n != 1 {
		t.Errorf("%d writes", n)
	}
	var rules recentRules
	now := time.Now()
	for i := range 1000 {
		if next, _ := rules.add(fmt.Sprintf("object.metadata.labels['app'] == 'a-long-value-%d'", i), now); next != nil {
			rules = next
		}
		if len(rules) > maxRecentRules || len(rules.expression()) > maxRecentLength {
			t.Fatalf("%d rules, %d characters", len(rules), len(rules.expression()))
		}
	}
	if len(rules) != 1 || rules[0].Expression != "true" {
		t.Errorf("%v", rules)
	}
}

// TestThePodsOfManyRulesAreAllSent: a hundred rules were announced at once, so that all pods are sent. A rule
// that is announced some seconds later does not end this: the others are still recent, and a replica may not
// have them in its cache (SS-006).
func TestThePodsOfManyRulesAreAllSent(t *testing.T) {
	begin := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	var rules recentRules
	for i := range maxRecentRules + 1 {
		if next, _ := rules.add(fmt.Sprintf("object.a%d", i), begin); next != nil {
			rules = next
		}
	}
	for _, later := range []time.Duration{recentTime / 3, recentTime/3 + time.Second, recentTime - time.Second} {
		next, token := rules.add(fmt.Sprintf("object.late%d", later), begin.Add(later))
		if next != nil {
			rules = next
		}
		if !slices.ContainsFunc(rules, func(r recentRule) bool { return r.Expression == "true" }) || token == "" {
			t.Errorf("%s later: %v", later, rules)
		}
	}
	if len(rules) != 4 {
		t.Errorf("%v", rules)
	}
	if next, _ := rules.add(rules[3].Expression, begin.Add(recentTime)); next != nil {
		t.Errorf("announced again: %v", next)
	}
}

// TestAnEntryThatIsNeverServedIsProbedSeldom: a foreign webhook refuses the probing pods, or the entry does
// not send them. Each rule then costs only a few requests, not as many as fit into the time.
func TestAnEntryThatIsNeverServedIsProbedSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSender(t)
		k := s.replica(t, nil)
		pass(t, k)
		s.late = 1 << 30
		began := time.Now()
		if err := k.Announce(t.Context(), "object.a"); err == nil {
			t.Error("it is served")
		}
		if took := time.Since(began); took != servedTime || len(s.probed) > 12 {
			t.Errorf("%d probes in %s", len(s.probed), took)
		}
	})
}

// TestAnnouncementsThatComeToNothing: nothing is announced if there is no entry for pods, or if the
// configurations are external. If the API server does not use the entry, the user gets a warning.
func TestAnnouncementsThatComeToNothing(t *testing.T) {
	s := newSender(t)
	k := s.replica(t, nil)
	pass(t, k)
	writes := s.writes
	external := s.replica(t, nil)
	external.options.External = true
	if err := errors.Join(external.Announce(t.Context(), "object.a"), k.Announce(t.Context(), "false")); err != nil || s.writes != writes {
		t.Errorf("%d writes, %v", s.writes-writes, err)
	}
	s.late = 1 << 30
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := k.Announce(ctx, "object.a"); err == nil || !strings.Contains(err.Error(), "does not ask about its pods yet") {
		t.Errorf("%v", err)
	}
	config := s.mutating(t)
	config.Webhooks = config.Webhooks[:1]
	if err := s.Update(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	if err := k.Announce(t.Context(), "object.b"); err != nil || s.recent(t) != "" {
		t.Errorf("%v, %s", err, s.recent(t))
	}
}
