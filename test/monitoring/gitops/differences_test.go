package gitops

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/itchyny/gojq"
)

type application struct {
	Spec struct {
		Source            struct{ Path string }
		IgnoreDifferences []struct {
			Group, Kind, Name string
			JQPathExpressions []string `yaml:"jqPathExpressions"`
		} `yaml:"ignoreDifferences"`
		SyncPolicy struct {
			SyncOptions []string `yaml:"syncOptions"`
		} `yaml:"syncPolicy"`
	}
}

// normalized is an object without what the application says is to be ignored, by the engine and in the way of
// Argo CD.
func normalized(t *testing.T, app *application, object map[string]any) any {
	t.Helper()
	group, _, _ := strings.Cut(object["apiVersion"].(string), "/")
	metadata, _ := object["metadata"].(map[string]any)
	value, rules := plain(t, object), 0
	for _, rule := range app.Spec.IgnoreDifferences {
		if rule.Group != group || rule.Kind != object["kind"] || rule.Name != "" && rule.Name != metadata["name"] {
			continue
		}
		for _, path := range rule.JQPathExpressions {
			rules++
			query, err := gojq.Parse("del(" + path + ")")
			if err != nil {
				t.Fatalf("%s: %v", path, err)
			}
			next, _ := query.Run(value).Next()
			if err, failed := next.(error); failed {
				t.Fatalf("%s: %v", path, err)
			}
			value = next
		}
	}
	if rules == 0 {
		t.Fatalf("nothing is ignored in %v", metadata["name"])
	}
	return value
}

// OPS-075 (part): what the manager writes into configurations and definitions is no difference for Argo CD;
// what anybody else writes is.
func TestWhatTheManagerWritesIsNoDifference(t *testing.T) {
	app := read[application](t, folder+"application.yaml")
	if app.Spec.Source.Path != "config/default" || !strings.Contains(strings.Join(app.Spec.SyncPolicy.SyncOptions, " "), "RespectIgnoreDifferences=true") {
		t.Errorf("%+v", app.Spec)
	}
	entry := func(name string) map[string]any {
		return map[string]any{"name": name, "clientConfig": map[string]any{"caBundle": "Q0E="}}
	}
	written := map[string]func(object map[string]any){
		"webhook/mutating.yaml": func(object map[string]any) {
			for _, one := range object["webhooks"].([]any) {
				one.(map[string]any)["clientConfig"].(map[string]any)["caBundle"] = "Q0E="
			}
			object["webhooks"] = append([]any{entry("mpod-all.kb.io"), entry("mpod-recent.kb.io")}, object["webhooks"].([]any)...)
			annotate(object, "template", "[]")
			annotate(object, "recent-pod-rules", "[]")
		},
		"webhook/validating.yaml": func(object map[string]any) {
			for _, one := range object["webhooks"].([]any) {
				hook := one.(map[string]any)
				hook["clientConfig"].(map[string]any)["caBundle"] = "Q0E="
				if name := hook["name"].(string); name == "vpod.kb.io" || name == "vpodeviction.kb.io" {
					hook["matchConditions"] = []any{map[string]any{"name": "n", "expression": "false"}}
				}
			}
			object["webhooks"] = append(object["webhooks"].([]any), entry("vpod-budget.kb.io"), entry("vpodeviction-budget.kb.io"))
			annotate(object, "template", "[]")
		},
		"crd/bases/apps.kruise.io_clonesets.yaml": func(object map[string]any) {
			conversion := object["spec"].(map[string]any)["conversion"].(map[string]any)
			conversion["webhook"].(map[string]any)["clientConfig"].(map[string]any)["caBundle"] = "Q0E="
		},
	}
	for file, write := range written {
		t.Run(file, func(t *testing.T) {
			desired, live := read[map[string]any](t, "../../../config/"+file), read[map[string]any](t, "../../../config/"+file)
			write(live)
			if got, want := normalized(t, &app, live), normalized(t, &app, desired); !reflect.DeepEqual(dropEmpty(got), dropEmpty(want)) {
				t.Errorf("the manager's own writes are a difference:\n%s\n%s", text(got), text(want))
			}
			if hooks, ok := live["webhooks"].([]any); ok {
				hooks[3].(map[string]any)["failurePolicy"] = "Other"
			} else {
				live["spec"].(map[string]any)["scope"] = "Other"
			}
			if reflect.DeepEqual(dropEmpty(normalized(t, &app, live)), dropEmpty(normalized(t, &app, desired))) {
				t.Error("a change by somebody else is no difference")
			}
		})
	}
}

func annotate(object map[string]any, name, value string) {
	metadata, _ := object["metadata"].(map[string]any)
	annotations, ok := metadata["annotations"].(map[string]any)
	if !ok {
		annotations = map[string]any{}
		metadata["annotations"] = annotations
	}
	annotations[name] = value
}

// dropEmpty takes empty annotations away, as the comparison of Argo CD does.
func dropEmpty(value any) any {
	if object, ok := value.(map[string]any); ok {
		if metadata, ok := object["metadata"].(map[string]any); ok {
			if annotations, ok := metadata["annotations"].(map[string]any); ok && len(annotations) == 0 {
				delete(metadata, "annotations")
			}
		}
	}
	return value
}

func text(value any) string {
	encoded, _ := json.Marshal(value)
	return string(encoded)
}
