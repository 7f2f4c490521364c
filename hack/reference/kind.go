package main

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/version"
)

// kind is a kind with all its versions, the newest first.
type kind struct {
	crd      *apiextensionsv1.CustomResourceDefinition
	versions []apiextensionsv1.CustomResourceDefinitionVersion
}

func newKind(crd *apiextensionsv1.CustomResourceDefinition) kind {
	versions := slices.Clone(crd.Spec.Versions)
	slices.SortFunc(versions, func(a, b apiextensionsv1.CustomResourceDefinitionVersion) int {
		return -version.CompareKubeAwareVersionStrings(a.Name, b.Name)
	})
	return kind{crd: crd, versions: versions}
}

func (k kind) file() string { return strings.ToLower(k.crd.Spec.Names.Kind) + ".md" }

func (k kind) names() []string {
	var names []string
	for _, v := range k.versions {
		names = append(names, v.Name)
	}
	return names
}

// summary is the first sentence of the description.
func (k kind) summary() string {
	text := paragraphs(k.versions[0].Schema.OpenAPIV3Schema.Description)[0]
	if first, _, more := strings.Cut(text, ". "); more {
		return first + "."
	}
	return text
}

// root is the kind's schema in every version, without what every object has.
func (k kind) root() field {
	f := field{versions: map[string]*apiextensionsv1.JSONSchemaProps{}}
	for _, v := range k.versions {
		schema := v.Schema.OpenAPIV3Schema.DeepCopy()
		for _, name := range []string{"apiVersion", "kind", "metadata"} {
			delete(schema.Properties, name)
		}
		f.versions[v.Name] = schema
	}
	return f
}

func (k kind) page() string {
	names := k.crd.Spec.Names
	var b strings.Builder
	fmt.Fprintf(&b, "# %s fields\n\n%s", names.Kind, generated)
	fmt.Fprintf(&b, "%s\n\n", strings.ReplaceAll(k.text(k.root()), "<br>", "\n\n"))
	guide := cmp.Or(guides[names.Kind], strings.ToLower(names.Kind))
	if _, err := os.Stat(filepath.Join("docs", "kinds", guide+".md")); err == nil {
		fmt.Fprintf(&b, "How to use it is told in [the manual](../kinds/%s.md).\n\n", guide)
	}
	fmt.Fprintf(&b, "- `apiVersion` is %s, `kind` is `%s`.\n", k.apiVersions(), names.Kind)
	scope := "in a namespace"
	if k.crd.Spec.Scope == apiextensionsv1.ClusterScoped {
		scope = "in the cluster, without a namespace"
	}
	fmt.Fprintf(&b, "- It lives %s. kubectl calls it %s.\n", scope,
		code(append([]string{names.Plural, names.Singular}, names.ShortNames...)))
	if sub := k.subresources(); len(sub) > 0 {
		fmt.Fprintf(&b, "- Subresources: %s.\n", code(sub))
	}
	if only := k.differences(); only != "" {
		fmt.Fprintf(&b, "\n## Versions\n\n%s", only)
	}

	for _, s := range k.sections(k.root(), "", nil) {
		b.WriteString(s)
	}

	if columns := k.columns(); columns != "" {
		fmt.Fprintf(&b, "\n## Columns of kubectl get\n\n| column | value |\n|---|---|\n%s", columns)
	}

	return b.String()
}

func (k kind) apiVersions() string {
	var all []string
	for _, v := range k.versions {
		text := fmt.Sprintf("`%s/%s`", k.crd.Spec.Group, v.Name)
		if v.Storage && len(k.versions) > 1 {
			text += ", which is stored"
		}
		all = append(all, text)
	}
	return strings.Join(all, ", or ")
}

func (k kind) subresources() []string {
	var all []string
	if s := k.versions[0].Subresources; s != nil {
		if s.Status != nil {
			all = append(all, "status")
		}
		if s.Scale != nil {
			all = append(all, "scale")
		}
	}
	return all
}

// columns are the printed columns of the stored version; those with a priority are for -o wide.
func (k kind) columns() string {
	var b strings.Builder
	for _, c := range k.versions[0].AdditionalPrinterColumns {
		fmt.Fprintf(&b, "| %s", escape(c.Name))
		if c.Priority > 0 {
			b.WriteString(", with `-o wide`")
		}
		fmt.Fprintf(&b, " | `%s`", c.JSONPath)
		if c.Description != "" {
			fmt.Fprintf(&b, ": %s", escape(c.Description))
		}
		b.WriteString(" |\n")
	}

	return b.String()
}

// differences lists the fields that not all versions have; of an object the object alone.
func (k kind) differences() string {
	only := map[string][]string{}
	var walk func(f field, path string)
	walk = func(f field, path string) {
		for _, name := range f.children() {
			child := f.child(name)
			if in := k.only(f, child); in != "" {
				only[in] = append(only[in], join(path, name))
				continue
			}
			entry, suffix := child.entry()
			walk(entry, join(path, name)+suffix)
		}
	}
	walk(k.root(), "")
	var b strings.Builder
	for _, in := range slices.Sorted(maps.Keys(only)) {
		fmt.Fprintf(&b, "- Only %s has %s.\n", in, code(only[in]))
	}

	return b.String()
}

// only names the versions that a child has, if its parent has more of them.
func (k kind) only(parent, child field) string {
	var have []string
	for _, v := range k.names() {
		if child.versions[v] != nil {
			have = append(have, v)
		}
	}
	if len(have) == len(parent.versions) {
		return ""
	}
	return strings.Join(have, ", ")
}

// sections are the tables of an object and of all objects within.
func (k kind) sections(f field, path string, in []string) []string {
	var rows strings.Builder
	var rest []string
	for _, name := range f.children() {
		child := f.child(name)
		at := join(path, name)
		entry, suffix := child.entry()
		var link string
		if len(entry.children()) > 0 && entry.known() == "" {
			link = at + suffix
			rest = append(rest, k.sections(entry, link, append(slices.Clone(in), name))...)
		}
		if path == "" {
			continue
		}
		only := k.only(f, child)
		if only != "" {
			only = "<br>only " + only
		}
		fmt.Fprintf(&rows, "| `%s`%s | %s | %s |\n", name, only, k.typ(f, child, name, link), k.text(child))
	}

	if path == "" {
		return rest
	}

	level := "##"
	if len(in) > 1 {
		level = "###"
	}
	heading := fmt.Sprintf("\n%s %s\n\n", level, strings.ReplaceAll(path, "*", `\*`))
	if len(f.versions) < len(k.versions) {
		heading += "Only in " + strings.Join(slices.Sorted(maps.Keys(f.versions)), ", ") + ".\n\n"
	}

	return append([]string{heading + "| field | type | meaning |\n|---|---|---|\n" + rows.String()}, rest...)
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

func code(names []string) string {
	var all []string
	for _, name := range names {
		all = append(all, "`"+name+"`")
	}
	return strings.Join(all, ", ")
}
