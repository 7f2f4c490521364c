package uniteddeployment

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	jsonpatchapply "github.com/evanphx/json-patch/v5"
	"github.com/google/go-cmp/cmp"

	"github.com/afloat-project/afloat/internal/engine/subset"
)

// defaulted is a document after its defaults.
func defaulted(t *testing.T, given, old string, complete func(Document) (Document, error)) map[string]any {
	t.Helper()
	request := DefaultRequest{New: parsed(t, given), Complete: complete}
	if old != "" {
		request.Old = parsed(t, old)
	}
	operations, err := Default(request)
	if err != nil {
		t.Logf("%v", err)
	}
	text, err := json.Marshal(operations)
	if err != nil {
		t.Fatal(err)
	}
	patch, err := jsonpatchapply.DecodePatch(text)
	if err != nil {
		t.Fatal(err)
	}
	got, err := patch.Apply([]byte(given))
	if err != nil {
		t.Fatalf("applying the patch %s: %v", text, err)
	}
	return parsed(t, string(got))
}

func parsed(t *testing.T, text string) map[string]any {
	t.Helper()
	object, err := subset.Object([]byte(text))
	if err != nil {
		t.Fatalf("reading %s: %v", text, err)
	}
	return object
}

// What is filled in without templates.
func TestDefaults(t *testing.T) {
	const strategy = `"revisionHistoryLimit":10,"updateStrategy":{"type":"Manual","manualUpdate":{}}`
	for name, test := range map[string]struct{ given, want string }{
		"UD-010": {`{}`, `{"replicas":1,` + strategy + `}`},
		"UD-010 what is there stays": {`{"replicas":0,"revisionHistoryLimit":0,"updateStrategy":{"type":"Other"}}`,
			`{"replicas":0,"revisionHistoryLimit":0,"updateStrategy":{"type":"Other"}}`},
		"UD-010 partitions stay": {`{"updateStrategy":{"manualUpdate":{"partitions":{"a":1}}}}`,
			`{"replicas":1,"revisionHistoryLimit":10,"updateStrategy":{"type":"Manual","manualUpdate":{"partitions":{"a":1}}}}`},
		"UD-011, UD-160": {`{"topology":{"subsets":[{"name":"a","replicas":2},{"name":"b","replicas":5}]}}`,
			`{"replicas":7,"topology":{"subsets":[{"name":"a","replicas":2},{"name":"b","replicas":5}]},` + strategy + `}`},
		"UD-011 one has none": {`{"topology":{"subsets":[{"name":"a","replicas":2},{"name":"b"}]}}`,
			`{"replicas":1,"topology":{"subsets":[{"name":"a","replicas":2},{"name":"b"}]},` + strategy + `}`},
		"UD-011 a percentage": {`{"topology":{"subsets":[{"name":"a","replicas":2},{"name":"b","replicas":"50%"}]}}`,
			`{"replicas":1,"topology":{"subsets":[{"name":"a","replicas":2},{"name":"b","replicas":"50%"}]},` + strategy + `}`},
		"UD-012": {`{"topology":{"subsets":[{"name":"a","maxReplicas":2},{"name":"b","minReplicas":1},{"name":"c","minReplicas":null}]}}`,
			`{"replicas":1,"topology":{"subsets":[{"name":"a","maxReplicas":2,"minReplicas":0},{"name":"b","minReplicas":1},{"name":"c","minReplicas":0}]},` + strategy + `}`},
		"UD-012 beside replicas": {`{"topology":{"subsets":[{"name":"a","maxReplicas":2},{"name":"b","replicas":1}]}}`,
			`{"replicas":1,"topology":{"subsets":[{"name":"a","maxReplicas":2},{"name":"b","replicas":1}]},` + strategy + `}`},
		"UD-012 no bounds": {`{"topology":{"subsets":[{"name":"a"}]}}`, `{"replicas":1,"topology":{"subsets":[{"name":"a"}]},` + strategy + `}`},
		"UD-014 (part) not written into the object": {`{"topology":{"scheduleStrategy":{"type":"Adaptive","adaptive":{}}}}`,
			`{"replicas":1,"topology":{"scheduleStrategy":{"type":"Adaptive","adaptive":{}}},` + strategy + `}`},
		"subsets that fit no type": {`{"topology":{"subsets":[{"name":7}]}}`, `{"replicas":1,"topology":{"subsets":[{"name":7}]},` + strategy + `}`},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(parsed(t, `{"spec":`+test.want+`}`), defaulted(t, `{"spec":`+test.given+`}`, "", nil)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	operations, err := Default(DefaultRequest{New: Document{"spec": "x"}})
	if len(operations) > 0 {
		t.Errorf(`defaults of a bad spec: got %v, want none`, operations)
	}
	if err != nil {
		t.Errorf("unexpected error: %v", err)
	}
}

// UD-013: the pod template and the claim templates of StatefulSets of Kubernetes are completed on create, and
// on updates that change the template, as Kubernetes does it; with the gate, and of other kinds, nothing is.
// UD-156 (part): so it is said.
func TestTemplatesAreCompleted(t *testing.T) {
	const claims = `"volumeClaimTemplates":[{"metadata":{"name":"d"},"spec":{}}],`
	written := func(template, more string) string { return `{"spec":{"template":{` + template + `}` + more + `}}` }
	set := in(native, `"spec":{`, `"spec":{`+claims)
	complete := func(template Document) (Document, error) { //nolint:unparam // as requests have it
		answer := parsed(t, encode(t, template))
		answer["spec"].(Document)["dnsPolicy"] = "ClusterFirst"
		answer["spec"].(Document)["containers"].([]any)[0].(Document)["imagePullPolicy"] = "IfNotPresent"
		return answer, nil
	}
	completed := in(in(in(set, `"nginx"`, `"redis","imagePullPolicy":"IfNotPresent"`), `"spec":{"containers"`, `"spec":{"dnsPolicy":"ClusterFirst","containers"`),
		`"name":"d"},"spec":{`, `"name":"d"},"spec":{"volumeMode":"Filesystem"`)
	for name, test := range map[string]struct {
		given, old string
		gate, want bool
	}{
		"created":                          {written(set, ""), "", false, true},
		"created, with the gate":           {written(set, ""), "", true, false},
		"the template changes":             {written(set, ""), written(completed, ""), false, true},
		"the rest of the spec changes":     {written(set, `,"replicas":3`), written(set, `,"replicas":2`), false, false},
		"the template is of this kind now": {written(set, ""), written(deployment, ""), false, true},
		"our StatefulSet":                  {written(advanced, ""), "", false, false},
		"a CloneSet":                       {written(cloned4, ""), "", false, false},
		"a Deployment":                     {written(deployment, ""), "", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			asked := complete
			if test.gate {
				asked = nil
			}
			got := defaulted(t, test.given, test.old, asked)
			template, want := got["spec"].(Document)["template"], parsed(t, test.given)["spec"].(Document)["template"]
			if test.want {
				spec := within(want.(Document), string(StatefulSet), "spec")
				spec["volumeClaimTemplates"].([]any)[0].(Document)["spec"].(Document)["volumeMode"] = "Filesystem"
				pod := within(spec, "template", "spec")
				pod["dnsPolicy"] = "ClusterFirst"
				pod["containers"].([]any)[0].(Document)["imagePullPolicy"] = "IfNotPresent"
			}
			if diff := cmp.Diff(want, template); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	// Without an answer, what is stored stays.
	stored := in(set, `"spec":{"containers"`, `"spec":{"dnsPolicy":"Default","containers"`)
	got := defaulted(t, written(in(set, `"nginx"`, `"redis"`), ""), written(stored, ""),
		func(Document) (Document, error) { return nil, errors.New("no answer") })
	if _, ok := within(got, "spec", "template", string(StatefulSet), "spec", "template", "spec")["dnsPolicy"]; ok {
		t.Error("a value that is no default of the API server came from the stored template")
	}
}

func encode(t *testing.T, value any) string {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// UD-161 (part): who applies a manifest of the old form again, with another value, changes the value. What an
// update changes in the new place stands.
func TestAManifestOfTheOldFormAppliedAgain(t *testing.T) {
	spec := func(strategy, scale string) string {
		return `{"spec":{"template":{"cloneSetTemplate":{"spec":{"updateStrategy":` + strategy + `,"scaleStrategy":` + scale + `}}}}}`
	}
	stored := spec(`{"type":"RollingUpdate","rollingUpdate":{"podUpdatePolicy":"ReCreate","maxUnavailable":1}}`, `{"enablePVCReuse":true}`)
	for name, test := range map[string]struct{ given, want string }{
		"another value": {spec(`{"type":"InPlaceOnly","maxUnavailable":2,"rollingUpdate":{"podUpdatePolicy":"ReCreate","maxUnavailable":1}}`, `{"disablePVCReuse":true,"enablePVCReuse":true}`),
			spec(`{"type":"InPlaceOnly","maxUnavailable":2,"rollingUpdate":{"podUpdatePolicy":"InPlaceOnly","maxUnavailable":2}}`, `{"disablePVCReuse":true,"enablePVCReuse":false}`)},
		"the same":                   {spec(`{"type":"ReCreate","maxUnavailable":1,"rollingUpdate":{"podUpdatePolicy":"ReCreate","maxUnavailable":1}}`, `{"enablePVCReuse":true}`), ""},
		"the new place changes, too": {spec(`{"type":"ReCreate","maxUnavailable":2,"rollingUpdate":{"podUpdatePolicy":"ReCreate","maxUnavailable":3}}`, `{"enablePVCReuse":true}`), ""},
	} {
		t.Run(name, func(t *testing.T) {
			if test.want == "" {
				test.want = test.given
			}
			got := defaulted(t, test.given, stored, nil)["spec"].(Document)["template"]
			if diff := cmp.Diff(parsed(t, test.want)["spec"].(Document)["template"], got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if strings.Contains(encode(t, defaulted(t, test.given, "", nil)), `"podUpdatePolicy":"InPlaceOnly"`) {
				t.Error("a new object is changed")
			}
		})
	}
}
