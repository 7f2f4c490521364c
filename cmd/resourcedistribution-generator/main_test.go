package main

import (
	"encoding/base64"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// asProgram makes the test's binary the program.
const asProgram = "RUN_AS_GENERATOR"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// build runs kustomize with the generator, as a user does with --enable-alpha-plugins and --enable-exec.
func build(t *testing.T, files map[string]string) (string, error) {
	t.Helper()
	dir := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	files["resourcedistribution-generator"] = fmt.Sprintf("#!/bin/sh\n%s=1 exec '%s'\n", asProgram, self)
	if files["kustomization.yaml"] == "" {
		files["kustomization.yaml"] = "generators: [generate.yaml]\n"
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	options := krusty.MakeDefaultOptions()
	options.PluginConfig = types.EnabledPluginConfig(types.BploUseStaticallyLinked)
	options.PluginConfig.FnpLoadingOptions.EnableExec = true
	made, err := krusty.MakeKustomizer(options).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		return "", err
	}
	text, err := made.AsYaml()
	if err != nil {
		t.Fatal(err)
	}
	return string(text), nil
}

// head is what every input begins with.
const head = `apiVersion: apps.kruise.io/v1alpha1
kind: ResourceDistributionGenerator
metadata:
  name: shared
  annotations:
    config.kubernetes.io/function: |
      exec: {path: ./resourcedistribution-generator}
`

// sameYAML compares two texts as values.
func sameYAML(t *testing.T, got, want string) {
	t.Helper()
	var values [2]any
	for i, text := range []string{got, want} {
		if err := yaml.UnmarshalStrict([]byte(text), &values[i]); err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
	}
	if diff := cmp.Diff(values[1], values[0]); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// OPS-170: kustomize runs the program, which makes a ResourceDistribution out of literals, files and lines of
// variables, text and bytes, for each way to say namespaces, in v1beta1 or, on request, in v1alpha1.
func TestKustomizeGenerates(t *testing.T) {
	bytes := "\xff\x00\x01"
	inBase64 := base64.StdEncoding.EncodeToString([]byte(bytes))
	for name, test := range map[string]struct{ config, want string }{
		"ConfigMap, v1beta1": {head + `resource:
  resourceKind: ConfigMap
  resourceName: settings
  literals: [colour=blue, 'text="a = b"']
  files: [file.txt, other=file.txt, raw.bin]
  envs: [variables.env]
  resourceOptions:
    labels: {purpose: settings}
    annotations: {note: "yes"}
    immutable: true
options:
  labels: {team: a}
  annotations: {why: example}
targets:
  includedNamespaces: [one, two]
  excludedNamespaces: [three]
  namespaceLabelSelector:
    matchLabels: {tier: web}
    matchExpressions: [{key: zone, operator: In, values: [a, b]}]
`, `apiVersion: apps.kruise.io/v1beta1
kind: ResourceDistribution
metadata: {name: shared, labels: {team: a}, annotations: {why: example}}
spec:
  resource:
    apiVersion: v1
    kind: ConfigMap
    metadata: {name: settings, labels: {purpose: settings}, annotations: {note: "yes"}}
    data: {colour: blue, text: a = b, file.txt: "some\ntext\n", other: "some\ntext\n", A: "1", B: two words}
    binaryData: {raw.bin: ` + inBase64 + `}
    immutable: true
  targets:
    includedNamespaces: {list: [{name: one}, {name: two}]}
    excludedNamespaces: {list: [{name: three}]}
    namespaceSelector:
      matchLabels: {tier: web}
      matchExpressions: [{key: zone, operator: In, values: [a, b]}]
`},
		"Secret, v1alpha1": {head + `outputVersion: v1alpha1
resource:
  resourceKind: Secret
  resourceName: login
  type: example.com/login
  literals: [user=me]
  files: [raw.bin]
targets:
  allNamespaces: true
  namespaceLabelSelector: {matchLabels: {tier: web}}
`, `apiVersion: apps.kruise.io/v1alpha1
kind: ResourceDistribution
metadata: {name: shared}
spec:
  resource:
    apiVersion: v1
    kind: Secret
    metadata: {name: login}
    type: example.com/login
    data: {user: bWU=, raw.bin: ` + inBase64 + `}
  targets:
    allNamespaces: true
    namespaceLabelSelector: {matchLabels: {tier: web}}
`},
		"Secret of no type": {head + `resource: {resourceKind: Secret, resourceName: login, literals: [user=me]}
targets: {includedNamespaces: [one]}
`, `apiVersion: apps.kruise.io/v1beta1
kind: ResourceDistribution
metadata: {name: shared}
spec:
  resource: {apiVersion: v1, kind: Secret, metadata: {name: login}, type: Opaque, data: {user: bWU=}}
  targets: {includedNamespaces: {list: [{name: one}]}}
`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := build(t, map[string]string{"generate.yaml": test.config, "file.txt": "some\ntext\n", "raw.bin": bytes,
				"variables.env": "A=1\nB=two words\n"})
			if err != nil {
				t.Fatal(err)
			}
			sameYAML(t, got, test.want)
		})
	}
}

// The example of the manual gives what stands there.
func TestTheExampleOfTheManualGivesWhatStandsThere(t *testing.T) {
	page, err := os.ReadFile("../../docs/kinds/resourcedistribution-generator.md")
	if err != nil {
		t.Fatal(err)
	}
	var blocks []string
	for _, rest := range strings.Split(string(page), "```yaml\n")[1:] {
		block, _, _ := strings.Cut(rest, "```")
		blocks = append(blocks, block)
	}
	if len(blocks) != 3 {
		t.Fatalf("%d blocks", len(blocks))
	}
	got, err := build(t, map[string]string{"kustomization.yaml": blocks[0], "settings.yaml": blocks[1]})
	if err != nil {
		t.Fatal(err)
	}
	if got != blocks[2] {
		t.Errorf("got\n%s", got)
	}
}

// OPS-170 (part): empty targets are an error, and so is whatever else is wrong; all of it is said at once.
func TestKustomizeRefuses(t *testing.T) {
	const good = "resource: {resourceKind: Secret, resourceName: login, literals: [user=me]}\n"
	for name, test := range map[string]struct {
		config string
		want   []string
	}{
		"no targets":             {head + good, []string{"targets: selects no namespace"}},
		"empty targets":          {head + good + "targets: {excludedNamespaces: [a], namespaceLabelSelector: {}}\n", []string{"targets: selects no namespace"}},
		"selector":               {head + good + "targets: {namespaceLabelSelector: {matchExpressions: [{key: a, operator: Of}]}}\n", []string{`targets.namespaceLabelSelector: "Of" is not a valid label selector operator`}},
		"several":                {head + "outputVersion: v1\nresource: {resourceKind: Pod, type: x}\n", []string{"outputVersion: must be", "resource.resourceKind: must be ConfigMap or Secret", "resource.resourceName: is required", "resource.type: is for Secrets only", "targets: selects no namespace"}},
		"unknown field":          {head + good + "targets: {all: true}\n", []string{`unknown field "targets.all"`}},
		"file that is not there": {head + "resource: {resourceKind: Secret, resourceName: login, files: [absent]}\ntargets: {allNamespaces: true}\n", []string{"resource: ", "absent"}},
		"file outside":           {head + "resource: {resourceKind: Secret, resourceName: login, files: [/etc/hostname]}\ntargets: {allNamespaces: true}\n", []string{"resource: ", "/etc/hostname", "is not in or below"}},
		"key twice":              {head + "resource: {resourceKind: Secret, resourceName: login, literals: [a=b, a=c]}\ntargets: {allNamespaces: true}\n", []string{"resource: ", "repeats the key `a`"}},
		"no literal":             {head + "resource: {resourceKind: Secret, resourceName: login, literals: [a]}\ntargets: {allNamespaces: true}\n", []string{"resource: ", "a"}},
		"other kind":             {strings.Replace(head, "kind: Res", "kind: Mes", 1) + good + "targets: {allNamespaces: true}\n", []string{"apiVersion, kind: must be apps.kruise.io/v1alpha1, ResourceDistributionGenerator"}},
	} {
		t.Run(name, func(t *testing.T) {
			input := "apiVersion: config.kubernetes.io/v1\nkind: ResourceList\nitems: []\nfunctionConfig:\n  " +
				strings.ReplaceAll(test.config, "\n", "\n  ")
			program := exec.CommandContext(t.Context(), os.Args[0])
			program.Env, program.Stdin, program.Dir = append(os.Environ(), asProgram+"=1"), strings.NewReader(input), t.TempDir()
			got, err := program.CombinedOutput()
			if err == nil {
				t.Fatalf("accepted:\n%s", got)
			}
			for _, part := range test.want {
				if !strings.Contains(string(got), part) {
					t.Errorf("%q is not in %s", part, got)
				}
			}
		})
	}
	if got, err := build(t, map[string]string{"generate.yaml": head + good}); err == nil {
		t.Errorf("kustomize went on with\n%s", got)
	}
}
