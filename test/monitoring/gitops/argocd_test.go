package gitops

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	lua "github.com/yuin/gopher-lua"
	"go.yaml.in/yaml/v3"
)

const (
	folder  = "../../../config/argocd/"
	healths = "resource.customizations.health."
	actions = "resource.customizations.actions."
)

func read[T any](t *testing.T, file string) T {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var value T
	if err := yaml.Unmarshal(data, &value); err != nil {
		t.Fatal(file, err)
	}
	return value
}

type configMap struct {
	Kind     string
	Metadata struct{ Name, Namespace string }
	Data     map[string]string
}

// run runs a script as Argo CD does: the object is the global obj, and of Lua's libraries there are only
// those that Argo CD opens.
func run(t *testing.T, script string, object map[string]any) any {
	t.Helper()
	engine := lua.NewState(lua.Options{SkipOpenLibs: true})
	defer engine.Close()
	for _, library := range []struct {
		name string
		open lua.LGFunction
	}{{lua.LoadLibName, lua.OpenPackage}, {lua.BaseLibName, lua.OpenBase}, {lua.TabLibName, lua.OpenTable}, {lua.OsLibName, onlyTime}} {
		engine.Push(engine.NewFunction(library.open))
		engine.Push(lua.LString(library.name))
		engine.Call(1, 0)
	}
	for _, dangerous := range []string{"dofile", "loadfile", "print"} {
		engine.SetGlobal(dangerous, lua.LNil)
	}
	engine.SetGlobal("obj", toLua(engine, plain(t, object)))
	if err := engine.DoString(script); err != nil {
		t.Fatalf("%v, on %v", err, object)
	}
	return fromLua(engine.Get(-1))
}

// onlyTime is the part of the library os that Argo CD allows.
func onlyTime(engine *lua.LState) int {
	engine.Push(engine.RegisterModule(lua.OsLibName, map[string]lua.LGFunction{"date": func(l *lua.LState) int {
		if l.CheckString(1) != "!%Y-%m-%dT%XZ" {
			l.RaiseError("another format")
		}
		l.Push(lua.LString(time.Now().UTC().Format(time.RFC3339)))
		return 1
	}}))
	return 1
}

// plain is the object as JSON has it: all numbers are float64, as Argo CD hands them over.
func plain(t *testing.T, object any) any {
	t.Helper()
	encoded, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	var decoded any
	if err := json.Unmarshal(encoded, &decoded); err != nil {
		t.Fatal(err)
	}
	return decoded
}

func toLua(engine *lua.LState, value any) lua.LValue {
	switch value := value.(type) {
	case bool:
		return lua.LBool(value)
	case float64:
		return lua.LNumber(value)
	case string:
		return lua.LString(value)
	case []any:
		table := engine.NewTable()
		for _, item := range value {
			table.Append(toLua(engine, item))
		}
		return table
	case map[string]any:
		table := engine.NewTable()
		for key, item := range value {
			table.RawSetString(key, toLua(engine, item))
		}
		return table
	}
	return lua.LNil
}

func fromLua(value lua.LValue) any {
	switch value := value.(type) {
	case lua.LBool:
		return bool(value)
	case lua.LNumber:
		return float64(value)
	case lua.LString:
		return string(value)
	case *lua.LTable:
		if value.Len() > 0 {
			var items []any
			value.ForEach(func(_, item lua.LValue) { items = append(items, fromLua(item)) })
			return items
		}
		fields := map[string]any{}
		value.ForEach(func(key, item lua.LValue) { fields[key.String()] = fromLua(item) })
		return fields
	}
	return nil
}

// healthCase is an object, and the health that people are shown.
type healthCase struct {
	Name    string
	Kind    string // group_Kind, as in the key of argocd-cm
	Version string
	Object  map[string]any
	Health  string
	Message string
}

// Objects of all kinds have a health, and a message that says why; also while the status lags behind, or is
// not there.
func TestObjectsOfAllKindsHaveAHealth(t *testing.T) {
	scripts := read[configMap](t, folder+"argocd-cm.yaml")
	if scripts.Kind != "ConfigMap" || scripts.Metadata.Name != "argocd-cm" {
		t.Fatal(scripts.Metadata)
	}
	seen := map[string][]string{}
	for _, c := range read[[]healthCase](t, "testdata/health.yaml") {
		t.Run(c.Kind+" "+c.Name, func(t *testing.T) {
			script := scripts.Data[healths+c.Kind]
			if script == "" {
				t.Fatal("there is no script")
			}
			object := map[string]any{"metadata": map[string]any{"name": "x", "generation": 1}, "spec": map[string]any{}}
			for key, value := range c.Object {
				object[key] = value
			}
			group, kind, _ := strings.Cut(c.Kind, "_")
			if c.Version == "" {
				c.Version = "v1beta1"
			}
			object["apiVersion"], object["kind"] = group+"/"+c.Version, kind
			got, _ := run(t, script, object).(map[string]any)
			if got["status"] != c.Health || got["message"] != c.Message {
				t.Errorf("%v: %v\nwant %s: %s", got["status"], got["message"], c.Health, c.Message)
			}
			seen[c.Kind] = append(seen[c.Kind], c.Health)
		})
	}
	for key := range scripts.Data {
		if kind, ok := strings.CutPrefix(key, healths); ok && (!slices.Contains(seen[kind], "Healthy") || !slices.Contains(seen[kind], "Progressing")) {
			t.Errorf("%s was seen %v only", kind, seen[kind])
		}
	}
}

// Every object that has just been created is on its way, whatever kind it is, and never an error of the
// script.
func TestObjectsWithoutStatus(t *testing.T) {
	for key, script := range read[configMap](t, folder+"argocd-cm.yaml").Data {
		kind, ok := strings.CutPrefix(key, healths)
		if !ok {
			continue
		}
		object := map[string]any{"kind": kind[strings.Index(kind, "_")+1:], "metadata": map[string]any{}, "spec": map[string]any{
			"images": map[string]any{"nginx": map[string]any{"tags": []any{map[string]any{"tag": "1.27"}}}}, "containers": []any{map[string]any{"name": "c"}},
			"podProbes": []any{map[string]any{"probes": []any{map[string]any{"name": "p"}}}}}}
		for _, status := range []any{nil, map[string]any{}} {
			if status != nil {
				object["status"] = status
			}
			got, _ := run(t, script, object).(map[string]any)
			if message, _ := got["message"].(string); got["status"] != "Progressing" || message == "" {
				t.Errorf("%s with status %v: %v", kind, status, got)
			}
		}
	}
}

// Actions change what they are about, in every version, and are offered when they make sense.
func TestActionsChangeWhatTheyAreAbout(t *testing.T) {
	type customization struct {
		Discovery   string `yaml:"discovery.lua"`
		Definitions []struct {
			Name   string
			Action string `yaml:"action.lua"`
		}
	}
	scripts := read[configMap](t, folder+"argocd-cm.yaml").Data
	for _, c := range []struct{ kind, version, path string }{
		{"CloneSet", "v1alpha1", "updateStrategy.paused"}, {"CloneSet", "v1beta1", "updateStrategy.rollingUpdate.paused"},
		{"StatefulSet", "v1beta1", "updateStrategy.rollingUpdate.paused"}, {"StatefulSet", "v1alpha1", "updateStrategy.rollingUpdate.paused"},
		{"DaemonSet", "v1beta1", "updateStrategy.rollingUpdate.paused"}, {"SidecarSet", "v1beta1", "updateStrategy.paused"},
	} {
		t.Run(c.kind+" "+c.version, func(t *testing.T) {
			var custom customization
			if err := yaml.Unmarshal([]byte(scripts[actions+"apps.kruise.io_"+c.kind]), &custom); err != nil {
				t.Fatal(err)
			}
			object := map[string]any{"apiVersion": "apps.kruise.io/" + c.version, "kind": c.kind,
				"spec": map[string]any{"replicas": 3, "template": map[string]any{"spec": map[string]any{}}}}
			script := map[string]string{}
			for _, definition := range custom.Definitions {
				script[definition.Name] = definition.Action
			}
			offered := func(name string) bool {
				all, _ := run(t, custom.Discovery, object).(map[string]any)
				one, there := all[name].(map[string]any)
				if there != (script[name] != "") {
					t.Fatalf("%s is offered: %v, and defined: %v", name, there, script[name] != "")
				}
				return there && one["disabled"] != true
			}
			at := func() any {
				var value any = object["spec"]
				for _, field := range strings.Split(c.path, ".") {
					fields, _ := value.(map[string]any)
					value = fields[field]
				}
				return value
			}
			if !offered("pause") || offered("resume") || offered("restart") != (c.kind != "SidecarSet") {
				t.Error("wrong actions are offered of one that runs")
			}
			if c.kind != "SidecarSet" {
				object = run(t, script["restart"], object).(map[string]any)
				template := object["spec"].(map[string]any)["template"].(map[string]any)
				annotations, _ := template["metadata"].(map[string]any)["annotations"].(map[string]any)
				when, _ := annotations["apps.kruise.io/restarted-at"].(string)
				if _, err := time.Parse(time.RFC3339, when); err != nil {
					t.Error(err)
				}
			}
			object = run(t, script["pause"], object).(map[string]any)
			if at() != true || offered("pause") || offered("restart") || !offered("resume") {
				t.Errorf("after pause: %v", object)
			}
			object = run(t, script["resume"], object).(map[string]any)
			if at() != nil || !offered("pause") || object["spec"].(map[string]any)["replicas"] != 3.0 {
				t.Errorf("after resume: %v", object)
			}
		})
	}
}
