package configuration

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

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// sender is an API server whose mutating configuration has entries for pods, and which uses a changed entry
// only after some probes.
type sender struct {
	client.WithWatch
	clock  *testclock.FakeClock
	mu     sync.Mutex
	writes int
	probed []string
	// late is how many probes it takes until an entry is served.
	late int
}

func newSender(t *testing.T) *sender {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := admissionv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	service := func(path string) admissionv1.WebhookClientConfig {
		return admissionv1.WebhookClientConfig{Service: &admissionv1.ServiceReference{Namespace: "sys", Name: "hook", Path: &path}}
	}
	all := admissionv1.Fail
	s := &sender{clock: testclock.NewFakeClock(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))}
	s.WithWatch = fake.NewClientBuilder().WithScheme(scheme).WithObjects(&admissionv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "mutating", Annotations: map[string]string{"template": ""}},
		Webhooks: []admissionv1.MutatingWebhook{{Name: "mx.kb.io", ClientConfig: service("/mutate-x")},
			{Name: "all.kb.io", FailurePolicy: &all, ClientConfig: service("/mutate-pod-all"),
				MatchConditions: []admissionv1.MatchCondition{{Name: "asked", Expression: "object.known"}}}}},
	).WithInterceptorFuncs(interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			s.mu.Lock()
			s.writes++
			s.mu.Unlock()
			return c.Patch(ctx, o, p, opts...)
		},
	}).Build()
	return s
}

// pass publishes, again if somebody else wrote meanwhile.
func pass(t *testing.T, p *Publisher) {
	t.Helper()
	for range maxRaces {
		switch _, err := p.Publish(t.Context(), []byte("bundle")); {
		case err == nil:
			return
		case !errors.Is(err, ErrLostRace):
			t.Fatalf("publishing: %v", err)
		}
	}
	t.Fatal("publishing lost every race")
}

// stepped is a clock that tests set, while waiting takes real time.
type stepped struct {
	clock.RealClock
	set *testclock.FakeClock
}

// Now implements clock.Clock.
func (c stepped) Now() time.Time { return c.set.Now() }

// Since implements clock.Clock.
func (c stepped) Since(from time.Time) time.Duration { return c.set.Since(from) }

func (s *sender) mutating(t *testing.T) *admissionv1.MutatingWebhookConfiguration {
	t.Helper()
	config := &admissionv1.MutatingWebhookConfiguration{}
	if err := s.Get(context.Background(), types.NamespacedName{Name: "mutating"}, config); err != nil {
		t.Fatal(err)
	}
	return config
}

var errFound = errors.New("found")

// replica returns the publisher of a manager. It leads if elected is nil, and does not while elected is open.
func (s *sender) replica(t *testing.T, elected chan struct{}) *Publisher {
	t.Helper()
	return New(s, stepped{set: s.clock}, Options{
		Target: Target{Namespace: "sys", Service: "hook"}, Mutating: "mutating", Elected: elected,
		Paths: map[string]bool{"/mutate-x": true, "/mutate-off": false, "/mutate-pod-all": true, "/mutate-pod-recent": true},
		Scopes: map[string]Scope{"all.kb.io": {Policy: admissionv1.Fail, Conditions: func() ([]admissionv1.MatchCondition, bool) {
			return []admissionv1.MatchCondition{{Name: "asked", Expression: "object.known"}}, true
		}}},
		Recent: &Recent{Of: "all.kb.io", Name: "recent.kb.io", Path: "/mutate-pod-recent",
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
			}}})
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
			if path := *entry.ClientConfig.Service.Path; path != "/mutate-pod-recent" {
				t.Errorf("path of the recent rules: got %s, want /mutate-pod-recent", path)
			}
			if *entry.FailurePolicy != policy {
				t.Errorf("failure policy of the recent rules: got %s, want %s", *entry.FailurePolicy, policy)
			}
			if len(entry.MatchConditions) != 1 {
				t.Errorf("conditions of the recent rules: got %v, want one", entry.MatchConditions)
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
	if n := len(s.probed); n != 4 {
		t.Errorf("probes: got %d, want 4", n)
	}
	if text := s.recent(t); !strings.Contains(text, "(object.a)") {
		t.Errorf("recent rules: got %s, want object.a in them", text)
	}
	names := []string{}
	for _, entry := range s.mutating(t).Webhooks {
		names = append(names, entry.Name)
	}
	if diff := cmp.Diff([]string{"mx.kb.io", "recent.kb.io", "all.kb.io"}, names); diff != "" {
		t.Errorf("entries (-want +got):\n%s", diff)
	}
	apart := []admissionv1.MatchCondition{{Name: "asked", Expression: "object.known"},
		{Name: "not-asked-for-recently", Expression: "!(" + s.recent(t) + ")"}}
	if diff := cmp.Diff(apart, s.known(t)); diff != "" {
		t.Errorf("conditions for pods of known rules (-want +got):\n%s", diff)
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
	text := s.recent(t)
	if strings.Contains(text, "(object.a)") {
		t.Errorf("recent rules after %s: got %s, want object.a gone", recentTime, text)
	}
	if !strings.Contains(text, "(object.b)") {
		t.Errorf("recent rules after %s: got %s, want object.b kept", recentTime, text)
	}
	s.clock.Step(recentTime)
	pass(t, leader)
	after := s.mutating(t)
	if diff := cmp.Diff(before.Webhooks, after.Webhooks); diff != "" {
		t.Errorf("at rest:\n%s", diff)
	}
	if text := after.Annotations["template"]; strings.Contains(text, "recent.kb.io") {
		t.Errorf("annotation at rest: got %s, want no entry for recent rules", text)
	}
	if rules := recentOfTyped(after); len(rules) != 0 {
		t.Errorf("recent rules at rest: got %v, want none", rules)
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
				t.Errorf("announcing object.a%d: %v", i, err)
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
		if len(rules) > maxRecentRules {
			t.Fatalf("rules: got %d, want %d at most", len(rules), maxRecentRules)
		}
		if n := len(rules.expression()); n > maxRecentLength {
			t.Fatalf("characters of the rules: got %d, want %d at most", n, maxRecentLength)
		}
	}
	if len(rules) != 1 || rules[0].Expression != "true" {
		t.Errorf("rules: got %v, want one for all pods", rules)
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
	for _, later := range []time.Duration{againTime, againTime + time.Second, recentTime - time.Second} {
		next, token := rules.add(fmt.Sprintf("object.late%d", later), begin.Add(later))
		if next != nil {
			rules = next
		}
		if !slices.ContainsFunc(rules, func(r recentRule) bool { return r.Expression == "true" }) {
			t.Errorf("rules %s later: got %v, want one for all pods among them", later, rules)
		}
		if token == "" {
			t.Errorf("rules %s later: got no token", later)
		}
	}
	if len(rules) != 4 {
		t.Errorf("rules: got %v, want 4", rules)
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
		if took := time.Since(began); took != servedTime {
			t.Errorf("waited %s, want %s", took, servedTime)
		}
		if n := len(s.probed); n > 12 {
			t.Errorf("probes: got %d, want 12 at most", n)
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
	external.External = true
	err := errors.Join(external.Announce(t.Context(), "object.a"), k.Announce(t.Context(), "false"))
	if err != nil {
		t.Errorf("announcing what needs no entry: %v", err)
	}
	if n := s.writes - writes; n != 0 {
		t.Errorf("writes for what needs no entry: got %d, want none", n)
	}
	s.late = 1 << 30
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := k.Announce(ctx, "object.a"); err == nil || !strings.Contains(err.Error(), "does not ask about its pods yet") {
		t.Errorf("announcing while the API server does not ask: got %v, want an error that says so", err)
	}
	config := s.mutating(t)
	config.Webhooks = config.Webhooks[:1]
	if err := s.Update(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	if err := k.Announce(t.Context(), "object.b"); err != nil {
		t.Errorf("announcing without an entry to copy: %v", err)
	}
	if text := s.recent(t); text != "" {
		t.Errorf("recent rules without an entry to copy: got %s, want none", text)
	}
}
