package podtemplate

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
		t.Fatalf("reading %s: %v", text, err)
	}
	return doc
}

// completed applies the patch that Templates makes, as the API server would. It checks that the given
// document stays as it was.
func completed(t *testing.T, given, old Document, r Request) (Document, error) {
	t.Helper()
	before := mustJSON(t, given)
	var d Defaults
	stored, _ := old["spec"].(Document)
	err := d.Templates(given["spec"].(Document), stored, r)
	if diff := cmp.Diff(before, mustJSON(t, given)); diff != "" {
		t.Errorf("the request was modified:\n%s", diff)
	}
	return patched(t, given, d.Operations), err
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

// workload is a workload with a template.
func workload(template, claims string) string {
	return `{"spec":{"template":` + template + `,"volumeClaimTemplates":` + claims + `}}`
}

func TestTemplatesGetTheDefaultsOfKubernetes(t *testing.T) {
	cases := map[string]struct {
		old, given, want string
		hostPorts        bool
	}{
		"CS-014, IPU-015, CS-016 on create, unknown fields stay": {
			given: workload(`{"spec":{"containers":[{"name":"a","image":"i","future":9},{"name":"b","image":"i","imagePullPolicy":"Never"}],"serviceAccountName":"sa","future":{"x":[]}}}`,
				`[{"metadata":{"name":"d"},"spec":{"future":1}}]`),
			want: workload(`{"metadata":{},"spec":{"containers":[{"name":"a","image":"i","future":9,"imagePullPolicy":"Always","resources":{}},{"name":"b","image":"i","imagePullPolicy":"Never","resources":{}}],"serviceAccountName":"sa","future":{"x":[]},"restartPolicy":"Always","securityContext":{},"newDefault":true}}`,
				`[{"metadata":{"name":"d"},"spec":{"future":1,"volumeMode":"Filesystem"}}]`),
		},
		"CS-014 a stored object does not gain defaults that make a revision": {
			old: workload(`{"metadata":{},"spec":{"containers":[{"name":"a","image":"i","imagePullPolicy":"Always","resources":{}}],"restartPolicy":"Always","securityContext":{}}}`,
				`[{"metadata":{"name":"d"},"spec":{}}]`),
			given: workload(`{"spec":{"containers":[{"name":"a","image":"j"}]}}`,
				`[{"metadata":{"name":"d"},"spec":{}},{"metadata":{"name":"e"},"spec":{}}]`),
			want: workload(`{"metadata":{},"spec":{"containers":[{"name":"a","image":"j","imagePullPolicy":"Always","resources":{}}],"restartPolicy":"Always","securityContext":{}}}`,
				`[{"metadata":{"name":"d"},"spec":{}},{"metadata":{"name":"e"},"spec":{"volumeMode":"Filesystem"}}]`),
		},
		"CS-014 host ports only with the gate": {
			hostPorts: true,
			given: workload(`{"spec":{"hostNetwork":true,"containers":[{"name":"a","image":"i","ports":[{"containerPort":80}]}]}}`,
				`[]`),
			want: workload(`{"metadata":{},"spec":{"hostNetwork":true,"containers":[{"name":"a","image":"i","imagePullPolicy":"Always","resources":{},"ports":[{"containerPort":80,"hostPort":80,"protocol":"TCP"}]}],"restartPolicy":"Always","securityContext":{},"newDefault":true}}`, `[]`),
		},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			old := Document{}
			if test.old != "" {
				old = document(t, test.old)
			}
			got, err := completed(t, document(t, test.given), old, Request{Complete: apiServer, HostPorts: test.hostPorts})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(document(t, test.want), got); diff != "" {
				t.Errorf("the template with its defaults (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTemplateDefaultsAreNeitherNeededNorFatal(t *testing.T) {
	given := document(t, workload(`{"spec":{"containers":[{"name":"a"}]}}`, `[]`))
	var d Defaults
	if err := d.Templates(given["spec"].(Document), nil, Request{}); err != nil {
		t.Errorf("CS-014 TemplateNoDefaults: %v", err)
	}
	if len(d.Operations) > 0 {
		t.Errorf("CS-014 TemplateNoDefaults: got the defaults %v, want none", d.Operations)
	}
	failing := func(Document) (Document, error) { return nil, errors.New("server is away") }
	err := d.Templates(given["spec"].(Document), nil, Request{Complete: failing})
	if err == nil {
		t.Error("IPU-015: the server is away: no error")
	}
	if len(d.Operations) != 1 {
		t.Errorf("IPU-015: defaults that need no answer: got %v, want 1", d.Operations)
	} else if path := d.Operations[0].Path; path != "/spec/template/spec/containers/0/imagePullPolicy" {
		t.Errorf("IPU-015: the default that needs no answer is at %s, want imagePullPolicy", path)
	}
}
