package cloneset

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"gomodules.xyz/jsonpatch/v2"
	jsonpatchapply "gopkg.in/evanphx/json-patch.v4"
)

func document(t *testing.T, text string) Document {
	t.Helper()
	var doc Document
	if err := json.Unmarshal([]byte(text), &doc); err != nil {
		t.Fatalf("%s: %v", text, err)
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
	if more, err := Default(again); err != nil || len(more) > 0 && again.Template == nil {
		t.Errorf("defaults are not stable: %v, %v", more, err)
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
		t.Fatalf("%v: %v", operations, err)
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

func TestStrategyDefaults(t *testing.T) {
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

// apiServer completes templates as an API server does, which drops what it does not know.
func apiServer(template Document) (Document, error) {
	spec := template["spec"].(Document)
	done := Document{"restartPolicy": "Always", "securityContext": Document{}, "newDefault": true}
	for _, key := range []string{"serviceAccountName", "restartPolicy", "hostNetwork"} {
		if value, ok := spec[key]; ok {
			done[key] = value
		}
	}
	if name, ok := spec["serviceAccountName"]; ok {
		done["serviceAccount"] = name
	}
	var containers []any
	for _, item := range spec["containers"].([]any) {
		c := item.(Document)
		out := Document{"name": c["name"], "image": c["image"], "resources": Document{}, "imagePullPolicy": "IfNotPresent"}
		if ports, ok := c["ports"].([]any); ok {
			out["ports"] = []any{Document{"containerPort": ports[0].(Document)["containerPort"], "protocol": "TCP"}}
		}
		containers = append(containers, out)
	}
	done["containers"] = containers
	return Document{"metadata": Document{"creationTimestamp": nil}, "spec": done}, nil
}

// settled is a CloneSet whose strategy needs no defaults.
func settled(template, claims string) string {
	return `{"spec":{"replicas":1,"revisionHistoryLimit":10,"updateStrategy":{"type":"OnDelete"},"template":` + template +
		`,"volumeClaimTemplates":` + claims + `}}`
}

func TestTemplateDefaults(t *testing.T) {
	cases := map[string]struct {
		old, given, want string
		hostPorts        bool
	}{
		"CS-014, IPU-015, CS-016 on create, unknown fields stay": {
			given: settled(`{"spec":{"containers":[{"name":"a","image":"i","future":9},{"name":"b","image":"i","imagePullPolicy":"Never"}],"serviceAccountName":"sa","future":{"x":[]}}}`,
				`[{"metadata":{"name":"d"},"spec":{"future":1}}]`),
			want: settled(`{"metadata":{},"spec":{"containers":[{"name":"a","image":"i","future":9,"imagePullPolicy":"Always","resources":{}},{"name":"b","image":"i","imagePullPolicy":"Never","resources":{}}],"serviceAccountName":"sa","future":{"x":[]},"restartPolicy":"Always","securityContext":{},"newDefault":true}}`,
				`[{"metadata":{"name":"d"},"spec":{"future":1,"volumeMode":"Filesystem"}}]`),
		},
		"CS-014 a stored object does not gain defaults that make a revision": {
			old: settled(`{"metadata":{},"spec":{"containers":[{"name":"a","image":"i","imagePullPolicy":"Always","resources":{}}],"restartPolicy":"Always","securityContext":{}}}`,
				`[{"metadata":{"name":"d"},"spec":{}}]`),
			given: settled(`{"spec":{"containers":[{"name":"a","image":"j"}]}}`,
				`[{"metadata":{"name":"d"},"spec":{}},{"metadata":{"name":"e"},"spec":{}}]`),
			want: settled(`{"metadata":{},"spec":{"containers":[{"name":"a","image":"j","imagePullPolicy":"Always","resources":{}}],"restartPolicy":"Always","securityContext":{}}}`,
				`[{"metadata":{"name":"d"},"spec":{}},{"metadata":{"name":"e"},"spec":{"volumeMode":"Filesystem"}}]`),
		},
		"CS-014 host ports only with the gate": {
			hostPorts: true,
			given: settled(`{"spec":{"hostNetwork":true,"containers":[{"name":"a","image":"i","ports":[{"containerPort":80}]}]}}`,
				`[]`),
			want: settled(`{"metadata":{},"spec":{"hostNetwork":true,"containers":[{"name":"a","image":"i","imagePullPolicy":"Always","resources":{},"ports":[{"containerPort":80,"hostPort":80,"protocol":"TCP"}]}],"restartPolicy":"Always","securityContext":{},"newDefault":true}}`, `[]`),
		},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			r := DefaultRequest{Version: "v1beta1", New: document(t, test.given), Template: apiServer, HostPorts: test.hostPorts}
			if test.old != "" {
				r.Old = document(t, test.old)
			}
			if diff := cmp.Diff(document(t, test.want), completed(t, r)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestTemplateDefaultsAreNeitherNeededNorFatal(t *testing.T) {
	given := document(t, settled(`{"spec":{"containers":[{"name":"a"}]}}`, `[]`))
	if operations, err := Default(DefaultRequest{Version: "v1beta1", New: given}); err != nil || len(operations) > 0 {
		t.Errorf("CS-014 TemplateNoDefaults: %v, %v", operations, err)
	}
	delete(given["spec"].(Document), "replicas")
	failing := func(Document) (Document, error) { return nil, errors.New("server is away") }
	operations, err := Default(DefaultRequest{Version: "v1beta1", New: given, Template: failing})
	if err == nil || len(operations) != 2 || operations[0].Path != "/spec/replicas" ||
		operations[1].Path != "/spec/template/spec/containers/0/imagePullPolicy" {
		t.Errorf("IPU-015: what needs no answer must come with the error: %v, %v", operations, err)
	}
}
