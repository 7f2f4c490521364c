package certificate

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/afloat-project/afloat/internal/admission/configuration"
)

// Several managers share the configurations: replicas, an older and a newer release, the reference.

// with returns a keeper like k for other paths.
func (w *world) with(t *testing.T, change func(*Options)) *Keeper {
	t.Helper()
	options := w.keeper(t).options
	change(&options)
	return New(w, w.clock, logr.Discard(), options)
}

// add puts an entry into the validating configuration.
func (w *world) add(t *testing.T, name, path string) {
	t.Helper()
	config := w.validating(t)
	config.Webhooks = append(config.Webhooks, admissionv1.ValidatingWebhook{Name: name, ClientConfig: admissionv1.WebhookClientConfig{
		Service: &admissionv1.ServiceReference{Namespace: "sys", Name: "hook", Path: &path}, CABundle: []byte("theirs")}})
	if err := w.Update(context.Background(), config); err != nil {
		t.Fatal(err)
	}
}

func (w *world) validating(t *testing.T) *admissionv1.ValidatingWebhookConfiguration {
	t.Helper()
	config := &admissionv1.ValidatingWebhookConfiguration{}
	if err := w.Get(context.Background(), types.NamespacedName{Name: "validating"}, config); err != nil {
		t.Fatal(err)
	}
	return config
}

func (w *world) mutating(t *testing.T) *admissionv1.MutatingWebhookConfiguration {
	t.Helper()
	config := &admissionv1.MutatingWebhookConfiguration{}
	if err := w.Get(context.Background(), types.NamespacedName{Name: "mutating"}, config); err != nil {
		t.Fatal(err)
	}
	return config
}

func (w *world) entries(t *testing.T) string {
	t.Helper()
	var names []string
	for _, hook := range w.validating(t).Webhooks {
		names = append(names, hook.Name)
	}
	return strings.Join(names, " ")
}

// OPS-065: an entry without a handler stays as it is and makes a replica not ready: at once if the replica
// starts, so that it does not replace one that has the handler, and after two minutes if the replica was
// ready before the entry came.
func TestUnknownEntriesAreKeptAndReported(t *testing.T) {
	w := newWorld(t)
	old := w.keeper(t)
	pass(t, old)
	old.wasReady = true
	w.add(t, "vpod.kb.io", "/validate-pod")
	before := w.validating(t)
	starting := w.keeper(t)
	pass(t, starting)
	pass(t, old)
	if diff := cmp.Diff(before, w.validating(t)); diff != "" {
		t.Errorf("the configuration was changed:\n%s", diff)
	}
	if n := testutil.ToFloat64(old.unserved.WithLabelValues("validating", "vpod.kb.io")); n != 1 {
		t.Errorf("metric: %v", n)
	}
	want := "vpod.kb.io of validating: nothing here handles /validate-pod"
	if err := starting.inLine(); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("readiness of a replica that starts: got %v, want %q in it", err, want)
	}
	w.clock.Step(unservedGrace - time.Second)
	pass(t, old)
	if err := old.inLine(); err != nil {
		t.Errorf("before two minutes: %v", err)
	}
	w.clock.Step(time.Second)
	if err := old.inLine(); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("readiness after two minutes: got %v, want %q in it", err, want)
	}
	config := w.validating(t)
	config.Webhooks = config.Webhooks[:1]
	if err := w.Update(context.Background(), config); err != nil {
		t.Fatal(err)
	}
	pass(t, old)
	pass(t, starting)
	for name, k := range map[string]*Keeper{"the old replica": old, "the replica that starts": starting} {
		if err := k.inLine(); err != nil {
			t.Errorf("readiness of %s after the entry went: %v", name, err)
		}
	}
	if n := testutil.CollectAndCount(old.Metric()); n != 0 {
		t.Errorf("metrics after the entry went: got %d, want none", n)
	}
}

// OPS-110, OPS-112: managers of different releases, or with different gates, come to rest after a few writes,
// no matter which of them leads. Entries are added and dropped by the leader alone.
func TestManagersThatDifferComeToRest(t *testing.T) {
	leads, follows := make(chan struct{}), make(chan struct{})
	close(leads)
	serves := func(x, y map[string]bool) func(first, second *Options) {
		return func(first, second *Options) { first.Paths, second.Paths = x, y }
	}
	cases := map[string]struct {
		set    func(leader, other *Options)
		add    string // path of an entry that a new manifest brings
		expect string
	}{
		"a newer release comes up": {set: serves(map[string]bool{"/mutate-x": true},
			map[string]bool{"/mutate-x": true, "/y": true}), add: "/y", expect: "vx.kb.io new.kb.io"},
		"a newer release leads": {set: serves(map[string]bool{"/mutate-x": true, "/y": true},
			map[string]bool{"/mutate-x": true}), add: "/y", expect: "vx.kb.io new.kb.io"},
		"a gate is being turned off": {set: serves(map[string]bool{"/mutate-x": true, "/y": true},
			map[string]bool{"/mutate-x": true, "/y": false}), add: "/y", expect: "vx.kb.io new.kb.io"},
		"a gate is being turned on, or is off": {set: serves(map[string]bool{"/mutate-x": true, "/y": false},
			map[string]bool{"/mutate-x": true, "/y": true}), add: "/y", expect: "vx.kb.io"},
		"neither knows the entry": {set: serves(map[string]bool{"/mutate-x": true}, map[string]bool{"/mutate-x": true}),
			add: "/y", expect: "vx.kb.io new.kb.io"},
		"a release that converts another kind":  {set: func(_, b *Options) { b.CRDs = append(b.CRDs, "others.example.io") }, expect: "vx.kb.io"},
		"another entry of the same old release": {set: func(*Options, *Options) {}, add: "/mutate-x", expect: "vx.kb.io new.kb.io"},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			var mine, theirs Options
			w.with(t, func(o *Options) { mine = *o })
			w.with(t, func(o *Options) { theirs = *o })
			test.set(&mine, &theirs)
			mine.Elected, theirs.Elected = leads, follows
			managers := []*Keeper{New(w, w.clock, logr.Discard(), mine), New(w, w.clock, logr.Discard(), theirs)}
			round := func() {
				for _, k := range managers {
					pass(t, k)
				}
			}
			round()
			if test.add != "" {
				w.add(t, "new.kb.io", test.add)
			}
			round()
			w.writes = 0
			round()
			round()
			if w.writes != 0 {
				t.Errorf("%d writes at rest", w.writes)
			}
			if got := w.entries(t); got != test.expect {
				t.Errorf("entries: %s", got)
			}
		})
	}
}

// OPS-064: an entry of the template that was dropped or deleted comes back when its feature is on, by the
// leader; an unreadable template counts as none, and does not stop the upkeep.
func TestTemplateOfEntries(t *testing.T) {
	w := newWorld(t)
	pass(t, w.keeper(t))
	config := w.validating(t)
	config.Webhooks = nil
	if err := w.Update(context.Background(), config); err != nil {
		t.Fatal(err)
	}
	pass(t, w.with(t, func(o *Options) { o.Elected = make(chan struct{}) }))
	if got := w.entries(t); got != "" {
		t.Errorf("a replica that does not lead brought back %s", got)
	}
	pass(t, w.keeper(t))
	if got := w.entries(t); got != "vx.kb.io" {
		t.Errorf("entries: %s", got)
	}
	config = w.validating(t)
	config.Annotations["template"] = "{spoilt"
	if err := w.Update(context.Background(), config); err != nil {
		t.Fatal(err)
	}
	pass(t, w.keeper(t))
	if text := w.validating(t).Annotations["template"]; !json.Valid([]byte(text)) || !strings.Contains(text, "vx.kb.io") {
		t.Errorf("annotation: got %s, want JSON with vx.kb.io", text)
	}
}

// OPS-064: manifests that are applied again bring new and changed entries. The template follows them and does
// not restore former entries. It does not contain what the manager itself writes into entries.
func TestTheTemplateFollowsTheManifests(t *testing.T) {
	w := newWorld(t)
	pass(t, w.keeper(t))
	config := w.validating(t)
	ten := int32(10)
	config.Webhooks[0].TimeoutSeconds = &ten
	if err := w.Update(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	w.add(t, "new", "/validate-new")
	served := func(o *Options) { o.Paths["/validate-new"] = true }
	pass(t, w.with(t, func(o *Options) { served(o); o.Elected = make(chan struct{}) }))
	if text := w.validating(t).Annotations["template"]; strings.Contains(text, "new") {
		t.Errorf("a replica that does not lead changed it: %s", text)
	}
	narrowed := func(o *Options) {
		served(o)
		o.Scopes = map[string]configuration.Scope{"new": {Policy: admissionv1.Fail, Conditions: func() ([]admissionv1.MatchCondition, bool) {
			return []admissionv1.MatchCondition{{Name: "n", Expression: "false"}}, true
		}}}
	}
	pass(t, w.with(t, narrowed))
	pass(t, w.with(t, narrowed))
	text := w.validating(t).Annotations["template"]
	for _, part := range []string{`"timeoutSeconds":10`, "/validate-new"} {
		if !strings.Contains(text, part) {
			t.Errorf("annotation: got %s, want %s in it", text, part)
		}
	}
	for _, part := range []string{"matchConditions", "caBundle"} {
		if strings.Contains(text, part) {
			t.Errorf("annotation: got %s, want no %s in it", text, part)
		}
	}
	config = w.validating(t)
	config.Webhooks = nil
	if err := w.Update(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	pass(t, w.with(t, narrowed))
	if after := w.validating(t).Webhooks; len(after) != 2 {
		t.Errorf("entries: got %+v, want 2", after)
	} else if *after[0].TimeoutSeconds != 10 {
		t.Errorf("timeout of the first entry: got %d s, want 10 s", *after[0].TimeoutSeconds)
	}
}

// OPS-045: a configuration that changes under a pass starts the pass again; nothing is overwritten or
// reported as an error.
func TestConfigurationsRaceSafely(t *testing.T) {
	w := newWorld(t)
	k := w.keeper(t)
	pass(t, k)
	config := w.validating(t)
	config.Webhooks[0].ClientConfig.CABundle = nil
	if err := w.Update(context.Background(), config); err != nil {
		t.Fatal(err)
	}
	w.before = func() {
		edited := w.validating(t)
		edited.Labels = map[string]string{"edited": "yes"}
		if err := w.Update(context.Background(), edited); err != nil {
			t.Errorf("the edit of somebody else: %v", err)
		}
	}
	pass(t, k)
	after := w.validating(t)
	if after.Labels["edited"] != "yes" {
		t.Errorf("labels: got %v, want those of the edit", after.Labels)
	}
	if got := after.Webhooks[0].ClientConfig.CABundle; !bytes.Equal(got, k.lastMaterial().bundle()) {
		t.Errorf("trusted authorities: got %s, want those of the keeper", got)
	}
}

// CRR-087: only the leader writes the match conditions and the failurePolicy of an entry whose requests
// depend on what is installed.
func TestOnlyTheLeaderWritesScopes(t *testing.T) {
	w := newWorld(t)
	w.add(t, "all", "/validate-all")
	conditions, known := []admissionv1.MatchCondition{{Name: "none", Expression: "false"}}, true
	policy := admissionv1.Fail
	scoped := func(elected chan struct{}) *Keeper {
		return w.with(t, func(o *Options) {
			o.Paths["/validate-all"], o.Elected = true, elected
			o.Scopes = map[string]configuration.Scope{"all": {Policy: policy,
				Conditions: func() ([]admissionv1.MatchCondition, bool) { return conditions, known }}}
		})
	}
	entry := func() admissionv1.ValidatingWebhook {
		for _, entry := range w.validating(t).Webhooks {
			if entry.Name == "all" {
				return entry
			}
		}
		t.Fatal("the entry has gone")
		return admissionv1.ValidatingWebhook{}
	}
	before := entry()
	pass(t, scoped(make(chan struct{})))
	if got := entry(); len(got.MatchConditions) != 0 {
		t.Errorf("by a replica that does not lead: got conditions %+v, want none", got.MatchConditions)
	} else if !equality.Semantic.DeepEqual(got.FailurePolicy, before.FailurePolicy) {
		t.Errorf("by a replica that does not lead: failure policy %s, want it unchanged", *got.FailurePolicy)
	}
	k := scoped(nil)
	known = false // a manager that starts does not remove the conditions that another has written
	pass(t, k)
	if got := entry(); len(got.MatchConditions) != 0 {
		t.Errorf("before the scope is known: got conditions %+v, want none", got.MatchConditions)
	} else if !equality.Semantic.DeepEqual(got.FailurePolicy, before.FailurePolicy) {
		t.Errorf("before the scope is known: failure policy %s, want it unchanged", *got.FailurePolicy)
	}
	known = true
	for _, expression := range []string{"false", "object.kind == 'x'"} {
		// WS-106: the failurePolicy may also be Ignore
		for _, policy = range []admissionv1.FailurePolicyType{admissionv1.Ignore, admissionv1.Fail} {
			conditions[0].Expression = expression
			pass(t, scoped(nil))
			got := entry()
			if !equality.Semantic.DeepEqual(got.MatchConditions, conditions) {
				t.Errorf("conditions: got %+v, want %+v", got.MatchConditions, conditions)
			}
			if *got.FailurePolicy != policy {
				t.Errorf("failure policy: got %s, want %s", *got.FailurePolicy, policy)
			}
		}
	}
}

// OPS-062: the leader makes a derived entry, a copy of another one, as soon as its scope is known. The copy
// follows changes of the other, and a starting replica is not ready before the copy exists: otherwise it
// would accept rules whose pods are not sent.
func TestDerivedEntriesFollowTheirSource(t *testing.T) {
	s := newWorld(t)
	config, path := s.mutating(t), "/mutate-pod-all"
	config.Webhooks = append(config.Webhooks, admissionv1.MutatingWebhook{Name: "all.kb.io",
		ClientConfig:    admissionv1.WebhookClientConfig{Service: &admissionv1.ServiceReference{Namespace: "sys", Name: "hook", Path: &path}},
		MatchConditions: []admissionv1.MatchCondition{{Name: "asked", Expression: "object.known"}}})
	if err := s.Update(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	known := false
	replica := func(elected chan struct{}) *Keeper {
		return s.with(t, func(o *Options) {
			o.Elected = elected
			o.Paths["/mutate-pod-all"], o.Paths["/mutate-derived"] = true, true
			o.Derived = []configuration.Derived{{Kind: "MutatingWebhookConfiguration", From: "all.kb.io", Name: "derived.kb.io", Path: "/mutate-derived"}}
			o.Scopes = map[string]configuration.Scope{"derived.kb.io": {Policy: admissionv1.Fail,
				Conditions: func() ([]admissionv1.MatchCondition, bool) {
					return []admissionv1.MatchCondition{{Name: "some", Expression: "object.x"}}, known
				}}}
		})
	}
	names := func() string {
		var names []string
		for _, hook := range s.mutating(t).Webhooks {
			names = append(names, hook.Name)
		}
		return strings.Join(names, " ")
	}
	entry := func(name string) (*admissionv1.MutatingWebhookConfiguration, *admissionv1.MutatingWebhook) {
		config := s.mutating(t)
		return config,
			&config.Webhooks[slices.IndexFunc(config.Webhooks, func(hook admissionv1.MutatingWebhook) bool { return hook.Name == name })]
	}
	follower, leader := replica(make(chan struct{})), replica(nil)
	for _, k := range []*Keeper{follower, leader} {
		pass(t, k)
		if strings.Contains(names(), "derived.kb.io") {
			t.Errorf("before it is known: got entries %s, want no derived one", names())
		}
		if err := k.inLine(); err == nil || !strings.Contains(err.Error(), "derived.kb.io") {
			t.Errorf("readiness before it is known: got %v, want an error with derived.kb.io", err)
		}
	}
	known = true
	pass(t, follower)
	if strings.Contains(names(), "derived.kb.io") {
		t.Errorf("by a replica that does not lead: got entries %s, want no derived one", names())
	}
	if follower.inLine() == nil {
		t.Error("a replica that does not lead is ready before the entry is there")
	}
	for range 2 {
		pass(t, leader)
		_, hook := entry("derived.kb.io")
		if !strings.Contains(names(), " derived.kb.io all.kb.io") {
			t.Errorf("entries: got %s, want the derived one right before all.kb.io", names())
		}
		if path := *hook.ClientConfig.Service.Path; path != "/mutate-derived" {
			t.Errorf("path of the derived entry: got %s, want /mutate-derived", path)
		}
		if expression := hook.MatchConditions[0].Expression; expression != "object.x" {
			t.Errorf("condition of the derived entry: got %s, want object.x", expression)
		}
		if *hook.FailurePolicy != admissionv1.Fail {
			t.Errorf("failure policy of the derived entry: got %s, want Fail", *hook.FailurePolicy)
		}
		if err := leader.inLine(); err != nil {
			t.Errorf("readiness of the leader: %v", err)
		}
		config, all := entry("all.kb.io")
		ten := int32(10)
		all.TimeoutSeconds = &ten // the user's
		if err := s.Update(t.Context(), config); err != nil {
			t.Fatal(err)
		}
	}
	pass(t, leader)
	if _, hook := entry("derived.kb.io"); hook.TimeoutSeconds == nil {
		t.Error("the derived entry has no timeout, want 10 s")
	} else if *hook.TimeoutSeconds != 10 {
		t.Errorf("timeout of the derived entry: got %d s, want 10 s", *hook.TimeoutSeconds)
	}
	if text := s.mutating(t).Annotations["template"]; strings.Contains(text, "derived") {
		t.Errorf("annotation: got %s, want no derived entry in it", text)
	}
	known = false // a manager that starts does not remove what another has made
	before := s.mutating(t)
	pass(t, replica(nil))
	if after := s.mutating(t); !equality.Semantic.DeepEqual(before, after) {
		t.Errorf("by a manager that starts: got %+v, want no change of %+v", after, before)
	}
	pass(t, follower)
	if err := follower.inLine(); err != nil {
		t.Errorf("readiness of a replica that does not lead: %v", err)
	}
}

// A changed scope is written at once, also while other changes are collected, and by the leader alone.
func TestScopesAreFollowedAtOnce(t *testing.T) {
	w := newWorld(t)
	w.add(t, "all", "/validate-all")
	var expression atomic.Value
	expression.Store("false")
	rescope := make(chan struct{})
	scoped := func(elected chan struct{}) *Keeper {
		return w.with(t, func(o *Options) {
			o.Paths["/validate-all"], o.Elected, o.Rescope = true, elected, rescope
			o.Scopes = map[string]configuration.Scope{"all": {Policy: admissionv1.Fail, Conditions: func() ([]admissionv1.MatchCondition, bool) {
				return []admissionv1.MatchCondition{{Name: "some", Expression: expression.Load().(string)}}, true
			}}}
		})
	}
	asked := func() string {
		for _, entry := range w.validating(t).Webhooks {
			if entry.Name == "all" && len(entry.MatchConditions) > 0 {
				return entry.MatchConditions[0].Expression
			}
		}
		return ""
	}
	follower := scoped(make(chan struct{}))
	pass(t, follower)
	if !follower.rescope(t.Context()) {
		t.Error("a replica that does not lead wants to rescope again")
	}
	if asked() != "" {
		t.Errorf("by a replica that does not lead: got the condition %s, want none", asked())
	}
	if scoped(nil).rescope(t.Context()) {
		t.Error("before the first pass there is no authority to publish")
	}
	k := scoped(nil)
	ctx, cancel := context.WithCancel(t.Context())
	var ended sync.WaitGroup
	ended.Go(func() {
		if err := k.Start(ctx); err != nil {
			t.Errorf("running the keeper: %v", err)
		}
	})
	defer func() { cancel(); ended.Wait() }()
	eventually(t, "the first pass", func() bool { return asked() == "false" })
	for _, next := range []string{"true", "false", "object.x"} { // the clock stands still
		expression.Store(next)
		rescope <- struct{}{}
		eventually(t, next, func() bool { return asked() == next })
	}
}
