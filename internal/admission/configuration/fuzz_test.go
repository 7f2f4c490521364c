package configuration

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	testclock "k8s.io/utils/clock/testing"

	"github.com/afloat-project/afloat/internal/fuzzing"
	"github.com/afloat-project/afloat/internal/platform/matchconditions"
)

// FuzzWebhooks: whatever is in a webhook configuration and in the annotations that managers keep in it, it is
// brought in line once, and a second time changes nothing. Each name has one entry, entries that call others
// stay as they are, and of the conditions that the manager makes none is written that could fail. The pods of
// recent rules and all others have one entry each.
func FuzzWebhooks(f *testing.F) {
	const seed = `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"MutatingWebhookConfiguration","metadata":{"name":"hooks","annotations":{}},"webhooks":[` +
		`{"name":"all.kb.io","failurePolicy":"Fail","clientConfig":{"service":{"namespace":"sys","name":"hook","path":"/all"}},"matchConditions":[{"name":"a","expression":"true"}]},` +
		`{"name":"other.kb.io","clientConfig":{"url":"https://other.example.com/x"}},{"name":"off.kb.io","clientConfig":{"service":{"path":"/off"}}}]}`
	const template = `[{"name":"all.kb.io","clientConfig":{"service":{"path":"/all"}}},{"name":"lost.kb.io","clientConfig":{"url":"https://hook/all"}},5,null]`
	const recent = `[{"expression":"has(object.metadata.labels)","at":"2026-01-02T03:04:05Z","token":"abc"}]`
	for _, changes := range []string{"", "\x03\x01\x02\x00\x01", "entries of other managers"} {
		f.Add(seed, template, recent, []byte(changes), []byte{}, true)
		f.Add(seed, "", `[{"expression":"true"}]`, []byte(changes), []byte{}, false)
		f.Add(seed, `[{"clientConfig":{"service":{"path":"/all"}}}]`, "[]", []byte(changes), []byte{}, true)
		f.Add(seed, "null", "[]", []byte{}, []byte(changes), true)
	}
	checker, err := matchconditions.NewChecker()
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text, template, recent string, changes, kept []byte, leads bool) {
		object := &unstructured.Unstructured{}
		if object.UnmarshalJSON([]byte(fuzzing.Edit(text, changes, "name", "clientConfig", "service", "path", "url", "matchConditions", "expression", "webhooks"))) != nil {
			return
		}
		typed, names := &admissionv1.MutatingWebhookConfiguration{}, map[string]bool{"": true}
		if json.Unmarshal([]byte(fuzzing.JSON(object)), typed) != nil || slices.ContainsFunc(typed.Webhooks, func(w admissionv1.MutatingWebhook) bool {
			again := names[w.Name]
			names[w.Name] = true
			return again
		}) {
			return // no API server has it
		}
		if err := object.UnmarshalJSON([]byte(fuzzing.JSON(typed))); err != nil {
			return
		}
		object.SetKind(mutatingKind.Kind)
		list := func(text string) string { // an array within an object, so that it can be edited
			edited, _ := fuzzing.Value(fuzzing.Edit(`{"list":`+text+`}`, kept, "name", "clientConfig", "expression", "token", "at")).(map[string]any)
			return fuzzing.JSON(edited["list"])
		}
		object.SetAnnotations(map[string]string{templateAnnotation: list(template), recentAnnotation: list(recent)})

		elected := make(chan struct{})
		if leads {
			close(elected)
		}
		narrowed := func() ([]admissionv1.MatchCondition, bool) {
			return []admissionv1.MatchCondition{{Name: "good", Expression: matchconditions.Within([]string{"shop"})}, {Name: "bad", Expression: "object.nothing"}}, true
		}
		p := New(nil, testclock.NewFakeClock(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)), Options{Paths: map[string]bool{"/all": true, "/recent": true, "/derived": true, "/off": false},
			Scopes:  map[string]Scope{"all.kb.io": {Conditions: narrowed, Policy: admissionv1.Fail}, "derived.kb.io": {Conditions: narrowed, Policy: admissionv1.Ignore}},
			Derived: []Derived{{Kind: mutatingKind.Kind, From: "all.kb.io", Name: "derived.kb.io", Path: "/derived"}}, Check: checker.Check, Elected: elected,
			Recent: &Recent{Of: "all.kb.io", Name: "recent.kb.io", Path: "/recent"}, Target: Target{Namespace: "sys", Service: "hook"}})
		entriesOf := func(object *unstructured.Unstructured) map[string]map[string]any {
			entries := map[string]map[string]any{}
			all, _, _ := unstructured.NestedSlice(object.Object, "webhooks")
			for _, item := range all {
				entry, _ := item.(map[string]any)
				if name, _ := entry["name"].(string); entries[name] == nil {
					entries[name] = entry
				}
			}
			return entries
		}
		before := object.DeepCopy()
		for round := range 3 {
			was := fuzzing.JSON(object)
			fields, err := p.webhooks(object.DeepCopy(), []byte("CA"), &Report{})
			if err != nil {
				return
			}
			for pointer, value := range fields {
				object.Object = object.DeepCopy().Object
				if err := unstructured.SetNestedField(object.Object, value, strings.Split(strings.TrimPrefix(pointer, "/"), "/")...); err != nil {
					t.Fatalf("%s cannot be set in %s: %v", pointer, was, err)
				}
			}
			if is := fuzzing.JSON(object); round == 2 && is != was {
				t.Errorf("%s\nis brought in line again\nfrom %s\nto   %s", fuzzing.JSON(before), was, is)
			}
		}

		all, _, _ := unstructured.NestedSlice(object.Object, "webhooks")
		old, is := entriesOf(before), entriesOf(object)
		if len(is) != len(all) || is[""] != nil {
			t.Errorf("%s became %s", fuzzing.JSON(before), fuzzing.JSON(object))
		}
		for name, entry := range old {
			if _, known := p.Paths[pathOf(entry)]; !known && entry != nil && name != "recent.kb.io" && name != "derived.kb.io" && name != "all.kb.io" &&
				fuzzing.JSON(entry) != fuzzing.JSON(is[name]) {
				t.Errorf("entry %s of others became %s", fuzzing.JSON(entry), fuzzing.JSON(is[name]))
			}
		}
		if leads && is["all.kb.io"] != nil && p.Paths[pathOf(is["all.kb.io"])] {
			conditions, _, _ := unstructured.NestedSlice(is["all.kb.io"], "matchConditions")
			if slices.ContainsFunc(conditions, named("bad")) || !slices.ContainsFunc(conditions, named("good")) || is["derived.kb.io"] == nil {
				t.Errorf("%s became %s", fuzzing.JSON(before), fuzzing.JSON(object))
			}
		}
	})
}
