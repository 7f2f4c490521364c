package podtemplate

import (
	"encoding/json"
	"errors"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/afloat-project/afloat/internal/engine/revision"
)

// noAnswer is an API server that completes nothing: it has trouble, or a quota on podtemplates.
func noAnswer(Document) (Document, error) { return nil, errors.New("exceeded quota") }

// templateAfter is the template that is stored when given is applied over old.
func templateAfter(t *testing.T, old, given string, server func(Document) (Document, error)) string {
	t.Helper()
	before := Document{}
	if old != "" {
		before = document(t, workload(old, `[]`))
	}
	after, err := completed(t, document(t, workload(given, `[]`)), before, Request{Complete: server})
	if (err == nil) != (errOf(server) == nil) {
		t.Errorf("Default: %v", err)
	}
	return mustJSON(t, after["spec"].(Document)["template"])
}

func errOf(server func(Document) (Document, error)) error {
	_, err := server(Document{"spec": Document{"containers": []any{}}})
	return err
}

func sameRevision(t *testing.T, a, b string) bool {
	t.Helper()
	before, err := revision.Data([]byte(a))
	if err != nil {
		t.Fatal(err)
	}
	after, err := revision.Data([]byte(b))
	if err != nil {
		t.Fatal(err)
	}
	return revision.Equal(before, after)
}

// CS-014: whoever applies a manifest again sends lists without the defaults in them. With every default that
// Kubernetes 1.36 gives to a pod template, the one that is stored stays what it was when the API server
// completes nothing. The file was made by that version's own defaulting; images of regular containers are
// always pulled (IPU-015).
func TestAnUnchangedApplyKeepsAllDefaultsOfKubernetesWithoutAnAnswer(t *testing.T) {
	text, err := os.ReadFile("testdata/kubernetes-1.36-defaults.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Applied, Stored json.RawMessage }
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	got := templateAfter(t, string(file.Stored), string(file.Applied), noAnswer)
	if diff := cmp.Diff(document(t, string(file.Stored)), document(t, got)); diff != "" {
		t.Errorf("the template that is applied again (-stored +got):\n%s", diff)
	}
	if again := templateAfter(t, string(file.Stored), got, noAnswer); again != got {
		t.Errorf("applied once more: %s", again)
	}
}

// CS-014: what a template leaves out is taken from the stored one where the API server would fill it in
// again, and from nowhere else.
func TestWhatAnUpdateTakesFromTheStoredTemplateWithoutAnAnswer(t *testing.T) {
	const app = `"name":"app","image":"app:1","imagePullPolicy":"Always"`
	const defaults = `"terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File"`
	cases := map[string]struct{ stored, given, want string }{
		"another image": {`{"spec":{"containers":[{` + app + `,` + defaults + `}],"dnsPolicy":"ClusterFirst"}}`,
			`{"spec":{"containers":[{"name":"app","image":"app:2"}]}}`,
			`{"spec":{"containers":[{"name":"app","image":"app:2","imagePullPolicy":"Always",` + defaults +
				`}],"dnsPolicy":"ClusterFirst"}}`},
		"a container before the others": {`{"spec":{"containers":[{` + app + `,` + defaults + `}]}}`,
			`{"spec":{"containers":[{"name":"new","image":"n"},{` + app + `}]}}`,
			`{"spec":{"containers":[{"name":"new","image":"n","imagePullPolicy":"Always"},{` + app + `,` + defaults + `}]}}`},
		"ports in another order, one of them for UDP": {`{"spec":{"containers":[{` + app +
			`,"ports":[{"containerPort":80,"protocol":"UDP"},{"containerPort":80,"protocol":"TCP"}]}]}}`,
			`{"spec":{"containers":[{` + app + `,"ports":[{"containerPort":80},{"containerPort":80,"protocol":"UDP"}]}]}}`,
			`{"spec":{"containers":[{` + app + `,"ports":[{"containerPort":80,"protocol":"TCP"},{"containerPort":80,"protocol":"UDP"}]}]}}`},
		"a variable that is named twice": {`{"spec":{"containers":[{` + app +
			`,"env":[{"name":"A","value":"1"},{"name":"A","valueFrom":{"fieldRef":{"apiVersion":"v1","fieldPath":"metadata.name"}}}]}]}}`,
			`{"spec":{"containers":[{` + app + `,"env":[{"name":"A","value":"1"},{"name":"A","valueFrom":{"fieldRef":{"fieldPath":"metadata.name"}}}]}]}}`,
			`{"spec":{"containers":[{` + app + `,"env":[{"name":"A","value":"1"},{"name":"A","valueFrom":{"fieldRef":{"apiVersion":"v1","fieldPath":"metadata.name"}}}]}]}}`},
		"what the user took away stays away": {`{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{` + app +
			`,"command":["x"],"livenessProbe":{"exec":{},"timeoutSeconds":1},"env":[{"name":"A"}],"resources":{"limits":{"cpu":"1"}}}],"hostNetwork":true,"nodeSelector":{"a":"b"},"terminationGracePeriodSeconds":60,"volumes":[{"name":"v","emptyDir":{}}]}}`,
			`{"metadata":{},"spec":{"containers":[{` + app + `}]}}`,
			`{"metadata":{},"spec":{"containers":[{` + app + `}]}}`},
		"a volume of another kind": {`{"spec":{"containers":[{` + app +
			`}],"volumes":[{"name":"v","emptyDir":{}},{"name":"w","secret":{"secretName":"s","defaultMode":420}}]}}`,
			`{"spec":{"containers":[{` + app + `}],"volumes":[{"name":"v","secret":{"secretName":"s"}},{"name":"w","secret":{"secretName":"s","defaultMode":256}}]}}`,
			`{"spec":{"containers":[{` + app + `}],"volumes":[{"name":"v","secret":{"secretName":"s"}},{"name":"w","secret":{"secretName":"s","defaultMode":256}}]}}`},
		"a default that is stored with another value": {`{"spec":{"containers":[{` + app +
			`}],"initContainers":[{"name":"i","image":"i:1","imagePullPolicy":"IfNotPresent"},{"name":"j","image":"j:1","imagePullPolicy":"IfNotPresent"}]}}`,
			`{"spec":{"containers":[{` + app + `}],"initContainers":[{"name":"i","image":"i:2"},{"name":"j","image":"j"}]}}`,
			`{"spec":{"containers":[{` + app + `}],"initContainers":[{"name":"i","image":"i:2","imagePullPolicy":"IfNotPresent"},{"name":"j","image":"j"}]}}`},
		"defaults of fields that are newer than our libraries": {`{"spec":{"containers":[{` + app +
			`,"futurePolicy":"Default"}],"future":{"items":[{"name":"x","mode":7}]}}}`,
			`{"spec":{"containers":[{` + app + `}],"future":{"items":[{"name":"y"},{"name":"x"}]}}}`,
			`{"spec":{"containers":[{` + app + `,"futurePolicy":"Default"}],"future":{"items":[{"name":"y"},{"name":"x","mode":7}]}}}`},
		"something else than a template": {`{"spec":{"containers":[{` + app + `}]}}`, `{"spec":{"containers":{"name":1},"volumes":"x"}}`,
			`{"spec":{"containers":{"name":1},"volumes":"x"}}`},
		"stored without defaults": {`{"spec":{"containers":[{"name":"app","image":"app:1"}]}}`,
			`{"spec":{"containers":[{"name":"app","image":"app:2"}]}}`, `{"spec":{"containers":[{"name":"app","image":"app:2"}]}}`},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			got := templateAfter(t, test.stored, test.given, noAnswer)
			if diff := cmp.Diff(document(t, test.want), document(t, got)); diff != "" {
				t.Errorf("the template with what is missing (-want +got):\n%s", diff)
			}
		})
	}
}

// CS-014: an object that was created while the API server completed nothing is stored with what we know
// ourselves. The same manifest applied later makes no revision, and another image is no difference beside the
// image.
func TestATemplateStoredWithoutDefaultsDoesNotGainThemLater(t *testing.T) {
	const manifest = `{"spec":{"containers":[{"name":"app","image":"app:1","ports":[{"containerPort":80}]},{"name":"b","image":"b:1"}]}}`
	stored := templateAfter(t, "", manifest, noAnswer)
	if want := `{"spec":{"containers":[{"image":"app:1","imagePullPolicy":"Always","name":"app","ports":[{"containerPort":80}]},{"image":"b:1","imagePullPolicy":"Always","name":"b"}]}}`; stored != want {
		t.Errorf("created as %s", stored)
	}
	if again := templateAfter(t, stored, manifest, apiServer); !sameRevision(t, stored, again) {
		t.Errorf("applied again: %s", again)
	}
	if again := templateAfter(t, stored, manifest, noAnswer); !sameRevision(t, stored, again) {
		t.Errorf("applied again without an answer: %s", again)
	}
	// A container that comes later has no defaults of before, so it gets them.
	const more = `{"spec":{"containers":[{"name":"c","image":"c:1"},{"name":"app","image":"app:2","ports":[{"containerPort":80}]},{"name":"b","image":"b:1"}]}}`
	want := `{"spec":{"containers":[{"image":"c:1","imagePullPolicy":"Always","name":"c","resources":{}},{"image":"app:2","imagePullPolicy":"Always","name":"app","ports":[{"containerPort":80}]},{"image":"b:1","imagePullPolicy":"Always","name":"b"}]}}`
	if got := templateAfter(t, stored, more, apiServer); got != want {
		t.Errorf("with another container: %s", got)
	}
}
