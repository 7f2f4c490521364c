package statefulset

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	jsonpatchapply "gopkg.in/evanphx/json-patch.v4"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/podtemplate"
)

func document(t *testing.T, text string) Document {
	t.Helper()
	var doc Document
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
func completed(t *testing.T, r DefaultRequest) string {
	t.Helper()
	before := mustJSON(t, r.New)
	operations, err := Default(r)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, mustJSON(t, r.New)); diff != "" {
		t.Errorf("the request was modified:\n%s", diff)
	}
	if len(operations) == 0 {
		return before
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
	if more, err := Default(r); err != nil {
		t.Errorf("defaults are not stable: unexpected error: %v\n%v", err, more)
	} else if len(more) > 0 {
		t.Errorf("defaults are not stable: defaults: got %v, want none\n%v", more, err)
	}
	return mustJSON(t, r.New)
}

const (
	rolling = `"type":"RollingUpdate","rollingUpdate":{"partition":0,"maxUnavailable":1,"podUpdatePolicy":"ReCreate","minReadySeconds":0}`
	plain   = `"replicas":1,"revisionHistoryLimit":10,"podManagementPolicy":"OrderedReady","updateStrategy":{` + rolling + `}`
)

func TestDefaults(t *testing.T) {
	cases := map[string]struct {
		version, given, want string
		gates                Gates
	}{
		"ASTS-014, ASTS-015, ASTS-016 nothing given": {"v1beta1", `{"spec":{"future":1}}`, `{"spec":{"future":1,` + plain + `}}`, Gates{}},
		"ASTS-015 OnDelete gets no rollingUpdate": {"v1beta1", `{"spec":{"updateStrategy":{"type":"OnDelete"}}}`,
			`{"spec":{"replicas":1,"revisionHistoryLimit":10,"podManagementPolicy":"OrderedReady","updateStrategy":{"type":"OnDelete"}}}`, Gates{}},
		"ASTS-015 what is given stays, whether or not the type is": {"v1beta1",
			`{"spec":{"replicas":0,"revisionHistoryLimit":0,"podManagementPolicy":"Parallel","updateStrategy":{"rollingUpdate":{"partition":2,"maxUnavailable":"20%","podUpdatePolicy":"InPlaceOnly","minReadySeconds":7,"paused":true,"future":{}}}}}`,
			`{"spec":{"replicas":0,"revisionHistoryLimit":0,"podManagementPolicy":"Parallel","updateStrategy":{"type":"RollingUpdate","rollingUpdate":{"partition":2,"maxUnavailable":"20%","podUpdatePolicy":"InPlaceOnly","minReadySeconds":7,"paused":true,"future":{}}}}}`, Gates{}},
		"ASTS-017, ASTS-018 with the gates": {"v1beta1", `{"spec":{}}`,
			`{"spec":{` + plain + `,"persistentVolumeClaimRetentionPolicy":{"whenDeleted":"Retain","whenScaled":"Retain"},"volumeClaimUpdateStrategy":{"type":"OnDelete"}}}`,
			Gates{AutoDeletePVC: true, AutoResizePVC: true}},
		"ASTS-017, ASTS-018 empty members": {"v1beta1",
			`{"spec":{"persistentVolumeClaimRetentionPolicy":{"whenDeleted":"Delete"},"volumeClaimUpdateStrategy":{"type":""}}}`,
			`{"spec":{` + plain + `,"persistentVolumeClaimRetentionPolicy":{"whenDeleted":"Delete","whenScaled":"Retain"},"volumeClaimUpdateStrategy":{"type":"OnDelete"}}}`,
			Gates{AutoDeletePVC: true, AutoResizePVC: true}},
		"ASTS-017, ASTS-018 without the gates": {"v1beta1",
			`{"spec":{"persistentVolumeClaimRetentionPolicy":{"whenDeleted":"Delete"},"volumeClaimUpdateStrategy":{}}}`,
			`{"spec":{` + plain + `,"persistentVolumeClaimRetentionPolicy":{"whenDeleted":"Delete"},"volumeClaimUpdateStrategy":{}}}`, Gates{}},
		"v1alpha1, an annotation that cannot be read": {"v1alpha1",
			`{"metadata":{"annotations":{"apps.kruise.io/v1beta1-only-fields":"[]"}},"spec":{}}`,
			`{"metadata":{"annotations":{"apps.kruise.io/v1beta1-only-fields":"[]"}},"spec":{` + plain + `}}`, Gates{AutoDeletePVC: true}},
		"v1alpha1, numbers in the annotation stay": {"v1alpha1",
			`{"metadata":{"annotations":{"apps.kruise.io/v1beta1-only-fields":"{\"future\":12345678901234567890}"}},"spec":{}}`,
			`{"metadata":{"annotations":{"apps.kruise.io/v1beta1-only-fields":"{\"future\":12345678901234567890,\"volumeClaimUpdateStrategy\":{\"type\":\"OnDelete\"}}"}},"spec":{` + plain + `}}`,
			Gates{AutoResizePVC: true}},
		"no spec": {"v1beta1", `{"metadata":{}}`, `{"metadata":{}}`, Gates{AutoDeletePVC: true}},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			got := completed(t, DefaultRequest{Gates: test.gates, Version: test.version, New: document(t, test.given)})
			if diff := cmp.Diff(document(t, test.want), document(t, got)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// ASTS-023: an object gets the same defaults in both versions, also those of fields that stand in an
// annotation in v1alpha1.
func TestDefaultsAreTheSameInBothVersions(t *testing.T) {
	for _, gates := range []Gates{{}, {AutoDeletePVC: true}, {AutoResizePVC: true}, {AutoDeletePVC: true, AutoResizePVC: true}} {
		for _, given := range []string{`{"metadata":{"name":"a"},"spec":{"serviceName":"a"}}`,
			`{"metadata":{"annotations":{"a/b":"c"}},"spec":{"replicas":3}}`,
			`{"spec":{"reserveOrdinals":[1],"persistentVolumeClaimRetentionPolicy":{"whenScaled":"Delete"},"updateStrategy":{"type":"OnDelete"}}}`,
			`{"spec":{"volumeClaimUpdateStrategy":{"type":"OnPodRollingUpdate"},"updateStrategy":{"rollingUpdate":{"paused":true}}}}`} {
			beta, alpha, converted := &appsv1beta1.StatefulSet{}, &appsv1beta1.StatefulSet{}, &appsv1alpha1.StatefulSet{}
			if err := json.Unmarshal([]byte(given), alpha); err != nil {
				t.Fatal(err)
			}
			inAlpha := document(t, mustJSON(t, appsv1alpha1.StatefulSetFromV1beta1(alpha)))
			if err := json.Unmarshal([]byte(completed(t, DefaultRequest{Gates: gates, Version: "v1alpha1", New: inAlpha})),
				converted); err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal([]byte(completed(t, DefaultRequest{Gates: gates, Version: "v1beta1", New: document(t, given)})),
				beta); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(mustJSON(t, beta), mustJSON(t, converted.ToV1beta1())); diff != "" {
				t.Errorf("%+v, %s (-v1beta1 +v1alpha1):\n%s", gates, given, diff)
			}
		}
	}
}

// ASTS-019 (part), ASTS-021: templates are completed as those of other workloads.
func TestTemplatesAreCompleted(t *testing.T) {
	given := document(t, `{"spec":{"template":{"spec":{"hostNetwork":true,"containers":[{"name":"a","ports":[{"containerPort":80}]}]}},"volumeClaimTemplates":[{"metadata":{"name":"d"},"spec":{}}]}}`)
	away := func(Document) (Document, error) { return nil, errors.New("server is away") }
	for _, hostPorts := range []bool{false, true} {
		operations, err := Default(DefaultRequest{Request: podtemplate.Request{Complete: away, HostPorts: hostPorts}, Version: "v1beta1",
			New: given})
		paths := map[string]bool{}
		for _, op := range operations {
			paths[op.Path] = true
		}
		if err == nil {
			t.Errorf("%v: error: got nil, want an error", paths)
		} else if paths["/spec/template/spec/containers/0/ports/0/hostPort"] != hostPorts {
			t.Errorf("%v: path /spec/template/spec/containers/0/ports/0/hostPort: got %t, want %t\n%v", paths,
				paths["/spec/template/spec/containers/0/ports/0/hostPort"], hostPorts, err)
		} else if !paths["/spec/template/spec/containers/0/imagePullPolicy"] {
			t.Errorf("%v: path /spec/template/spec/containers/0/imagePullPolicy: got false, want true\n%v", paths, err)
		} else if !paths["/spec/volumeClaimTemplates/0/spec/volumeMode"] {
			t.Errorf("%v: path /spec/volumeClaimTemplates/0/spec/volumeMode: got false, want true\n%v", paths, err)
		}
	}
	given["spec"].(Document)["template"].(Document)["spec"].(Document)["hostNetwork"] = false
	operations, _ := Default(DefaultRequest{Request: podtemplate.Request{Complete: away, HostPorts: true}, Version: "v1beta1", New: given})
	if len(operations) != 6 {
		t.Errorf("without the network of the host: %v", operations)
	}
	if operations, err := Default(DefaultRequest{Version: "v1beta1", New: given}); err != nil {
		t.Errorf("without defaults of templates: unexpected error: %v\n%v", err, operations)
	} else if len(operations) != 4 {
		t.Errorf("without defaults of templates: number of operations: got %d, want 4\n%v\n%v", len(operations),
			operations, err)
	}
}
