package daemonset_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	jsonpatchapply "gopkg.in/evanphx/json-patch.v4"

	"github.com/afloat-project/afloat/internal/kinds/daemonset"
)

func document(t *testing.T, text string) daemonset.Document {
	t.Helper()
	var doc daemonset.Document
	if err := json.Unmarshal([]byte(text), &doc); err != nil {
		t.Fatalf("reading %s: %v", text, err)
	}
	return doc
}

func mustJSON(t *testing.T, value any) string {
	t.Helper()
	data, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// completed applies the patch that Default makes, as the API server would. It checks that the request stays
// as it was, and that a completed object needs nothing more.
func completed(t *testing.T, r daemonset.DefaultRequest) daemonset.Document {
	t.Helper()
	before := mustJSON(t, r.New)
	operations := daemonset.Default(r)
	if diff := cmp.Diff(before, mustJSON(t, r.New)); diff != "" {
		t.Errorf("the request was modified:\n%s", diff)
	}
	if len(operations) == 0 {
		return r.New
	}
	patch, err := jsonpatchapply.DecodePatch([]byte(mustJSON(t, operations)))
	if err != nil {
		t.Fatal(err)
	}
	after, err := patch.Apply([]byte(before))
	if err != nil {
		t.Fatalf("applying %v: %v", operations, err)
	}
	r.New = document(t, string(after))
	if more := daemonset.Default(r); len(more) > 0 {
		t.Errorf("defaults are not stable: %v", more)
	}
	return r.New
}

const (
	numbers = `"burstReplicas":250,"revisionHistoryLimit":10`
	plain   = numbers + `,"updateStrategy":{"type":"RollingUpdate","rollingUpdate":{"rollingUpdateType":"Standard","maxUnavailable":1,"maxSurge":0}}`
)

func TestDefaults(t *testing.T) {
	rolling := func(members string) string {
		return `{"spec":{` + numbers + `,"updateStrategy":{"type":"RollingUpdate","rollingUpdate":{` + members + `}}}}`
	}
	const template = `"template":{"spec":{"hostNetwork":true,"containers":[{"name":"a","ports":[{"containerPort":80}]}]}}`
	surge := rolling(`"rollingUpdateType":"Standard","maxUnavailable":0,"maxSurge":1`)
	cases := map[string]struct{ version, given, want string }{ // no version stands for both
		"ADS-012, ADS-013 nothing given": {"", `{"spec":{"future":1}}`, `{"spec":{"future":1,` + plain + `}}`},
		"ADS-012 an empty type":          {"", `{"spec":{"updateStrategy":{"type":""}}}`, `{"spec":{` + plain + `}}`},
		"ADS-013 OnDelete gets no rollingUpdate": {"", `{"spec":{"updateStrategy":{"type":"OnDelete"}}}`,
			`{"spec":{` + numbers + `,"updateStrategy":{"type":"OnDelete"}}}`},
		"ADS-013 OnDelete keeps its rollingUpdate": {"", `{"spec":{"updateStrategy":{"type":"OnDelete","rollingUpdate":{"partition":1}}}}`,
			`{"spec":{` + numbers + `,"updateStrategy":{"type":"OnDelete","rollingUpdate":{"partition":1}}}}`},
		"ADS-013 what is given stays": {"",
			`{"spec":{"burstReplicas":"5%","revisionHistoryLimit":0,"updateStrategy":{"rollingUpdate":{"rollingUpdateType":"InPlaceIfPossible","maxUnavailable":"20%","partition":3,"future":{}}}}}`,
			`{"spec":{"burstReplicas":"5%","revisionHistoryLimit":0,"updateStrategy":{"type":"RollingUpdate","rollingUpdate":{"rollingUpdateType":"InPlaceIfPossible","maxUnavailable":"20%","partition":3,"future":{}}}}}`},
		"ADS-013 only maxUnavailable": {"", rolling(`"maxUnavailable":0`), rolling(`"rollingUpdateType":"Standard","maxUnavailable":0`)},
		"ADS-013 only maxSurge":       {"", rolling(`"maxSurge":1`), rolling(`"rollingUpdateType":"Standard","maxSurge":1`)},
		"ADS-013 a maxSurge of 0 alone": {"", rolling(`"maxSurge":0`),
			rolling(`"rollingUpdateType":"Standard","maxSurge":0,"maxUnavailable":1`)},
		"ADS-013 a maxSurge of 0 % alone": {"", rolling(`"rollingUpdateType":"InPlaceIfPossible","maxSurge":"0%"`),
			rolling(`"rollingUpdateType":"InPlaceIfPossible","maxSurge":"0%","maxUnavailable":1`)},
		"ADS-013 a malformed maxSurge alone": {"", rolling(`"maxSurge":"abc"`), rolling(`"rollingUpdateType":"Standard","maxSurge":"abc"`)},
		"ADS-013 neither":                    {"", rolling(`"paused":true`), rolling(`"paused":true,"rollingUpdateType":"Standard","maxUnavailable":1,"maxSurge":0`)},
		"ADS-014 Surging":                    {"v1alpha1", rolling(`"rollingUpdateType":"Surging"`), surge},
		"ADS-014 with a maxSurge": {"v1alpha1", rolling(`"rollingUpdateType":"Surging","maxSurge":"10%"`),
			rolling(`"rollingUpdateType":"Standard","maxUnavailable":0,"maxSurge":"10%"`)},
		"ADS-014 with a maxUnavailable of 0": {"v1alpha1", rolling(`"rollingUpdateType":"Surging","maxUnavailable":"0%"`),
			rolling(`"rollingUpdateType":"Standard","maxUnavailable":"0%","maxSurge":1`)},
		"ADS-014 with another maxUnavailable": {"v1alpha1", rolling(`"rollingUpdateType":"Surging","maxUnavailable":2`),
			rolling(`"rollingUpdateType":"Surging","maxUnavailable":2`)},
		"Surging in v1beta1 is left to validation": {"v1beta1", rolling(`"rollingUpdateType":"Surging","maxSurge":1`),
			rolling(`"rollingUpdateType":"Surging","maxSurge":1`)},
		"ADS-015 the template stays": {"", `{"spec":{` + template + `}}`, `{"spec":{` + template + `,` + plain + `}}`},
		"no spec":                    {"", `{"metadata":{}}`, `{"metadata":{}}`},
		"not objects":                {"", `{"spec":{` + numbers + `,"updateStrategy":5}}`, `{"spec":{` + numbers + `,"updateStrategy":5}}`},
	}
	for name, test := range cases {
		for _, version := range []string{"v1alpha1", "v1beta1"} {
			if test.version != "" && test.version != version {
				continue
			}
			t.Run(name+" "+version, func(t *testing.T) {
				got := completed(t, daemonset.DefaultRequest{Version: version, New: document(t, test.given)})
				if diff := cmp.Diff(document(t, test.want), got); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			})
		}
	}
}
