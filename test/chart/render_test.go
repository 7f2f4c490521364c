// Package chart_test renders the Helm chart and compares it with the manifests. Its module is the one that
// knows Helm.
package chart_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	"sigs.k8s.io/yaml"
)

const folder = "../../charts/kruise"

// objects are manifests by kind, namespace and name.
type objects map[string]map[string]any

func load(t *testing.T) *chart.Chart {
	t.Helper()
	c, err := loader.Load(folder)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// few is the chart with two definitions, which are rendered in no time.
func few(c *chart.Chart) *chart.Chart {
	c.Files = slices.DeleteFunc(slices.Clone(c.Files), func(file *common.File) bool {
		return strings.HasPrefix(file.Name, "files/crds/") && !strings.Contains(file.Name, "/podunavailablebudgets") && !strings.Contains(file.Name, "/imagepulljobs")
	})
	return c
}

// render renders the chart with the values, as Helm does without a cluster.
func render(c *chart.Chart, values string) (objects, error) {
	var given map[string]any
	if err := yaml.UnmarshalStrict([]byte(values), &given); err != nil {
		return nil, err
	}
	all, err := util.ToRenderValues(c, given, common.ReleaseOptions{Name: "kruise", Namespace: "default", Revision: 1, IsInstall: true},
		common.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	files, err := engine.Render(c, all)
	if err != nil {
		return nil, err
	}
	rendered := objects{}
	for name, text := range files {
		if strings.HasSuffix(name, ".yaml") {
			if err := rendered.add([]byte(text)); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	return rendered, nil
}

func mustRender(t *testing.T, c *chart.Chart, values string) objects {
	t.Helper()
	rendered, err := render(c, values)
	if err != nil {
		t.Fatal(err)
	}
	return rendered
}

// add reads documents; an object that comes twice is an error.
func (o objects) add(text []byte) error {
	for document := range bytes.SplitSeq(append([]byte("\n"), text...), []byte("\n---\n")) {
		var object struct {
			Kind     string
			Metadata struct{ Name, Namespace string }
		}
		var content map[string]any
		if err := yaml.UnmarshalStrict(document, &content); err != nil {
			return err
		}
		if len(content) == 0 {
			continue
		}
		if err := yaml.Unmarshal(document, &object); err != nil {
			return err
		}
		key := strings.Join(slices.DeleteFunc([]string{object.Kind, object.Metadata.Namespace, object.Metadata.Name},
			func(s string) bool { return s == "" }), " ")
		if o[key] != nil {
			return fmt.Errorf("there are two of %s", key)
		}
		o[key] = content
	}
	return nil
}

// difference lists what is other than before, a line for each field: "Deployment kruise-system x
// spec.replicas: 2 -> 3", "+ Secret a b" for an object that is new.
func difference(before, after objects) []string {
	var lines []string
	for key, object := range after {
		if before[key] == nil {
			lines = append(lines, "+ "+key)
			continue
		}
		for _, line := range changes("", before[key], object) {
			lines = append(lines, key+" "+line)
		}
	}
	for key := range before {
		if after[key] == nil {
			lines = append(lines, "- "+key)
		}
	}
	slices.Sort(lines)
	return lines
}

func changes(path string, before, after any) []string {
	if reflect.DeepEqual(before, after) {
		return nil
	}
	a, ok := before.(map[string]any)
	b, ok2 := after.(map[string]any)
	if !ok || !ok2 {
		x, isList := before.([]any)
		y, isList2 := after.([]any)
		if !isList || !isList2 || len(x) != len(y) {
			return []string{fmt.Sprintf("%s: %s -> %s", path, text(before), text(after))}
		}
		a, b = numbered(x), numbered(y)
	}
	var lines []string
	keys := maps.Clone(a)
	maps.Copy(keys, b)
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		lines = append(lines, changes(strings.TrimPrefix(path+"."+key, "."), a[key], b[key])...)
	}
	return lines
}

// numbered is a list as a map; elements with a name go by it.
func numbered(list []any) map[string]any {
	all := map[string]any{}
	for i, element := range list {
		key := fmt.Sprint(i)
		if object, ok := element.(map[string]any); ok && object["name"] != nil {
			key = fmt.Sprint(object["name"])
		}
		all[key] = element
	}
	return all
}

func text(value any) string {
	if value == nil {
		return "none"
	}
	encoded, err := json.Marshal(value)
	if err != nil {
		return err.Error()
	}
	return strings.ReplaceAll(string(encoded), `"`, "")
}

func sorted(lines []string) []string {
	slices.Sort(lines)
	return lines
}
