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
		t.Errorf("a replica that starts: %v", err)
	}
	w.clock.Step(unservedGrace - time.Second)
	pass(t, old)
	if err := old.inLine(); err != nil {
		t.Errorf("before two minutes: %v", err)
	}
	w.clock.Step(time.Second)
	if err := old.inLine(); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("after two minutes: %v", err)
	}
	config := w.validating(t)
	config.Webhooks = config.Webhooks[:1]
	if err := w.Update(context.Background(), config); err != nil {
		t.Fatal(err)
	}
	pass(t, old)
	pass(t, starting)
	if old.inLine() != nil || starting.inLine() != nil || testutil.CollectAndCount(old.Metric()) != 0 {
		t.Errorf("after the entry went: %v, %v", old.inLine(), starting.inLine())
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
		t.Errorf("annotation: %s", text)
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
		o.Scopes = map[string]Scope{"new": {Policy: admissionv1.Fail, Conditions: func() ([]admissionv1.MatchCondition, bool) {
			return []admissionv1.MatchCondition{{Name: "n", Expression: "false"}}, true
		}}}
	}
	pass(t, w.with(t, narrowed))
	pass(t, w.with(t, narrowed))
	if text := w.validating(t).Annotations["template"]; !strings.Contains(text, `"timeoutSeconds":10`) ||
		!strings.Contains(text, "/validate-new") ||
		strings.Contains(text, "matchConditions") || strings.Contains(text, "caBundle") {
		t.Errorf("annotation: %s", text)
	}
	config = w.validating(t)
	config.Webhooks = nil
	if err := w.Update(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	pass(t, w.with(t, narrowed))
	if after := w.validating(t).Webhooks; len(after) != 2 || *after[0].TimeoutSeconds != 10 {
		t.Errorf("%+v", after)
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
			t.Error(err)
		}
	}
	pass(t, k)
	if after := w.validating(t); after.Labels["edited"] != "yes" ||
		!bytes.Equal(after.Webhooks[0].ClientConfig.CABundle, k.lastMaterial().bundle()) {
		t.Errorf("%+v", after)
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
			o.Scopes = map[string]Scope{"all": {Policy: policy,
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
	if got := entry(); len(got.MatchConditions) != 0 || !equality.Semantic.DeepEqual(got.FailurePolicy, before.FailurePolicy) {
		t.Errorf("by a replica that does not lead: %+v", got)
	}
	k := scoped(nil)
	known = false // a manager that starts does not remove the conditions that another has written
	pass(t, k)
	if got := entry(); len(got.MatchConditions) != 0 || !equality.Semantic.DeepEqual(got.FailurePolicy, before.FailurePolicy) {
		t.Errorf("before the scope is known: %+v", got)
	}
	known = true
	for _, expression := range []string{"false", "object.kind == 'x'"} {
		// WS-106: the failurePolicy may also be Ignore
		for _, policy = range []admissionv1.FailurePolicyType{admissionv1.Ignore, admissionv1.Fail} {
			conditions[0].Expression = expression
			pass(t, scoped(nil))
			if got := entry(); !equality.Semantic.DeepEqual(got.MatchConditions, conditions) || *got.FailurePolicy != policy {
				t.Errorf("%+v", got)
			}
		}
	}
}

// OPS-062: the leader makes a derived entry, a copy of another one, as soon as its scope is known. The copy
// follows changes of the other, and a starting replica is not ready before the copy exists: otherwise it
// would accept rules whose pods are not sent.
func TestDerivedEntriesFollowTheirSource(t *testing.T) {
	s := newSender(t)
	known := false
	replica := func(elected chan struct{}) *Keeper {
		return s.with(t, func(o *Options) {
			o.Elected = elected
			o.Paths["/mutate-pod-all"], o.Paths["/mutate-derived"] = true, true
			o.Derived = []Derived{{Kind: "MutatingWebhookConfiguration", From: "all.kb.io", Name: "derived.kb.io", Path: "/mutate-derived"}}
			o.Scopes = map[string]Scope{"derived.kb.io": {Policy: admissionv1.Fail,
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
		if err := k.inLine(); strings.Contains(names(), "derived.kb.io") || err == nil || !strings.Contains(err.Error(), "derived.kb.io") {
			t.Errorf("before it is known: %s, ready: %v", names(), err)
		}
	}
	known = true
	pass(t, follower)
	if strings.Contains(names(), "derived.kb.io") || follower.inLine() == nil {
		t.Errorf("by a replica that does not lead: %s", names())
	}
	for range 2 {
		pass(t, leader)
		_, hook := entry("derived.kb.io")
		if !strings.Contains(names(), " derived.kb.io all.kb.io") || *hook.ClientConfig.Service.Path != "/mutate-derived" ||
			hook.MatchConditions[0].Expression != "object.x" ||
			*hook.FailurePolicy != admissionv1.Fail || leader.inLine() != nil {
			t.Errorf("%s %v", names(), leader.inLine())
		}
		config, all := entry("all.kb.io")
		ten := int32(10)
		all.TimeoutSeconds = &ten // the user's
		if err := s.Update(t.Context(), config); err != nil {
			t.Fatal(err)
		}
	}
	pass(t, leader)
	if _, hook := entry("derived.kb.io"); hook.TimeoutSeconds == nil || *hook.TimeoutSeconds != 10 ||
		strings.Contains(s.mutating(t).Annotations["template"], "derived") {
		t.Errorf("%+v", hook)
	}
	known = false // a manager that starts does not remove what another has made
	before := s.mutating(t)
	pass(t, replica(nil))
	if after := s.mutating(t); !equality.Semantic.DeepEqual(before, after) {
		t.Errorf("%+v", after)
	}
	pass(t, follower)
	if err := follower.inLine(); err != nil {
		t.Error(err)
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
			o.Scopes = map[string]Scope{"all": {Policy: admissionv1.Fail, Conditions: func() ([]admissionv1.MatchCondition, bool) {
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
	if !follower.rescope(t.Context()) || asked() != "" {
		t.Errorf("by a replica that does not lead: %s", asked())
	}
	if scoped(nil).rescope(t.Context()) {
		t.Error("before the first pass there is no authority to publish")
	}
	k := scoped(nil)
	ctx, cancel := context.WithCancel(t.Context())
	var ended sync.WaitGroup
	ended.Go(func() {
		if err := k.Start(ctx); err != nil {
			t.Error(err)
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
