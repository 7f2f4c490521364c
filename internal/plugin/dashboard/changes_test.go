package dashboard

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/afloat-project/afloat/internal/plugin/plugintest"
)

const web = `
apiVersion: apps.kruise.io/v1beta1
kind: CloneSet
metadata: {name: web, namespace: default, generation: 3, resourceVersion: "7", annotations: {a: b}}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: app, image: 'nginx:1'}, {name: log, image: 'log:1'}]}
status: {replicas: 3}
`

func TestChanges(t *testing.T) {
	image := func(o *unstructured.Unstructured) string { return strings.Join(images(o), " ") }
	for name, test := range map[string]struct {
		change wanted
		got    func(*unstructured.Unstructured) string
		want   string
		status int
	}{
		"an image": {change: wanted{Action: "images", Images: map[string]string{"app": "nginx:2"}},
			got: image, want: "nginx:2 log:1"},
		"the image of a container that is not there": {
			change: wanted{Action: "images", Images: map[string]string{"other": "nginx:2"}}, status: http.StatusBadRequest},
		"replicas": {change: wanted{Action: "scale", Replicas: new(int64(5))},
			got: func(o *unstructured.Unstructured) string { return text(o.Object["spec"].(map[string]any)["replicas"]) }, want: "5\n"},
		"no replicas":       {change: wanted{Action: "scale"}, status: http.StatusBadRequest},
		"negative replicas": {change: wanted{Action: "scale", Replicas: new(int64(-1))}, status: http.StatusBadRequest},
		"an unknown action": {change: wanted{Action: "drop"}, status: http.StatusBadRequest},
		"resuming what is not paused": {change: wanted{Action: "resume"},
			status: http.StatusUnprocessableEntity},
		"a document": {change: wanted{Action: "yaml", YAML: strings.Replace(text(documentOf(plugintest.Object(t, web)).Object), "nginx:1", "nginx:3", 1)},
			got: image, want: "nginx:3 log:1"},
		"a document of another object": {change: wanted{Action: "yaml", YAML: strings.Replace(text(documentOf(plugintest.Object(t, web)).Object), "name: web", "name: other", 1)},
			status: http.StatusBadRequest},
		"a document with a label":    {change: wanted{Action: "yaml", YAML: strings.Replace(text(documentOf(plugintest.Object(t, web)).Object), "  name: web", "  name: web\n  labels: {a: b}", 1)}, status: http.StatusBadRequest},
		"a document of another kind": {change: wanted{Action: "yaml", YAML: strings.Replace(text(documentOf(plugintest.Object(t, web)).Object), "kind: CloneSet", "kind: StatefulSet", 1)}, status: http.StatusBadRequest},
		"a document without a spec":  {change: wanted{Action: "yaml", YAML: "apiVersion: apps.kruise.io/v1beta1\nkind: CloneSet\nmetadata: {name: web, namespace: default}"}, status: http.StatusBadRequest},
		"two documents":              {change: wanted{Action: "yaml", YAML: text(documentOf(plugintest.Object(t, web)).Object) + "---\nspec: {}\n"}, status: http.StatusBadRequest},
		"a field beside the spec":    {change: wanted{Action: "yaml", YAML: text(documentOf(plugintest.Object(t, web)).Object) + "replicas: 5\n"}, status: http.StatusBadRequest},
		"what is no document":        {change: wanted{Action: "yaml", YAML: "{"}, status: http.StatusBadRequest},
		"a list":                     {change: wanted{Action: "yaml", YAML: "- a"}, status: http.StatusBadRequest},
		"nothing":                    {change: wanted{Action: "yaml"}, status: http.StatusBadRequest},
	} {
		t.Run(name, func(t *testing.T) {
			o := plugintest.Object(t, web)
			err := test.change.edit(nil, time.Now())(o)
			if test.status != 0 {
				if err == nil || statusOf(refused(err)) != test.status {
					t.Errorf("got %v, want a failure with the status %d", err, test.status)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := test.got(o); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
			if o.GetAnnotations()["a"] != "b" || o.GetResourceVersion() != "7" {
				t.Error("what is not shown was changed")
			}
		})
	}
}

// A document that was not edited changes nothing.
func TestAnUneditedDocument(t *testing.T) {
	before := plugintest.Object(t, web)
	after := before.DeepCopy()
	change := wanted{Action: "yaml", YAML: text(documentOf(before).Object)}
	if err := change.edit(nil, time.Now())(after); err != nil {
		t.Fatal(err)
	}
	a, _ := json.Marshal(before)
	b, _ := json.Marshal(after)
	if string(a) != string(b) {
		t.Errorf("got %s, want %s", b, a)
	}
}

// What a spec holds comes back from the browser as it was, whatever it looks like in YAML.
func TestSpecsThatLookLikeOtherYAML(t *testing.T) {
	values := []any{
		"yes", "0o17", "017", "1e3", "0x1F", "12:30:45", "2026-11-27", "null", "~", "<<", "=", "", " a ", "a: b", "# a", "- a", "---", "...",
		"a\n---\nb\n", "---\na", "a\r\nb", "a\rb", "a\tb", "\u202e", "\u2028", "\u0085", "\ufeff", "\x7f", "\x00", "\U0001f600",
		"%a", "@a", "`a", "!a", "&a", "*a", "|", ">", "a\n\n", "\n", "\n a", strings.Repeat("long words ", 50), "on", "y", "1_000", ".5", "+1",
		int64(9007199254740993), int64(-1), 0.1, 1e21, true, nil, []any{}, map[string]any{}, []any{nil},
	}
	for _, value := range values {
		before := plugintest.Object(t, web)
		spec := before.Object["spec"].(map[string]any)
		spec["value"], spec["key"] = value, map[string]any{"of": value, "x" + fmt.Sprint(value): value}
		shown := strings.ReplaceAll(text(documentOf(before).Object), "\r\n", "\n") // as a text field does
		after := before.DeepCopy()
		change := wanted{Action: "yaml", YAML: shown}
		if err := change.edit(nil, time.Now())(after); err != nil {
			t.Errorf("%q: %v in\n%s", value, err, shown)
			continue
		}
		want, _ := json.Marshal(before.Object)
		got, _ := json.Marshal(after.Object)
		if string(got) != string(want) {
			t.Errorf("%q: got %s, want %s", value, got, want)
		}
	}
}
