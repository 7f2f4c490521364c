package cloneset

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"gomodules.xyz/jsonpatch/v2"
	jsonpatchapply "gopkg.in/evanphx/json-patch.v4"
)

func document(t *testing.T, text string) Document {
	t.Helper()
	var doc Document
	if err := json.Unmarshal([]byte(text), &doc); err != nil {
		t.Fatalf("reading %s: %v", text, err)
	}
	return doc
}

// completed applies the patch that Default makes, as the API server would.
func completed(t *testing.T, r DefaultRequest) Document {
	t.Helper()
	before, err := json.Marshal(r.New)
	if err != nil {
		t.Fatal(err)
	}
	operations, err := Default(r)
	if err != nil {
		t.Fatal(err)
	}
	after := patched(t, r.New, operations)
	if diff := cmp.Diff(string(before), mustJSON(t, r.New)); diff != "" {
		t.Errorf("the request was modified:\n%s", diff)
	}
	again := r
	again.New = after
	if more, err := Default(again); err != nil {
		t.Errorf("defaults are not stable: unexpected error: %v\n%v", err, more)
	} else if len(more) > 0 {
		t.Errorf("defaults are not stable: defaults the second time: got %v, want none\n%v", more, err)
	}
	return again.New
}

// patched returns the document with the operations applied, as the API server would.
func patched(t *testing.T, doc Document, operations []jsonpatch.Operation) Document {
	t.Helper()
	if len(operations) == 0 {
		return doc
	}
	patch, err := jsonpatchapply.DecodePatch([]byte(mustJSON(t, operations)))
	if err != nil {
		t.Fatal(err)
	}
	after, err := patch.Apply([]byte(mustJSON(t, doc)))
	if err != nil {
		t.Fatalf("applying %v: %v", operations, err)
	}
	return document(t, string(after))
}

func mustJSON(t *testing.T, value any) string {
	t.Helper()
	data, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestStrategiesGetTheirDefaults(t *testing.T) {
	cases := map[string]struct{ version, given, want string }{
		"CS-010, CS-011 v1beta1, nothing given": {"v1beta1", `{"spec":{"x":1}}`,
			`{"spec":{"x":1,"replicas":1,"revisionHistoryLimit":10,"updateStrategy":{"type":"RollingUpdate","rollingUpdate":{"podUpdatePolicy":"ReCreate","partition":0,"maxUnavailable":"20%","maxSurge":0}}}}`},
		"CS-011 v1beta1, in place": {"v1beta1", `{"spec":{"replicas":0,"revisionHistoryLimit":0,"updateStrategy":{"rollingUpdate":{"podUpdatePolicy":"InPlaceIfPossible","maxSurge":1,"future":{}}}}}`,
			`{"spec":{"replicas":0,"revisionHistoryLimit":0,"updateStrategy":{"type":"RollingUpdate","rollingUpdate":{"podUpdatePolicy":"InPlaceIfPossible","partition":0,"maxUnavailable":"20%","maxSurge":1,"inPlaceUpdateStrategy":{},"future":{}}}}}`},
		"CS-011 v1beta1, OnDelete": {"v1beta1", `{"spec":{"replicas":2,"revisionHistoryLimit":3,"updateStrategy":{"type":"OnDelete","rollingUpdate":{"maxSurge":1}}}}`,
			`{"spec":{"replicas":2,"revisionHistoryLimit":3,"updateStrategy":{"type":"OnDelete","rollingUpdate":{"maxSurge":1}}}}`},
		"CS-012 v1alpha1, nothing given": {"v1alpha1", `{"spec":{"updateStrategy":null}}`,
			`{"spec":{"replicas":1,"revisionHistoryLimit":10,"updateStrategy":{"type":"ReCreate","partition":0,"maxUnavailable":"20%","maxSurge":0}}}`},
		"CS-012, IPU-014 v1alpha1, in place": {"v1alpha1",
			`{"spec":{"replicas":1,"revisionHistoryLimit":10,"updateStrategy":{"type":"InPlaceOnly","partition":"5%","inPlaceUpdateStrategy":{"gracePeriodSeconds":3}}}}`,
			`{"spec":{"replicas":1,"revisionHistoryLimit":10,"updateStrategy":{"type":"InPlaceOnly","partition":"5%","maxUnavailable":"20%","maxSurge":0,"inPlaceUpdateStrategy":{"gracePeriodSeconds":3}}}}`},
		"CS-012 v1alpha1, OnDelete": {"v1alpha1", `{"spec":{"replicas":1,"revisionHistoryLimit":10,"updateStrategy":{"type":"OnDelete"}}}`,
			`{"spec":{"replicas":1,"revisionHistoryLimit":10,"updateStrategy":{"type":"OnDelete","partition":0,"maxUnavailable":"20%","maxSurge":0}}}`},
		"no spec": {"v1beta1", `{"metadata":{}}`, `{"metadata":{}}`},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			got := completed(t, DefaultRequest{Version: test.version, New: document(t, test.given)})
			if diff := cmp.Diff(document(t, test.want), got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
