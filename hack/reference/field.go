package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/version"
)

// field is a field with its schema in each version that has it.
type field struct {
	versions map[string]*apiextensionsv1.JSONSchemaProps
}

func (f field) children() []string {
	all := map[string]bool{}
	for _, schema := range f.versions {
		for name := range schema.Properties {
			all[name] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

func (f field) child(name string) field {
	child := field{versions: map[string]*apiextensionsv1.JSONSchemaProps{}}
	for version, schema := range f.versions {
		if property, ok := schema.Properties[name]; ok {
			child.versions[version] = &property
		}
	}
	return child
}

// entry is what a list or a map holds, and how that is written behind a path; the field itself if it is
// neither.
func (f field) entry() (entry field, suffix string) {
	entry = field{versions: map[string]*apiextensionsv1.JSONSchemaProps{}}
	for name, schema := range f.versions {
		switch {
		case schema.Items != nil:
			entry.versions[name], suffix = schema.Items.Schema, "[]"
		case schema.AdditionalProperties != nil && schema.AdditionalProperties.Schema != nil:
			entry.versions[name], suffix = schema.AdditionalProperties.Schema, ".*"
		}
	}

	if suffix == "" {
		return f, ""
	}

	deeper, more := entry.entry()
	return deeper, suffix + more
}

// any is the schema of the newest version that has the field.
func (f field) any() *apiextensionsv1.JSONSchemaProps {
	return f.versions[slices.MaxFunc(slices.Collect(maps.Keys(f.versions)),
		version.CompareKubeAwareVersionStrings)]
}

// known names objects of Kubernetes that every reader knows; their fields are not listed.
func (f field) known() string {
	switch names := strings.Join(f.children(), " "); names {
	case "matchExpressions matchLabels":
		return "label selector"
	case "matchExpressions matchFields":
		return "node selector term"
	}
	return ""
}

// typ is the type of a child, with whether it is required and a link to the section of its fields.
func (k kind) typ(parent, child field, name, link string) string {
	entry, suffix := child.entry()
	text := typeName(entry)
	if link != "" {
		text = fmt.Sprintf("[%s](#%s)", text, anchor(link))
	}
	text = strings.NewReplacer("[]", "list of ", ".*", "map of ").Replace(suffix) + text

	var required []string
	for _, version := range k.names() {
		if schema := parent.versions[version]; schema != nil && slices.Contains(schema.Required, name) {
			required = append(required, version)
		}
	}

	switch len(required) {
	case 0:
	case len(child.versions):
		text += ", **required**"
	default:
		text += ", **required** in " + strings.Join(required, ", ")
	}

	return text
}

func typeName(f field) string {
	schema := f.any()
	if known := f.known(); known != "" {
		return known
	}

	switch {
	case schema.XIntOrString:
		return "number or string"
	case schema.Type == "" && schema.XPreserveUnknownFields != nil:
		return "any"
	case schema.Format == "date-time":
		return "time"
	case schema.Type == "integer" && schema.Format != "":
		return schema.Format
	}

	return schema.Type
}

// anchor is the anchor of a heading with this text, as on GitHub: letters, digits, hyphens and underscores.
func anchor(heading string) string {
	return strings.ToLower(strings.Map(func(r rune) rune {
		if strings.ContainsRune(".[]*", r) {
			return -1
		}
		return r
	}, heading))
}

// text is what a cell says of a field: once if all versions say the same.
func (k kind) text(f field) string {
	var all []string
	said := map[string][]string{}
	for _, version := range k.names() {
		if schema := f.versions[version]; schema != nil {
			text := describe(schema)
			if len(said[text]) == 0 {
				all = append(all, text)
			}
			said[text] = append(said[text], version)
		}
	}

	if len(all) == 1 {
		return all[0]
	}

	for i, text := range all {
		all[i] = fmt.Sprintf("In %s: %s", strings.Join(said[text], ", "), text)
	}

	return strings.Join(all, "<br>")
}

// describe gives the description and the bounds of a schema, and of what it lists.
func describe(schema *apiextensionsv1.JSONSchemaProps) string {
	var lines []string
	for _, p := range paragraphs(schema.Description) {
		if p != "" {
			lines = append(lines, escape(p))
		}
	}

	if facts := facts(schema); len(facts) > 0 {
		lines = append(lines, strings.Join(facts, " "))
	}
	entry := schema
	for entry.Items != nil || entry.AdditionalProperties != nil && entry.AdditionalProperties.Schema != nil {
		if entry.Items != nil {
			entry = entry.Items.Schema
		} else {
			entry = entry.AdditionalProperties.Schema
		}
	}

	if entry != schema && len(entry.Properties) == 0 {
		if facts := facts(entry); len(facts) > 0 {
			lines = append(lines, "Each: "+strings.Join(facts, " "))
		}
	}

	return strings.Join(lines, "<br>")
}

// facts are the default and the bounds that the API server itself holds.
func facts(s *apiextensionsv1.JSONSchemaProps) []string {
	var all []string
	add := func(format string, value ...any) { all = append(all, fmt.Sprintf(format, value...)) }
	if s.Default != nil && !strings.Contains(s.Description,
		"Default "+strings.Trim(string(s.Default.Raw), `"`)) {
		add("Default `%s`.", s.Default.Raw)
	}
	if len(s.Enum) > 0 {
		var values []string
		for _, value := range s.Enum {
			values = append(values, strings.Trim(string(value.Raw), `"`))
		}
		add("One of %s.", code(values))
	}
	if s.Minimum != nil {
		add("At least %v.", *s.Minimum)
	}
	if s.Maximum != nil {
		add("At most %v.", *s.Maximum)
	}
	if s.MinLength != nil {
		add("At least %d characters.", *s.MinLength)
	}
	if s.MaxLength != nil {
		add("At most %d characters.", *s.MaxLength)
	}
	if s.Pattern != "" {
		add("Matches `%s`.", strings.ReplaceAll(s.Pattern, "|", `\|`))
	}
	if s.MinItems != nil {
		add("At least %d entries.", *s.MinItems)
	}
	if s.MaxItems != nil {
		add("At most %d entries.", *s.MaxItems)
	}
	if len(s.XListMapKeys) > 0 {
		add("Each %s once.", code(s.XListMapKeys))
	}

	for _, rule := range s.XValidations {
		add("%s.", escape(strings.TrimSuffix(rule.Message, ".")))
	}

	return all
}

// paragraphs splits a description at empty lines and joins the lines of each.
func paragraphs(text string) []string {
	var all []string
	for p := range strings.SplitSeq(text, "\n\n") {
		all = append(all, strings.Join(strings.Fields(p), " "))
	}
	return all
}

var escapes = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", "|", `\|`, "*", `\*`, "_", `\_`,
	"[", `\[`, "]", `\]`, "{{", "&#123;&#123;")

// escape makes plain text of Go comments plain text of Markdown, in a cell of a table.
func escape(text string) string { return escapes.Replace(text) }
