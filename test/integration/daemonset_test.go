//go:build integration

package integration

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

const progressive = "daemonset.kruise.io/progressive-create-pod"

// daemonSet returns a DaemonSet in the version, merged with a manifest in YAML. No node is eligible for it.
func daemonSet(t *testing.T, version, name, over string) *unstructured.Unstructured {
	t.Helper()
	object, extra := document(t, fmt.Sprintf(`
apiVersion: apps.kruise.io/%s
kind: DaemonSet
metadata: {name: %q, namespace: default}
spec:
  selector: {matchLabels: {app: agent}}
  template:
    metadata: {labels: {app: agent}}
    spec: {nodeSelector: {nowhere: "1"}, containers: [{name: main, image: "nginx:1.26"}]}
`, version, name)), map[string]any{}
	if err := yaml.Unmarshal([]byte(over), &extra); err != nil {
		t.Fatal(err)
	}
	object.Object = mergeInto(object.Object, extra)
	return object
}

// specOf is the spec of a DaemonSet in v1beta1, as YAML.
func specOf(t *testing.T, set *unstructured.Unstructured) string {
	t.Helper()
	return asYAML(t, in(t, "v1beta1", set).Object["spec"])
}

// ADS-002 (part): a manifest of the native kind is valid with another apiVersion, and nothing in it is
// unknown. Applied again, by the server or as kubectl does it, it changes nothing.
func TestANativeManifestOfADaemonSetIsApplied(t *testing.T) {
	native := document(t, `
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: native-agent, namespace: default, labels: {app: native-agent}, annotations: {note: "1"}}
spec:
  minReadySeconds: 5
  revisionHistoryLimit: 5
  selector: {matchLabels: {app: native-agent}}
  updateStrategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 10%}}
  template:
    metadata: {labels: {app: native-agent}}
    spec:
      nodeSelector: {nowhere: "1"}
      tolerations: [{key: node-role.kubernetes.io/control-plane, operator: Exists}]
      containers:
      - name: main
        image: nginx:1.26
        ports: [{containerPort: 80, hostPort: 80, name: web}]
        readinessProbe: {httpGet: {port: web}}
        volumeMounts: [{name: logs, mountPath: /logs}]
      volumes: [{name: logs, hostPath: {path: /var/log}}]
`)
	advanced := native.DeepCopy()
	strict := &client.CreateOptions{Raw: &metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict}}
	if err := kube.Create(t.Context(), native, client.DryRunAll, strict); err != nil {
		t.Fatalf("the native kind: %v", err)
	}
	advanced.SetAPIVersion("apps.kruise.io/v1beta1")
	manifest := advanced.DeepCopy()
	if err := kube.Create(t.Context(), renamed(manifest, "strict"), client.DryRunAll, strict); err != nil {
		t.Errorf("strictly: %v", err)
	}
	var stored string
	for i, patch := range []client.Patch{applied(t, manifest), applied(t, manifest),
		client.RawPatch(types.MergePatchType, []byte(asJSON(t, manifest.Object)))} { // as kubectl, which replaces lists
		if err := kube.Patch(t.Context(), advanced, patch, client.FieldOwner("kubectl")); err != nil {
			t.Fatal(err)
		}
		now := asJSON(t, advanced.Object["spec"])
		if i == 0 {
			t.Cleanup(func() { _ = kube.Delete(t.Context(), advanced) }) //nolint:usetesting // the object goes with the API server
			stored = now
		}
		if diff := cmp.Diff(stored, now); diff != "" {
			t.Errorf("patch %d: spec (-want +got):\n%s", i, diff)
		}
		if generation := advanced.GetGeneration(); generation != 1 {
			t.Errorf("patch %d: got generation %d, want 1", i, generation)
		}
	}
}

// ADS-010: the kind has these names and this subresource, in both versions.
func TestNamesOfDaemonSets(t *testing.T) {
	crd := document(t, `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: daemonsets.apps.kruise.io}}`)
	if err := kube.Get(t.Context(), client.ObjectKeyFromObject(crd), crd); err != nil {
		t.Fatal(err)
	}
	spec := crd.Object["spec"].(map[string]any)
	if diff := cmp.Diff([]any{"daemon", "ads"}, spec["names"].(map[string]any)["shortNames"]); diff != "" {
		t.Errorf("short names (-want +got):\n%s", diff)
	}
	if spec["scope"] != "Namespaced" {
		t.Errorf("scope: got %v, want Namespaced", spec["scope"])
	}
	for _, item := range spec["versions"].([]any) {
		if diff := cmp.Diff(map[string]any{"status": map[string]any{}}, item.(map[string]any)["subresources"]); diff != "" {
			t.Errorf("sub-resources (-want +got):\n%s", diff)
		}
	}
}

// ADS-011 (part), ADS-012, ADS-013, ADS-014: what users leave out is filled in on create and update, in
// either version. ADS-015, ADS-016: the template is stored as it was written, with fields that nobody knows,
// on create and when it changes. A status is not taken from users.
func TestDefaultsOfDaemonSets(t *testing.T) {
	const template = `{metadata: {labels: {app: agent}, future: {a: 1}}, future: x, spec: {nodeSelector: {nowhere: "1"}, hostNetwork: true, future: [1, {b: 2}],
		containers: [{name: main, image: "nginx:1.26", ports: [{containerPort: 80}], livenessProbe: {httpGet: {port: 80}}, future: {a: [1]}}]}}`
	const status = `status: {currentNumberScheduled: 7, numberMisscheduled: 7, desiredNumberScheduled: 7, numberReady: 7, updatedNumberScheduled: 7}`
	const plain = `burstReplicas: 250, revisionHistoryLimit: 10, selector: {matchLabels: {app: agent}}, template: ` + template
	rolling := func(members string) string {
		return plain + `, updateStrategy: {type: RollingUpdate, rollingUpdate: {` + members + `}}`
	}
	for name, test := range map[string]struct{ version, given, want string }{
		"nothing": {"", `{}`, rolling(`rollingUpdateType: Standard, maxUnavailable: 1, maxSurge: 0`)},
		"surge": {"", `{updateStrategy: {rollingUpdate: {maxSurge: 10%, partition: 50%}}}`,
			rolling(`rollingUpdateType: Standard, maxSurge: 10%, partition: 50%`)},
		"unavailable": {"", `{updateStrategy: {rollingUpdate: {rollingUpdateType: InPlaceIfPossible, maxUnavailable: 2}}}`,
			rolling(`rollingUpdateType: InPlaceIfPossible, maxUnavailable: 2`)},
		"ondelete": {"", `{updateStrategy: {type: OnDelete}}`, plain + `, updateStrategy: {type: OnDelete}`},
		"surging": {"v1alpha1", `{updateStrategy: {rollingUpdate: {rollingUpdateType: Surging}}}`,
			rolling(`rollingUpdateType: Standard, maxUnavailable: 0, maxSurge: 1`)},
		"asleep": {"v1alpha1", `{updateStrategy: {type: OnDelete, rollingUpdate: {rollingUpdateType: Surging}}}`, // ADS-211 (part): by conversion
			plain + `, updateStrategy: {type: OnDelete, rollingUpdate: {rollingUpdateType: Standard, maxUnavailable: 0, maxSurge: 1}}`},
	} {
		for _, version := range []string{"v1alpha1", "v1beta1"} {
			if test.version != "" && test.version != version {
				continue
			}
			t.Run(name+" "+version, func(t *testing.T) {
				set := daemonSet(t, version, "defaults-"+name+"-"+version, "{spec: "+test.given+", "+status+"}")
				set.Object["spec"].(map[string]any)["template"] = document(t, template).Object
				want := asYAML(t, document(t, "{"+test.want+"}").Object)
				makes(t, set)
				if diff := cmp.Diff(want, specOf(t, set)); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
				if seven, _, _ := unstructured.NestedFieldNoCopy(set.Object, "status", "numberReady"); seven != nil {
					t.Errorf("status: %v", set.Object["status"])
				}
				patch := `[{"op":"remove","path":"/spec/burstReplicas"},{"op":"replace","path":"/spec/template/spec/containers/0/image","value":"nginx:1.27"}]`
				if err := kube.Patch(t.Context(), set, client.RawPatch(types.JSONPatchType, []byte(patch))); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(strings.Replace(want, "1.26", "1.27", 1), specOf(t, set)); diff != "" {
					t.Errorf("after an update (-want +got):\n%s", diff)
				}
			})
		}
	}
}

// Chapter 3: invalid manifests are refused with 422, naming the field that the user wrote (ADS-020 (part)).
func TestBadManifestsOfDaemonSets(t *testing.T) {
	const in = "spec.updateStrategy.rollingUpdate."
	rolling := func(member string) string { return `{updateStrategy: {rollingUpdate: {` + member + `}}}` }
	for name, test := range map[string]struct{ spec, field string }{
		"ADS-022 none":              {`{selector: null}`, "spec.selector"},
		"ADS-022 empty":             {`{selector: {matchLabels: null}}`, "spec.selector"},
		"ADS-022 other":             {`{selector: {matchLabels: {app: other}}}`, "spec.template.metadata.labels"},
		"ADS-023 no template":       {`{template: null}`, "spec.template"},
		"ADS-023 restart policy":    {`{template: {spec: {restartPolicy: Never}}}`, "spec.template.spec.restartPolicy"},
		"ADS-023 deadline":          {`{template: {spec: {activeDeadlineSeconds: 5}}}`, "spec.template.spec.activeDeadlineSeconds"},
		"ADS-023 a label":           {`{template: {metadata: {labels: {"a b": c}}}}`, "spec.template.metadata.labels"},
		"ADS-023 no image":          {`{template: {spec: {containers: [{name: a}]}}}`, "spec.template.spec.containers[0].image"},
		"ADS-023 no such volume":    {`{template: {spec: {containers: [{name: a, image: a, volumeMounts: [{name: x, mountPath: /x}]}]}}}`, "spec.template.spec.containers[0].volumeMounts[0].name"},
		"ADS-024 seconds":           {`{minReadySeconds: -1}`, "spec.minReadySeconds"},
		"ADS-024 history":           {`{revisionHistoryLimit: -1}`, "spec.revisionHistoryLimit"},
		"ADS-025":                   {`{updateStrategy: {type: Sometimes}}`, "spec.updateStrategy.type"},
		"ADS-026 both":              {rolling(`maxUnavailable: 1, maxSurge: 1`), in + "maxSurge"},
		"ADS-026 none":              {rolling(`maxUnavailable: 0`), in + "maxUnavailable"},
		"ADS-026 malformed":         {rolling(`maxUnavailable: abc, maxSurge: 1`), in + "maxUnavailable"},
		"ADS-026 too many":          {rolling(`maxUnavailable: 101%`), in + "maxUnavailable"},
		"ADS-027":                   {rolling(`rollingUpdateType: Sometimes`), in + "rollingUpdateType"},
		"ADS-027 in place":          {rolling(`rollingUpdateType: InPlaceIfPossible, maxSurge: 1`), in + "maxSurge"},
		"ADS-028":                   {rolling(`partition: 101%`), in + "partition"},
		"ADS-029":                   {`{lifecycle: {inPlaceUpdate: {labelsHandler: {a: b}}}}`, "spec.lifecycle.inPlaceUpdate"},
		"ADS-030 burst":             {`{burstReplicas: 0}`, "spec.burstReplicas"},
		"ADS-030 malformed":         {`{burstReplicas: many}`, "spec.burstReplicas"},
		"ADS-030 selector":          {rolling(`selector: {matchLabels: {"a b": c}}`), in + "selector.matchLabels"},
		"ADS-027 v1alpha1 Surging":  {rolling(`rollingUpdateType: Surging, maxUnavailable: 1`), in + "maxUnavailable"},
		"ADS-027 v1beta1 Surging":   {rolling(`rollingUpdateType: Surging, maxSurge: 1`), in + "rollingUpdateType"},
		"a number without its type": {`{minReadySeconds: x}`, "spec.minReadySeconds"},
	} {
		for _, version := range []string{"v1alpha1", "v1beta1"} {
			if strings.Contains(name, "v1") && !strings.Contains(name, version) {
				continue
			}
			t.Run(name+" "+version, func(t *testing.T) {
				err := kube.Create(t.Context(), daemonSet(t, version, "bad", `spec: `+test.spec), client.DryRunAll)
				if fields := fieldsOf(t, err); !names(fields, test.field) {
					t.Errorf("the refusal does not name %s: %v", test.field, fields)
				}
			})
		}
	}
	hand := daemonSet(t, "v1alpha1", "bad", "")
	hand.SetAnnotations(map[string]string{v1beta1Fields: `{"scaleStrategi":{}}`})
	if fields := fieldsOf(t, kube.Create(t.Context(), hand, client.DryRunAll)); !names(fields, "metadata.annotations["+v1beta1Fields+"]") {
		t.Errorf("refused fields: got %v, want the annotation", fields)
	}
	// ADS-021: names are those that the API server allows for custom resources.
	for name, good := range map[string]bool{"a.b": true, strings.Repeat("a", 253): true, "a_b": false, "A": false, strings.Repeat("a", 254): false} {
		err := kube.Create(t.Context(), daemonSet(t, "v1beta1", name, ""), client.DryRunAll)
		if good != (err == nil) {
			t.Errorf("name %s: accepted: want %t, got %v", name, good, err)
		} else if !good && !names(fieldsOf(t, err), "metadata.name") {
			t.Errorf("name %s: refused with %v, want metadata.name in it", name, err)
		}
	}
}

// ADS-031 (part): a set that is admitted with a port of the node and a surge comes with a warning, which
// users read.
func TestAWarningAboutPortsOfNodes(t *testing.T) {
	warnings := &warned{}
	config := rest.CopyConfig(apiServer)
	config.WarningHandler = warnings
	warning, err := client.New(config, client.Options{Scheme: kube.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	if err := warning.Create(t.Context(), daemonSet(t, "v1beta1", "ports", `spec: {updateStrategy: {rollingUpdate: {maxSurge: 1}},
		template: {spec: {containers: [{name: main, image: i, ports: [{containerPort: 80, hostPort: 80}]}]}}}`), client.DryRunAll); err != nil {
		t.Fatal(err)
	}
	if text := strings.Join(warnings.texts, "\n"); !strings.Contains(text, "container main uses a port of the node") {
		t.Errorf("warnings: got %q, want one about the port of the node", text)
	}
}

// ADS-032 (part): updates that are refused, in either version, and those that are not.
func TestUpdatesOfDaemonSets(t *testing.T) {
	for _, version := range []string{"v1alpha1", "v1beta1"} {
		set := daemonSet(t, version, "updates-"+version, "")
		makes(t, set)
		for patch, field := range map[string]string{
			`{"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}}}}}`: "spec",
			`{"spec":{"minReadySeconds":5,"revisionHistoryLimit":1,"burstReplicas":"10%","updateStrategy":{"type":"OnDelete"},
				"lifecycle":{"preDelete":{"labelsHandler":{"a":"b"}}},"template":{"metadata":{"labels":{"b":"c"}}}}}`: "",
			`{"spec":{"updateStrategy":{"rollingUpdate":{"maxUnavailable":0}}}}`: "spec.updateStrategy.rollingUpdate.maxUnavailable",
		} {
			err := kube.Patch(t.Context(), set.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch)), client.DryRunAll)
			if field == "" && err != nil {
				t.Errorf("%s: %v", patch, err)
			} else if field != "" && !names(fieldsOf(t, err), field) {
				t.Errorf("%s: got %v, want %s refused", patch, err, field)
			}
		}
	}
}

// ADS-210 (part), ADS-213 (part), ADS-214 (part), ADS-215 (part): through the API server, v1alpha1 shows
// partitionedScaling as its annotation; who changes it there, or in v1beta1, changes it for both, and a
// change of something else keeps it, and all fields of the template that nobody knows.
func TestVersionsOfDaemonSets(t *testing.T) {
	set := daemonSet(t, "v1alpha1", "versions", `{metadata: {annotations: {`+progressive+`: "true", note: "1"}}}`)
	if err := unstructured.SetNestedField(set.Object, int64(9007199254740993), "spec", "template", "future", "a"); err != nil {
		t.Fatal(err)
	}
	makes(t, set)
	shows := func(scale any, annotation string) {
		t.Helper()
		beta, alpha := in(t, "v1beta1", set), in(t, "v1alpha1", set)
		if diff := cmp.Diff(scale, beta.Object["spec"].(map[string]any)["scaleStrategy"]); diff != "" {
			t.Errorf("scale strategy in v1beta1 (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(map[string]string{"note": "1"}, beta.GetAnnotations()); diff != "" {
			t.Errorf("annotations in v1beta1: %s", diff)
		}
		if got := alpha.GetAnnotations()[progressive]; got != annotation {
			t.Errorf("annotation in v1alpha1: got %q, want %q", got, annotation)
		}
		if left := alpha.Object["spec"].(map[string]any)["scaleStrategy"]; left != nil {
			t.Errorf("scale strategy in v1alpha1: got %v, want none", left)
		}
		if got, _, _ := unstructured.NestedInt64(alpha.Object, "spec", "template", "future", "a"); got != 9007199254740993 {
			t.Errorf("a field of the template: %d", got)
		}
	}
	change := func(version, patch string) {
		t.Helper()
		if err := kube.Patch(t.Context(), in(t, version, set), client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
			t.Fatal(err)
		}
	}
	on := map[string]any{"partitionedScaling": true}
	shows(on, "true")
	change("v1alpha1", `{"spec":{"minReadySeconds":5}}`)
	shows(on, "true")
	change("v1beta1", `{"spec":{"scaleStrategy":null}}`)
	shows(nil, "")
	change("v1alpha1", `{"spec":{"minReadySeconds":6}}`)
	shows(nil, "")
	change("v1beta1", `{"spec":{"scaleStrategy":{"partitionedScaling":true}}}`)
	change("v1alpha1", `{"metadata":{"annotations":{"`+progressive+`":"false"}}}`)
	shows(nil, "")
}

// ADS-033 (part), ADS-212 (part): deletion of a protected set is refused while a node has a pod of it; the
// hash is told in both versions.
func TestProtectedDaemonSets(t *testing.T) {
	set := daemonSet(t, "v1beta1", "protected", `{metadata: {labels: {`+protection+`: Cascading}}}`)
	makes(t, set)
	status := `{"status":{"currentNumberScheduled":%d,"numberMisscheduled":0,"desiredNumberScheduled":0,"numberReady":0,"updatedNumberScheduled":0,"updateRevision":"hash"}}`
	says := func(refused bool, number int) {
		t.Helper()
		if err := wait(func() error { // the controller may write the status in between
			err := kube.Status().Patch(t.Context(), set, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, status, number)))
			if err != nil {
				return err
			}
			if err = kube.Delete(t.Context(), set, client.DryRunAll); apierrors.IsForbidden(err) != refused ||
				refused && !strings.Contains(err.Error(), fmt.Sprintf("and currentNumberScheduled %d>0", number)) {
				return fmt.Errorf("the deletion was answered with %w", errors.Join(err, errors.New("of a set that is protected")))
			}
			return nil
		}); err != nil {
			t.Errorf("protection while pods are scheduled: %v", err)
		}
	}
	says(true, 2)
	if err := wait(func() error {
		if err := kube.Status().Patch(t.Context(), set, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, status, 0))); err != nil {
			return err
		}
		if hash, _, _ := unstructured.NestedString(in(t, "v1alpha1", set).Object, "status", "daemonSetHash"); hash != "hash" {
			return fmt.Errorf("hash %q", hash)
		}
		return nil
	}); err != nil {
		t.Errorf("the hash in v1alpha1: %v", err)
	}
	says(false, 0)
	set.SetLabels(map[string]string{protection: "Always"})
	if err := update(t, set); err != nil {
		t.Fatal(err)
	}
	if err := kube.Delete(t.Context(), set); !apierrors.IsForbidden(err) {
		t.Errorf("Always: %v", err)
	}
	set.SetLabels(nil)
	if err := update(t, set); err != nil {
		t.Fatal(err)
	}
}
