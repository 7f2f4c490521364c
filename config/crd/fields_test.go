// Package crd_test compares the generated CustomResourceDefinitions with the field lists of the
// specification.
package crd_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sort"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/afloat-project/afloat/internal/framework"
	"github.com/afloat-project/afloat/internal/registry"
)

// TestServedFieldsAreThoseOfTheSpecification covers the field list of every kind with its defaults and
// printed columns, CS-013, CS-016, CS-017 (CloneSet), ASTS-010, EJ-010, CRR-139, IMG-010, OPS-104, SS-012
// (TestDefaults of SidecarSets has the rest), WS-019, WS-207.
func TestServedFieldsAreThoseOfTheSpecification(t *testing.T) {
	files, err := filepath.Glob("bases/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no generated definitions: %v", err)
	}
	for _, file := range files {
		crd := readCRD(t, file)
		for i := range crd.Spec.Versions {
			version := &crd.Spec.Versions[i]
			list := fmt.Sprintf("%s.%s.%s.txt", crd.Spec.Names.Plural, crd.Spec.Group, version.Name)
			t.Run(list, func(t *testing.T) {
				want, err := os.ReadFile(filepath.Join("../../docs/spec/fields", list))
				if err != nil {
					t.Fatal(err)
				}
				got := slices.DeleteFunc(render(crd, version), func(line string) bool { return newerKubernetes[line] || deliberate.MatchString(line) })
				if diff := cmp.Diff(strings.Split(strings.TrimSpace(string(want)), "\n"), got); diff != "" {
					t.Errorf("served fields differ from the specification (-want +got):\n%s", diff)
				}
			})
		}
	}
}

// What kubectl explain shows is for users, who do not know the requirements of docs/spec by their numbers.
func TestExplainShowsNoNumbersOfRequirements(t *testing.T) {
	number := regexp.MustCompile(`[A-Z]{2,4}-[A-Z]?[0-9]`)
	files, err := filepath.Glob("bases/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no generated definitions: %v", err)
	}
	for _, file := range files {
		crd := readCRD(t, file)
		for i := range crd.Spec.Versions {
			version := &crd.Spec.Versions[i]
			for _, column := range version.AdditionalPrinterColumns {
				if number.MatchString(column.Description) {
					t.Errorf("%s %s, column %s: %q", crd.Spec.Names.Kind, version.Name, column.Name, column.Description)
				}
			}
			describe(crd.Spec.Names.Kind+" "+version.Name, version.Schema.OpenAPIV3Schema, func(path, description string) {
				if number.MatchString(description) {
					t.Errorf("%s: %q; numbers of requirements stand in a line of their own, as // +spec:…, which is not generated", path, description)
				}
			})
		}
	}
}

// describe visits a field and all below it.
func describe(path string, field *apiextensionsv1.JSONSchemaProps, visit func(path, description string)) {
	visit(path, field.Description)
	for _, name := range fieldNames(field) {
		child := field.Properties[name]
		describe(path+"."+name, &child, visit)
	}
	if field.AdditionalProperties != nil && field.AdditionalProperties.Schema != nil {
		describe(path+"{}", field.AdditionalProperties.Schema, visit)
	}
	if field.Items != nil && field.Items.Schema != nil {
		describe(path+"[]", field.Items.Schema, visit)
	}
}

// deliberate are fields that the reference's definitions lack, so that its API server drops what users write
// there (ACJ-014), or that its results do without (PPM-082).
var deliberate = regexp.MustCompile(`^spec\.template\.(broadcastJobTemplate|imageListPullJobTemplate)\.metadata\.(labels|annotations)` +
	`|^status\.podProbeStatuses\[]\.probeStates\[]\.target\t`)

// newerKubernetes are fields that types of Kubernetes got after the lists were written.
var newerKubernetes = map[string]bool{"spec.containers[].preStop.httpGet.protocol\tstring": true}

// OPS-070, OPS-071: real Service name and namespace, path and review versions; no bundle, the manager fills
// it in.
func TestConvertedKindsNameTheService(t *testing.T) {
	for i := range registry.Kinds {
		kind := &registry.Kinds[i]
		crd := readCRD(t, "bases/"+kind.Group+"_"+kind.Plural+".yaml")
		if kind.Conversion != nil {
			namesTheService(t, crd)
		} else if crd.Spec.Conversion != nil {
			t.Errorf("%s: versions are alike (OPS-070, IMG-195), but converted by %+v", kind.Plural, crd.Spec.Conversion)
		}
	}
}

// OPS-073: v1beta1 is what is stored, but of kinds that have no such version, and so what everything is
// converted to that an older installation has stored in v1alpha1, which is served, too.
// TestOnlyTheBundleOfDefinitionsIsWritten shows that the manager leaves status.storedVersions alone, and
// TestRightsOnDefinitions that it could not change them: it migrates nothing, which it may.
func TestV1beta1IsStored(t *testing.T) {
	files, err := filepath.Glob("bases/*.yaml")
	if err != nil || len(files) != len(registry.Kinds) {
		t.Fatal(files, err)
	}
	for _, file := range files {
		crd := readCRD(t, file)
		got := ""
		for _, version := range crd.Spec.Versions {
			got += fmt.Sprintf("%s served %t stored %t; ", version.Name, version.Served, version.Storage)
		}
		want := "v1alpha1 served true stored false; v1beta1 served true stored true; "
		if i := slices.IndexFunc(registry.Kinds, func(k framework.Kind) bool { return k.Definition() == crd.Name }); i >= 0 &&
			registry.Kinds[i].Version == "v1alpha1" {
			want = "v1alpha1 served true stored true; " // and no other version (EJ-002 (part))
		}
		if got != want {
			t.Errorf("%s: %s", crd.Name, got)
		}
	}
}

func namesTheService(t *testing.T, crd *apiextensionsv1.CustomResourceDefinition) {
	t.Helper()
	path, port := "/convert", int32(443)
	want := &apiextensionsv1.CustomResourceConversion{
		Strategy: apiextensionsv1.WebhookConverter,
		Webhook: &apiextensionsv1.WebhookConversion{
			ClientConfig: &apiextensionsv1.WebhookClientConfig{Service: &apiextensionsv1.ServiceReference{
				Namespace: "kruise-system", Name: "kruise-webhook-service", Path: &path, Port: &port,
			}},
			ConversionReviewVersions: []string{"v1", "v1beta1"},
		},
	}
	if diff := cmp.Diff(want, crd.Spec.Conversion); diff != "" {
		t.Errorf("%s: %s", crd.Name, diff)
	}
}

func readCRD(t *testing.T, file string) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict(data, crd); err != nil {
		t.Fatal(err)
	}
	return crd
}

// render writes one version of a definition in the form of docs/spec/fields.
func render(crd *apiextensionsv1.CustomResourceDefinition, version *apiextensionsv1.CustomResourceDefinitionVersion) []string {
	names := crd.Spec.Names
	lines := []string{fmt.Sprintf("# %s/%s kind=%s plural=%s singular=%s shortNames=%s categories=%s scope=%s served=%s storage=%s",
		crd.Spec.Group, version.Name, names.Kind, names.Plural, names.Singular, strings.Join(names.ShortNames, ","),
		strings.Join(names.Categories, ","), crd.Spec.Scope, flag(version.Served), flag(version.Storage))}
	if line := renderSubresources(version.Subresources); line != "" {
		lines = append(lines, line)
	}
	for _, column := range version.AdditionalPrinterColumns {
		lines = append(lines, fmt.Sprintf("# column: %s %s %s priority=%d", column.Name, column.Type, column.JSONPath, column.Priority))
	}
	root := version.Schema.OpenAPIV3Schema
	for _, name := range fieldNames(root) {
		if name == "apiVersion" || name == "kind" || name == "metadata" {
			continue
		}
		field := root.Properties[name]
		lines = append(lines, renderField(name, &field, contains(root.Required, name))...)
	}
	return lines
}

func renderSubresources(sub *apiextensionsv1.CustomResourceSubresources) string {
	if sub == nil {
		return ""
	}
	var names []string
	scale := ""
	if sub.Scale != nil {
		names = append(names, "scale")
		var paths []string
		if path := sub.Scale.LabelSelectorPath; path != nil && *path != "" {
			paths = append(paths, fmt.Sprintf("'labelSelectorPath': '%s'", *path))
		}
		paths = append(paths, fmt.Sprintf("'specReplicasPath': '%s'", sub.Scale.SpecReplicasPath),
			fmt.Sprintf("'statusReplicasPath': '%s'", sub.Scale.StatusReplicasPath))
		scale = " scale={" + strings.Join(paths, ", ") + "}"
	}
	if sub.Status != nil {
		names = append(names, "status")
	}
	return "# subresources: " + strings.Join(names, ", ") + scale
}

// renderField writes a field and all below it.
func renderField(path string, field *apiextensionsv1.JSONSchemaProps, required bool) []string {
	kind := field.Type
	if kind == "" {
		kind = "any"
	}
	line := path + "\t" + kind
	if required {
		line += " required"
	}
	if field.Enum != nil {
		var values []string
		for _, value := range field.Enum {
			values = append(values, "'"+strings.Trim(string(value.Raw), `"`)+"'")
		}
		line += " enum=[" + strings.Join(values, ", ") + "]"
	}
	if field.Default != nil {
		line += " default=" + scalar(string(field.Default.Raw))
	}
	if field.XIntOrString {
		line += " int-or-string=True"
	}
	if field.XPreserveUnknownFields != nil {
		line += " preserve-unknown-fields=" + flag(*field.XPreserveUnknownFields)
	}
	if field.XEmbeddedResource {
		line += " embedded-resource=True"
	}
	if field.Format != "" {
		line += " format=" + field.Format
	}
	line += renderLimits(field)
	if field.XListType != nil {
		line += " list-type=" + *field.XListType
	}
	if len(field.XListMapKeys) > 0 {
		line += " list-map-keys=['" + strings.Join(field.XListMapKeys, "', '") + "']"
	}
	lines := []string{line}
	for _, name := range fieldNames(field) {
		child := field.Properties[name]
		lines = append(lines, renderField(path+"."+name, &child, contains(field.Required, name))...)
	}
	if field.AdditionalProperties != nil && field.AdditionalProperties.Schema != nil {
		lines = append(lines, renderField(path+"{}", field.AdditionalProperties.Schema, false)...)
	}
	if field.Items != nil && field.Items.Schema != nil {
		lines = append(lines, renderField(path+"[]", field.Items.Schema, false)...)
	}
	return lines
}

func renderLimits(field *apiextensionsv1.JSONSchemaProps) string {
	line := ""
	if field.Minimum != nil {
		line += fmt.Sprintf(" minimum=%v", *field.Minimum)
	}
	if field.MinLength != nil {
		line += fmt.Sprintf(" minLength=%d", *field.MinLength)
	}
	if field.MaxLength != nil {
		line += fmt.Sprintf(" maxLength=%d", *field.MaxLength)
	}
	if field.Pattern != "" {
		line += " pattern=" + field.Pattern
	}
	return line
}

func fieldNames(field *apiextensionsv1.JSONSchemaProps) []string {
	names := make([]string, 0, len(field.Properties))
	for name := range field.Properties {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

// scalar and flag write values as the lists do.
func scalar(raw string) string {
	switch raw {
	case "true", "false":
		return flag(raw == "true")
	}
	return strings.Trim(raw, `"`)
}

func flag(on bool) string {
	if on {
		return "True"
	}
	return "False"
}

func contains(list []string, name string) bool {
	for _, item := range list {
		if item == name {
			return true
		}
	}
	return false
}
