package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

func TestReleaseBefore(t *testing.T) {
	tags := []string{"v0.1.0", "v0.2.0", "v0.10.0", "v0.3.0-rc.1", "vague", "v0.2.1"}
	for version, want := range map[string]string{"v0.1.0": "", "v0.1.1": "v0.1.0", "v0.3.0": "v0.2.1", "v1.0.0": "v0.10.0", "v0.2.0-rc.1": "v0.1.0"} {
		if got := releaseBefore(version, tags); got != want {
			t.Errorf("before %s comes %q, want %q", version, got, want)
		}
	}
}

// OPS-111 (part): each way in which a schema can become narrower is found, and what widens it is not.
func TestSchemasOnlyWiden(t *testing.T) {
	parse := func(text string) *apiextensionsv1.JSONSchemaProps {
		s := &apiextensionsv1.JSONSchemaProps{}
		if err := yaml.UnmarshalStrict([]byte(text), s); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		return s
	}
	for _, c := range []struct{ wide, narrow, narrows, widens string }{
		{"type: object", "{type: object, required: [a]}", "must have a now", ""},
		{"{type: object, properties: {a: {type: string}}}", "type: object", "has no field a any more", ""},
		{"{type: object, x-kubernetes-preserve-unknown-fields: true}", "type: object", "loses unknown fields", ""},
		{"{x-kubernetes-preserve-unknown-fields: true}", "{x-kubernetes-preserve-unknown-fields: true, properties: {a: {type: string}}}",
			"could be anything", ""},
		{"{type: object, additionalProperties: {type: string}}", "type: object", "is no map any more", ""},
		{"{additionalProperties: {type: string}}", "{additionalProperties: {type: string, maxLength: 1}}", "{} has a tighter maxLength", ""},
		{"type: string", "{type: string, enum: [a]}", "has a list of values now", ""},
		{"{type: string, enum: [a, b]}", "{type: string, enum: [a]}", `must not be "b" any more`, ""},
		{"type: string", "{type: string, pattern: a}", "must match", ""},
		{"type: string", "{type: string, format: date}", "must be of format date", ""},
		{"{type: integer, format: int64}", "{type: integer, format: int32}", "must be of format int32", ""},
		{"type: number", "type: integer", "was of type", ""},
		{"type: integer", "{type: integer, maximum: 5}", "tighter maximum", ""},
		{"{type: integer, maximum: 6}", "{type: integer, maximum: 5}", "tighter maximum", ""},
		{"{type: integer, maximum: 5}", "{type: integer, maximum: 5, exclusiveMaximum: true}", "must be below its maximum", ""},
		{"{type: integer, minimum: 5}", "{type: integer, minimum: 6}", "tighter minimum", ""},
		{"{type: integer, minimum: 5}", "{type: integer, minimum: 5, exclusiveMinimum: true}", "must be above its minimum", ""},
		{"{type: integer, multipleOf: 2}", "{type: integer, multipleOf: 4}", "must be a multiple", "must be a multiple"},
		{"type: array", "{type: array, maxItems: 2}", "tighter maxItems", ""},
		{"type: array", "{type: array, minItems: 2}", "tighter minItems", ""},
		{"type: array", "{type: array, uniqueItems: true}", "a value twice", ""},
		{"{items: {type: string}}", "{items: {type: string, minLength: 2}}", "[] has a tighter minLength", ""},
		{"type: object", "{type: object, maxProperties: 2}", "tighter maxProperties", ""},
		{"type: object", "{type: object, minProperties: 2}", "tighter minProperties", ""},
		{"{type: string, nullable: true}", "type: string", "must not be null", ""},
		{"x-kubernetes-int-or-string: true", "type: string", "was of type", ""},
		{"{type: array, x-kubernetes-list-type: atomic}", "{type: array, x-kubernetes-list-type: set}", "merged in another way",
			"merged in another way"},
		{"type: object", "{type: object, x-kubernetes-validations: [{rule: self.a}]}", "has the new rule", ""},
		{"type: object", "{type: object, anyOf: [{required: [a]}]}", "has another anyOf", ""},
		{"{properties: {a: {properties: {b: {type: string}}}}}", "{properties: {a: {properties: {b: {type: string, maxLength: 5}}}}}",
			"kind.a.b has a tighter maxLength", ""},
	} {
		for _, side := range []struct{ old, now, want string }{{c.wide, c.narrow, c.narrows}, {c.narrow, c.wide, c.widens}, {c.wide, c.wide, ""}} {
			found := comparison{}
			found.schema("kind", parse(side.old), parse(side.now))
			if got := fmt.Sprint(found.wrong); side.want == "" && len(found.wrong) > 0 || !strings.Contains(got, side.want) {
				t.Errorf("from %s to %s: %s, want %q", side.old, side.now, got, side.want)
			}
		}
	}
}

// OPS-111: between real releases, with the real definitions, and with the notice that a removed version
// needs. TestSchemasOnlyWiden has all ways in which a schema can be narrower.
func TestDefinitionsOfTheReleaseBefore(t *testing.T) {
	root := t.TempDir()
	git := func(args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "git", append([]string{"-c", "user.name=a", "-c", "user.email=a@example.com"}, args...)...)
		cmd.Dir = root
		if said, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, said)
		}
	}
	folder := filepath.Join(root, definitionsFolder)
	if err := os.CopyFS(folder, os.DirFS(filepath.Join("../..", definitionsFolder))); err != nil {
		t.Fatal(err)
	}
	git("init", "-q")
	git("add", ".")
	git("commit", "-q", "-m", "first")
	r := &release{root: root, version: "v0.1.0", say: t.Logf}
	check := func(version string, want ...string) {
		t.Helper()
		r.version = version
		err := r.checkDefinitions(t.Context())
		if (err == nil) != (len(want) == 0) {
			t.Fatalf("%s: %v", version, err)
		}
		for _, w := range want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %v, want %s", version, err, w)
			}
		}
	}
	change := func(replace ...string) {
		t.Helper()
		path := filepath.Join(folder, "apps.kruise.io_clonesets.yaml")
		text := string(read(t, path))
		changed := strings.NewReplacer(replace...).Replace(text)
		if changed == text {
			t.Fatalf("%q is not there", replace)
		}
		if err := os.WriteFile(path, []byte(changed), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	check("v0.1.0")
	git("tag", "v0.1.0")
	check("v0.1.1")
	change("minReadySeconds:", "minReadyMinutes:")
	check("v0.1.1", "clonesets.apps.kruise.io v1alpha1:.spec has no field minReadySeconds any more", "v1beta1:.spec has no field")
	check("v0.2.0") // the notes of a minor version say so
	change("minReadyMinutes:", "minReadySeconds:", "name: v1alpha1", "name: v1alpha9")
	check("v0.2.0", "version v1alpha1 is gone, and no release has said so before")
	change("name: v1alpha9", "deprecated: true\n    name: v1alpha1")
	git("commit", "-q", "-a", "-m", "deprecated")
	git("tag", "v0.2.0")
	change("name: v1alpha1", "name: v1alpha9")
	check("v0.3.0")
	if err := os.Remove(filepath.Join(folder, "apps.kruise.io_daemonsets.yaml")); err != nil {
		t.Fatal(err)
	}
	check("v0.3.0", "daemonsets.apps.kruise.io is no kind any more")
}
