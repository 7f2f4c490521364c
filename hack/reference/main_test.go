package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const crd = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: boats.example.com}
spec:
  group: example.com
  names: {kind: Boat, plural: boats, singular: boat, shortNames: [bt]}
  scope: Namespaced
  versions:
  - name: v1alpha1
    served: true
    storage: false
    schema:
      openAPIV3Schema:
        type: object
        description: Boat floats. It has a crew.
        properties:
          metadata: {type: object}
          spec:
            type: object
            properties:
              oars: {type: integer, format: int32, description: Oars are two.}
              name: {type: string, description: "Name of {{boat}} | *ship* <none>."}
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        description: Boat floats. It has a crew.
        properties:
          metadata: {type: object}
          spec:
            type: object
            required: [name]
            properties:
              name: {type: string, minLength: 1, default: titanic, description: "Name of {{boat}} | *ship* <none>."}
              crew:
                type: array
                description: Crew rows.
                items:
                  type: object
                  properties:
                    rank: {type: string, enum: [captain, cook], description: Rank on board.}
                    selector:
                      type: object
                      description: Selector of cabins.
                      properties:
                        matchLabels: {type: object, additionalProperties: {type: string}}
                        matchExpressions: {type: array, items: {type: string}}
              depth: {type: number, minimum: 0, maximum: 9, description: "Depth.\n\nIn metres. Default 1.", default: 1}
              load: {x-kubernetes-int-or-string: true, description: Load.}
              cabins: {type: object, additionalProperties: {type: array, items: {type: string}}, description: Cabins by deck.}
`

const constants = `package api

// Annotations of boats (BOAT-1).
const (
	// Anchor on a Boat holds it, as Chain does if it is Heavy (BOAT-2, docs/spec/boats.md).
	Anchor = "example.com/anchor"
	// Chain is the old name (BOAT-3).
	Chain = "example.com/chain"
	// Heavy is a value.
	Heavy = "heavy"
)

// Wind is the annotation with the wind (BT-003).
const Wind = "example.com/wind"

// Colours are no keys.
const Blue = "blue"
`

func TestEveryFieldWithItsVersionsBoundsAndWholeDescription(t *testing.T) {
	crds, api, out := t.TempDir(), t.TempDir(), t.TempDir()
	for file, text := range map[string]string{
		filepath.Join(crds, "boats.yaml"): crd,
		filepath.Join(api, "keys.go"):     constants,
		filepath.Join(out, "gone.md"):     "# A kind that was removed\n",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := run(crds, api, out); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(out, "gone.md")); err == nil {
		t.Error("the page of a kind that does not exist any more is still there")
	}
	for file, lines := range map[string][]string{
		"README.md": {"| [Boat](boat.md) | Boat floats. | example.com | v1, v1alpha1 | `bt` |"},
		"boat.md": {
			"Boat floats. It has a crew.",
			"- `apiVersion` is `example.com/v1`, which is stored, or `example.com/v1alpha1`, `kind` is `Boat`.",
			"- Subresources: `status`.",
			"- Only v1 has `spec.cabins`, `spec.crew`, `spec.depth`, `spec.load`.",
			"- Only v1alpha1 has `spec.oars`.",
			"| `oars`<br>only v1alpha1 | int32 | Oars are two. |",
			"| `cabins`<br>only v1 | map of list of string | Cabins by deck. |",
			"| `crew`<br>only v1 | list of [object](#speccrew) | Crew rows. |",
			"| `depth`<br>only v1 | number | Depth.<br>In metres. Default 1.<br>At least 0. At most 9. |",
			"| `load`<br>only v1 | number or string | Load. |",
			"| `name` | string, **required** in v1 | In v1: Name of &#123;&#123;boat}} \\| \\*ship\\* &lt;none&gt;.<br>" +
				"Default `\"titanic\"`. At least 1 characters.<br>In v1alpha1: Name of &#123;&#123;boat}} \\| \\*ship\\* &lt;none&gt;. |",
			"### spec.crew[]",
			"| `rank` | string | Rank on board.<br>One of `captain`, `cook`. |",
			"| `selector` | label selector | Selector of cabins. |",
		},
		"keys.md": {
			"## Annotations of boats",
			"| `example.com/anchor` | On a Boat holds it, as `example.com/chain` does if it is `heavy`. |",
			"| `example.com/chain` | The old name. |",
			"| `example.com/wind` | The annotation with the wind. |",
		},
	} {
		text, err := os.ReadFile(filepath.Join(out, file)) //nolint:gosec // it is the test's folder
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range lines {
			if !strings.Contains("\n"+string(text), "\n"+line+"\n") {
				t.Errorf("%s lacks the line\n%s\nit is\n%s", file, line, text)
			}
		}
		if regexp.MustCompile(`\b[A-Z]+-\d+\b`).Match(text) {
			t.Errorf("%s names requirements:\n%s", file, text)
		}
	}
}
