package installation

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Fields are the fields that a version of a definition keeps, such as spec.subsets[].name and spec.labels{}.
type Fields struct {
	// fields are the fields known by name. Below the fields in open, unknown fields are kept as well.
	fields, open map[string]bool
}

// FieldsOf returns the fields of a version of a definition.
func FieldsOf(version map[string]any) Fields {
	f := Fields{fields: map[string]bool{}, open: map[string]bool{}}
	root, _, _ := unstructured.NestedFieldNoCopy(version, "schema", "openAPIV3Schema")
	f.add(root, "")
	return f
}

func (f Fields) add(node any, path string) {
	schema, _ := node.(map[string]any)
	if schema["x-kubernetes-preserve-unknown-fields"] == true {
		f.open[path] = true
	}

	properties, _ := schema["properties"].(map[string]any)
	for name, property := range properties {
		at := strings.TrimPrefix(path+"."+name, ".")
		f.fields[at] = true
		f.add(property, at)
	}

	if items, ok := schema["items"]; ok {
		f.add(items, path+"[]")
	}

	if values, ok := schema["additionalProperties"]; ok {
		f.add(values, path+"{}")
		if values == true {
			f.open[path] = true
		}
	}
}

// below reports whether path equals above or is below it.
func below(path, above string) bool {
	rest, is := strings.CutPrefix(path, above)
	return is && (above == "" || rest == "" || strings.ContainsAny(rest[:1], ".[{"))
}

// Lacks returns the fields of other that f does not keep, and those in which other keeps unknown fields and f
// does not. It leaves out fields below others that it returns.
func (f Fields) Lacks(other Fields) []string {
	var lacks []string
	for _, path := range slices.Sorted(maps.Keys(other.fields)) {
		if f.fields[path] && (f.open[path] || !other.open[path]) ||
			slices.ContainsFunc(lacks, func(above string) bool { return below(path, above) }) ||
			slices.ContainsFunc(slices.Collect(maps.Keys(f.open)), func(above string) bool {
				return below(path, above)
			}) {
			continue
		}
		lacks = append(lacks, path)
	}
	return lacks
}

// Versions returns the served versions of a definition by name.
func Versions(definition *unstructured.Unstructured) map[string]map[string]any {
	byName := map[string]map[string]any{}
	for _, version := range Maps(definition.Object, "spec", "versions") {
		if name, _ := version["name"].(string); version["served"] == true {
			byName[name] = version
		}
	}
	return byName
}

// Setting returns, for each of the given fields, the names of up to three objects of a kind that set it.
func Setting(ctx context.Context, c client.Reader, kind schema.GroupVersionKind,
	paths []string) (map[string][]string, error) {
	setting := map[string][]string{}
	err := Each(ctx, c, kind, func(object *unstructured.Unstructured) error {
		for _, path := range paths {
			if len(setting[path]) < 3 && isSet(object.Object, path) {
				setting[path] = append(setting[path],
					strings.TrimPrefix(object.GetNamespace()+"/"+object.GetName(), "/"))
			}
		}
		return nil
	})
	return setting, err
}

// isSet reports whether a field has a value anywhere in a document.
func isSet(value any, path string) bool {
	path = strings.TrimPrefix(path, ".")
	switch {
	case value == nil:
		return false
	case path == "":
		return true
	case strings.HasPrefix(path, "[]"):
		items, _ := value.([]any)
		return slices.ContainsFunc(items, func(item any) bool { return isSet(item, path[2:]) })
	case strings.HasPrefix(path, "{}"):
		members, _ := value.(map[string]any)
		for _, member := range members {
			if isSet(member, path[2:]) {
				return true
			}
		}
		return false
	}
	name, rest := path, ""
	if at := strings.IndexAny(path, ".[{"); at >= 0 {
		name, rest = path[:at], path[at:]
	}

	members, _ := value.(map[string]any)
	return isSet(members[name], rest)
}

// Told formats fields together with the objects that set them.
func Told(paths []string, setting map[string][]string) string {
	var parts []string
	for _, path := range paths {
		switch names := setting[path]; len(names) {
		case 0:
			parts = append(parts, path)
		default:
			parts = append(parts, fmt.Sprintf("%s (set in %s)", path, strings.Join(names, ", ")))
		}
	}
	return strings.Join(parts, "; ")
}
