//go:build integration

package integration

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// made creates an object from YAML, and deletes it after the test.
func made(t *testing.T, document string) *unstructured.Unstructured {
	t.Helper()
	object := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(document), &object.Object); err != nil {
		t.Fatal(err)
	}
	if err := kube.Create(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = kube.Delete(context.Background(), object) })
	return object
}

// refusedFields returns the fields that an answer with that code names.
func refusedFields(t *testing.T, err error, code int32) []string {
	t.Helper()
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Code != code || status.Status().Details == nil {
		t.Fatalf("refusal: got %v, want code %d and details", err, code)
	}
	var fields []string
	for _, cause := range status.Status().Details.Causes {
		fields = append(fields, cause.Field)
	}
	return fields
}

// WS-030 to WS-045: invalid objects are refused with the field, in both versions; node selectors and
// tolerations by the rules of this API server.
func TestBadWorkloadSpreads(t *testing.T) {
	for name, test := range map[string]struct{ beta, field, text string }{
		"a kind that nobody listed (WS-032)": {`{spec: {targetRef: {apiVersion: x/v1, kind: Thing}}}`, "spec.targetRef", "not listed"},
		"no subsets (WS-033)":                {`{spec: {subsets: []}}`, "spec.subsets", "at least one"},
		"a name twice (WS-034)":              {`{spec: {subsets: [{name: a}, {name: a}]}}`, "spec.subsets[1].name", "another subset"},
		"an operator (WS-035)": {
			`{spec: {subsets: [{name: a}, {name: b, requiredNodeSelector: {matchExpressions: [{key: zone, operator: Near}]}}]}}`,
			"spec.subsets[1].requiredNodeSelector.matchExpressions[0].operator", "Near"},
		"In without values (WS-035)": {
			`{spec: {subsets: [{name: b, requiredNodeSelector: {matchExpressions: [{key: zone, operator: In}]}}]}}`,
			"spec.subsets[0].requiredNodeSelector.matchExpressions[0].values", ""},
		"a weight (WS-035)": {`{spec: {subsets: [{name: a}, {name: b, preferredNodeSelector: [{weight: 1, preference: {matchExpressions: [{key: zone, operator: Exists}]}}, {weight: 101, preference: {matchExpressions: [{key: zone, operator: Exists}]}}]}]}}`, "spec.subsets[1].preferredNodeSelector[1].weight", "1-100"},
		"a toleration (WS-035)": {
			`{spec: {subsets: [{name: a, tolerations: [{key: k, operator: Exists}, {key: k, operator: Exists, value: v}]}]}}`,
			"spec.subsets[0].tolerations[1].operator", "value must be empty"},
		"a percentage (WS-037)": {`{spec: {subsets: [{name: a, maxReplicas: "x%"}, {name: b}]}}`,
			"spec.subsets[0].maxReplicas", "percentage"},
		"a patch that is none (WS-045)": {`{spec: {subsets: [{name: a, patch: text}]}}`, "spec.subsets[0].patch", "JSON object"},
		"too long (WS-041)": {
			`{spec: {scheduleStrategy: {type: Adaptive, adaptive: {rescheduleCriticalSeconds: 296}}, subsets: [{name: a}, {name: b}]}}`,
			"spec.scheduleStrategy.adaptive.rescheduleCriticalSeconds", "295"},
	} {
		for _, version := range served {
			t.Run(name+" "+version, func(t *testing.T) {
				over := test.beta
				if version == "v1alpha1" {
					over = strings.NewReplacer("requiredNodeSelector:", "requiredNodeSelectorTerm:", "preferredNodeSelector:",
						"preferredNodeSelectorTerms:").Replace(over)
				}
				err := kube.Create(t.Context(), operation(version, "WorkloadSpread", "bad", over), client.DryRunAll)
				if fields := refusedFields(t, err, 400); !slices.Equal(fields, []string{test.field}) {
					t.Errorf("refused fields: got %q, want %s: %v", fields, test.field, err)
				}
				if !strings.Contains(err.Error(), test.text) {
					t.Errorf("refused with %q, want %q in it", err, test.text)
				}
			})
		}
	}
	t.Run("a second one (WS-043)", func(t *testing.T) {
		first := operation("v1beta1", "WorkloadSpread", "first", `{spec: {targetRef: {name: taken}}}`)
		if err := kube.Create(t.Context(), first); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = kube.Delete(context.Background(), first) })
		second := operation("v1alpha1", "WorkloadSpread", "second", `{spec: {targetRef: {apiVersion: apps/v1beta2, name: taken}}}`)
		if err := wait(func() error { // until the cache of the webhook knows the first
			if err := kube.Create(t.Context(), second.DeepCopy(), client.DryRunAll); err == nil ||
				!strings.Contains(err.Error(), "WorkloadSpread first") {
				return fmt.Errorf("answer %w", err)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		// WS-044; a patch, because the controller writes the status meanwhile.
		err := kube.Patch(t.Context(), first, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"targetRef":{"name":"free"}}}`)))
		if fields := refusedFields(t, err, 400); !slices.Equal(fields, []string{"spec.targetRef"}) {
			t.Errorf("refused fields: got %q, want spec.targetRef: %v", fields, err)
		}
	})
}

// WS-045 to WS-048, WS-190, WS-191, WS-193: patches are judged on the template of the target, by its group
// and kind, with its claims as volumes, which may be block devices.
func TestWorkloadSpreadPatches(t *testing.T) {
	const template = `template: {metadata: {labels: {app: patched}}, spec: {RESTART containers: [{name: app, image: "i:1", volumeMounts: [{name: data, mountPath: /data}], volumeDevices: [{name: disk, devicePath: /dev/x}]}],
		initContainers: [{name: init, image: "i:1", volumeMounts: [{name: data, mountPath: /data}]}], volumes: VOLUMES}}`
	const claims = `volumeClaimTemplates: [{metadata: {name: data}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}},
		{metadata: {name: disk}, spec: {accessModes: [ReadWriteOnce], volumeMode: Block, resources: {requests: {storage: 1Gi}}}}]`
	with := func(volumes, restart string) string {
		return strings.NewReplacer("VOLUMES", volumes, "RESTART", restart).Replace(template)
	}
	own := with(`[{name: data, emptyDir: {}}, {name: disk, persistentVolumeClaim: {claimName: d}}]`, "")
	kinds := map[string]struct{ version, kind, spec string }{
		"CloneSet":             {"apps.kruise.io/v1beta1", "CloneSet", with("[]", "") + ", " + claims},
		"StatefulSet":          {"apps/v1", "StatefulSet", with("[]", "") + ", serviceName: s, " + claims},
		"Advanced StatefulSet": {"apps.kruise.io/v1beta1", "StatefulSet", with("[]", "") + ", " + claims},
		"Deployment":           {"apps/v1", "Deployment", own},
		"ReplicaSet":           {"apps/v1", "ReplicaSet", own},
		"Job": {"batch/v1", "Job",
			with(`[{name: data, emptyDir: {}}, {name: disk, persistentVolumeClaim: {claimName: d}}]`, "restartPolicy: Never,")},
	}
	for name, kind := range kinds {
		t.Run(name, func(t *testing.T) {
			selector := `replicas: 0, selector: {matchLabels: {app: patched}},`
			if kind.kind == "Job" {
				selector = "suspend: true,"
			}
			target := &unstructured.Unstructured{}
			if err := yaml.Unmarshal(fmt.Appendf(nil,
				`{apiVersion: %s, kind: %s, metadata: {namespace: default, name: patched}, spec: {%s %s}}`, kind.version, kind.kind,
				selector, kind.spec), &target.Object); err != nil {
				t.Fatal(err)
			}
			if err := kube.Create(t.Context(), target); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = kube.Delete(context.Background(), target) })
			spread := func(patch string) error {
				return kube.Create(t.Context(), operation("v1beta1", "WorkloadSpread", "patches", fmt.Sprintf(
					`{spec: {targetRef: {apiVersion: %s, kind: %s, name: patched}, subsets: [{name: a}, {name: b, patch: %s}]}}`,
					kind.version, kind.kind, patch)), client.DryRunAll)
			}
			for _, good := range []string{`{metadata: {labels: {zone: a}}, spec: {priorityClassName: high, containers: [{name: app, resources: {limits: {cpu: "1"}}}]}}`,
				`{spec: {containers: [{name: more, image: "i:1"}]}}`, `{metadata: {annotations: {note: "1"}}}`} {
				if err := spread(good); err != nil {
					t.Errorf("a good patch, %s: %v", good, err)
				}
			}
			for patch, field := range map[string]string{
				`{spec: {containers: [{name: app, resources: {limits: {cpu: "1"}, requests: {cpu: "2"}}}]}}`: "spec.subsets[1].patch.spec.containers[0].resources.requests",
				`{spec: {containers: [{name: more}]}}`:                                                       "spec.subsets[1].patch.spec.containers[0].image",
				`{metadata: {labels: {zone: "not a value!"}}}`:                                               "spec.subsets[1].patch.metadata.labels",
				`{spec: {containers: [{name: app, volumeMounts: [{name: none, mountPath: /n}]}]}}`:           "spec.subsets[1].patch.spec.containers[0].volumeMounts[0].name",
				`{spec: {containers: [{image: i}]}}`:                                                         "spec.subsets[1].patch",
			} {
				if fields := refusedFields(t, spread(patch), 400); !slices.Equal(fields, []string{field}) {
					t.Errorf("a bad patch, %s: got refused fields %q, want %s", patch, fields, field)
				}
			}
		})
	}
	t.Run("a target that does not exist (WS-022)", func(t *testing.T) {
		if err := kube.Create(t.Context(),
			operation("v1beta1", "WorkloadSpread", "early", `{spec: {subsets: [{name: a, patch: {spec: {containers: [{name: x}]}}}]}}`),
			client.DryRunAll); err != nil {
			t.Errorf("a patch for a target that does not exist: %v", err)
		}
	})
}

// WS-010, WS-180: what is sent is stored, and both versions show it under their names.
func TestWorkloadSpreadVersions(t *testing.T) {
	const patch = `{metadata: {labels: {b: "1"}}, spec: {hologram: {x: 1}}}`
	alpha := operation("v1alpha1", "WorkloadSpread", "versions", `{spec: {targetRef: {name: versions}, targetFilter: {selector: {matchLabels: {a: b}}, replicasPathList: [spec.replicas]}, subsets: [{name: a, maxReplicas: 30%,
		requiredNodeSelectorTerm: {matchExpressions: [{key: zone, operator: In, values: [a]}]}, preferredNodeSelectorTerms: [{weight: 5, preference: {matchFields: [{key: metadata.name, operator: In, values: ["n1"]}]}}],
		tolerations: [{key: k, operator: Exists}], patch: `+patch+`}, {name: b}]}}`)
	sentSpec := alpha.DeepCopy().Object["spec"]
	if err := kube.Create(t.Context(), alpha); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = kube.Delete(context.Background(), alpha) })
	if diff := cmp.Diff(asYAML(t, sentSpec), asYAML(t, alpha.Object["spec"])); diff != "" {
		t.Errorf("stored otherwise (-sent +stored):\n%s", diff)
	}
	beta := &unstructured.Unstructured{}
	beta.SetGroupVersionKind(schema.GroupVersionKind{Group: "apps.kruise.io", Version: "v1beta1", Kind: "WorkloadSpread"})
	if err := kube.Get(t.Context(), client.ObjectKeyFromObject(alpha), beta); err != nil {
		t.Fatal(err)
	}
	subset := beta.Object["spec"].(map[string]any)["subsets"].([]any)[0].(map[string]any)
	original := sentSpec.(map[string]any)["subsets"].([]any)[0].(map[string]any)
	for is, was := range map[string]string{"requiredNodeSelector": "requiredNodeSelectorTerm",
		"preferredNodeSelector": "preferredNodeSelectorTerms", "patch": "patch", "tolerations": "tolerations",
		"maxReplicas": "maxReplicas"} {
		if diff := cmp.Diff(asYAML(t, original[was]), asYAML(t, subset[is])); diff != "" {
			t.Errorf("%s in v1beta1 (-want as in v1alpha1 +got):\n%s", is, diff)
		}
	}
}

func asYAML(t *testing.T, value any) string {
	t.Helper()
	text, err := yaml.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
