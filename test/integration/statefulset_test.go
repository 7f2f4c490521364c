//go:build integration

package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

const v1beta1Fields = "apps.kruise.io/v1beta1-only-fields"

// statefulSet returns a StatefulSet in the version, merged with a manifest in YAML.
func statefulSet(version, name, over string) *unstructured.Unstructured {
	base := fmt.Sprintf(`
apiVersion: apps.kruise.io/%s
kind: StatefulSet
metadata: {name: %s, namespace: default}
spec:
  selector: {matchLabels: {app: %[2]s}}
  serviceName: %[2]s
  template:
    metadata: {labels: {app: %[2]s}}
    spec: {containers: [{name: main, image: "nginx:1.26"}]}
`, version, name)
	object, extra := map[string]any{}, map[string]any{}
	if err := errors.Join(yaml.Unmarshal([]byte(base), &object), yaml.Unmarshal([]byte(over), &extra)); err != nil {
		panic(err)
	}
	return &unstructured.Unstructured{Object: mergeInto(object, extra)}
}

// created is a StatefulSet in the cluster until the test ends.
func created(t *testing.T, version, name, over string) *unstructured.Unstructured {
	t.Helper()
	set := statefulSet(version, name, over)
	if err := kube.Create(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = kube.Delete(t.Context(), set.DeepCopy()) }) //nolint:usetesting // the object goes with the API server
	return set
}

// in reads an object in the version.
func in(t *testing.T, version string, set *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	found := &unstructured.Unstructured{}
	found.SetAPIVersion("apps.kruise.io/" + version)
	found.SetKind(set.GetKind())
	if err := kube.Get(t.Context(), client.ObjectKeyFromObject(set), found); err != nil {
		t.Fatal(err)
	}
	return found
}

func asJSON(t *testing.T, value any) string {
	t.Helper()
	data, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

const nativeManifest = `
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: native, namespace: default, labels: {app: native}, annotations: {note: "1"}}
spec:
  replicas: 3
  serviceName: native
  podManagementPolicy: OrderedReady
  revisionHistoryLimit: 5
  ordinals: {start: 1}
  persistentVolumeClaimRetentionPolicy: {whenDeleted: Retain, whenScaled: Delete}
  selector: {matchLabels: {app: native}}
  updateStrategy: {type: RollingUpdate, rollingUpdate: {partition: 1}}
  template:
    metadata: {labels: {app: native}}
    spec:
      containers:
      - name: main
        image: nginx:1.26
        ports: [{containerPort: 80, name: web}]
        readinessProbe: {httpGet: {port: web}}
        resources: {limits: {cpu: "1"}}
        volumeMounts: [{name: data, mountPath: /data}, {name: settings, mountPath: /settings}]
      volumes: [{name: settings, configMap: {name: settings}}]
  volumeClaimTemplates:
  - metadata: {name: data}
    spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
`

// ASTS-001 (part): a manifest of the native kind is valid with another apiVersion, and nothing in it is
// unknown. Applied again, by the server or as kubectl does it, it changes nothing.
func TestANativeManifestIsApplied(t *testing.T) {
	native, advanced := &unstructured.Unstructured{}, &unstructured.Unstructured{}
	if err := errors.Join(yaml.Unmarshal([]byte(nativeManifest), &native.Object), yaml.Unmarshal([]byte(nativeManifest), &advanced.Object)); err != nil {
		t.Fatal(err)
	}
	strict := &client.CreateOptions{Raw: &metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict}}
	if err := kube.Create(t.Context(), native, client.DryRunAll, strict); err != nil {
		t.Fatalf("the native kind: %v", err)
	}
	advanced.SetAPIVersion("apps.kruise.io/v1beta1")
	manifest := advanced.DeepCopy()
	if err := kube.Patch(t.Context(), advanced, applied(t, manifest), client.FieldOwner("kubectl")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = kube.Delete(t.Context(), advanced) }) //nolint:usetesting // the object goes with the API server
	if err := kube.Create(t.Context(), renamed(manifest, "strict"), client.DryRunAll, strict); err != nil {
		t.Errorf("strictly: %v", err)
	}
	stored := asJSON(t, advanced.Object["spec"])
	if err := kube.Patch(t.Context(), advanced, applied(t, manifest), client.FieldOwner("kubectl")); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(stored, asJSON(t, advanced.Object["spec"])); diff != "" || advanced.GetGeneration() != 1 {
		t.Errorf("applied again: got generation %d, want 1; spec (-want +got):\n%s", advanced.GetGeneration(), diff)
	}
	// kubectl replaces the lists of kinds of which it has no types.
	if err := kube.Patch(t.Context(), advanced, client.RawPatch(types.MergePatchType, []byte(asJSON(t, manifest.Object)))); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(stored, asJSON(t, advanced.Object["spec"])); diff != "" || advanced.GetGeneration() != 1 {
		t.Errorf("by kubectl: got generation %d, want 1; spec (-want +got):\n%s", advanced.GetGeneration(), diff)
	}
}

func renamed(object *unstructured.Unstructured, name string) *unstructured.Unstructured {
	object = object.DeepCopy()
	object.SetName(name)
	return object
}

// ASTS-014 (part), ASTS-015 (part), ASTS-016 (part), ASTS-017 (part), ASTS-018 (part), ASTS-023 (part): what
// users leave out is filled in, in either version. ASTS-019, ASTS-020: pod template and claim templates get
// the defaults of this API server, on create and if the pod template changes; unit tests have the gates.
// ASTS-022: a status is not taken from users.
func TestDefaultsOfStatefulSets(t *testing.T) {
	const over = `
spec:
  template:
    spec:
      containers:
      - {name: main, image: "nginx:1.26", ports: [{containerPort: 80}], livenessProbe: {httpGet: {port: 80}}, volumeMounts: [{name: data, mountPath: /d}], future: {a: [1]}}
      volumes: [{name: s, secret: {secretName: s}}]
  volumeClaimTemplates: [{metadata: {name: data}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 0.5Gi}}, future: 1}}]
status: {replicas: 7, readyReplicas: 7, availableReplicas: 7, currentReplicas: 7, updatedReplicas: 7}
`
	const want = `
replicas: 1
revisionHistoryLimit: 10
podManagementPolicy: OrderedReady
persistentVolumeClaimRetentionPolicy: {whenDeleted: Retain, whenScaled: Retain}
volumeClaimUpdateStrategy: {type: OnDelete}
updateStrategy: {type: RollingUpdate, rollingUpdate: {partition: 0, maxUnavailable: 1, podUpdatePolicy: ReCreate, minReadySeconds: 0}}
selector: {matchLabels: {app: NAME}}
serviceName: NAME
template:
  metadata: {labels: {app: NAME}}
  spec:
    containers:
    - name: main
      image: nginx:1.26
      imagePullPolicy: Always
      ports: [{containerPort: 80, protocol: TCP}]
      livenessProbe: {httpGet: {port: 80, path: /, scheme: HTTP}, failureThreshold: 3, periodSeconds: 10, successThreshold: 1, timeoutSeconds: 1}
      volumeMounts: [{name: data, mountPath: /d}]
      resources: {}
      terminationMessagePath: /dev/termination-log
      terminationMessagePolicy: File
      future: {a: [1]}
    volumes: [{name: s, secret: {secretName: s, defaultMode: 420}}]
    dnsPolicy: ClusterFirst
    restartPolicy: Always
    schedulerName: default-scheduler
    securityContext: {}
    terminationGracePeriodSeconds: 30
volumeClaimTemplates: [{metadata: {name: data}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 0.5Gi}}, volumeMode: Filesystem, future: 1}}]
`
	for _, version := range []string{"v1alpha1", "v1beta1"} {
		t.Run(version, func(t *testing.T) {
			name := "defaults-" + version
			set := created(t, version, name, over)
			stored, wanted := in(t, "v1beta1", set), map[string]any{}
			if err := yaml.Unmarshal([]byte(strings.ReplaceAll(want, "NAME", name)), &wanted); err != nil {
				t.Fatal(err)
			}
			got := map[string]any{}
			if err := json.Unmarshal([]byte(asJSON(t, stored.Object["spec"])), &got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(wanted, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if _, ok := stored.Object["status"]; ok {
				t.Errorf("status: %v", stored.Object["status"])
			}
			template := func(set *unstructured.Unstructured) any { return set.Object["spec"].(map[string]any)["template"] }
			more := func(patch string) {
				t.Helper()
				if err := kube.Patch(t.Context(), set, client.RawPatch(types.JSONPatchType, []byte(patch))); err != nil {
					t.Fatal(err)
				}
			}
			// A template that does not change is left alone; one that changes is completed.
			more(`[{"op":"replace","path":"/spec/replicas","value":2}]`)
			if diff := cmp.Diff(template(stored), template(in(t, "v1beta1", set))); diff != "" {
				t.Errorf("the template: %s", diff)
			}
			more(`[{"op":"remove","path":"/spec/template/spec/dnsPolicy"},{"op":"remove","path":"/spec/template/spec/containers/0/ports/0/protocol"}]`)
			if diff := cmp.Diff(template(stored), template(in(t, "v1beta1", set))); diff != "" {
				t.Errorf("the completed template: %s", diff)
			}
		})
	}
}

// Chapter 3: invalid manifests are refused with 422, naming the field that the user wrote.
func TestBadManifestsOfStatefulSets(t *testing.T) {
	const only = "metadata.annotations[" + v1beta1Fields + "]."
	rolling := func(member string) string { return `{updateStrategy: {rollingUpdate: {` + member + `}}}` }
	claim := func(name string) string {
		return `{metadata: {name: ` + name + `}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}`
	}
	const in = "spec.updateStrategy.rollingUpdate."
	for name, test := range map[string]struct{ spec, field string }{
		"ASTS-031":                {`{podManagementPolicy: Any}`, "spec.podManagementPolicy"},
		"ASTS-034 zero":           {`{podManagementPolicy: Parallel, updateStrategy: {rollingUpdate: {maxUnavailable: 0%}}}`, in + "maxUnavailable"},
		"ASTS-034 without %":      {`{podManagementPolicy: Parallel, updateStrategy: {rollingUpdate: {maxUnavailable: "5"}}}`, in + "maxUnavailable"},
		"ASTS-035":                {rolling(`maxUnavailable: 2`), in + "maxUnavailable"},
		"ASTS-036":                {`{updateStrategy: {type: Sometimes}}`, "spec.updateStrategy.type"},
		"ASTS-037 partition":      {rolling(`partition: -1`), in + "partition"},
		"ASTS-037 seconds":        {rolling(`minReadySeconds: 301`), in + "minReadySeconds"},
		"ASTS-039":                {rolling(`podUpdatePolicy: Sometimes`), in + "podUpdatePolicy"},
		"ASTS-040 order":          {rolling(`unorderedUpdate: {}`), in + "unorderedUpdate"},
		"ASTS-040 weight":         {`{podManagementPolicy: Parallel, updateStrategy: {rollingUpdate: {unorderedUpdate: {priorityStrategy: {weightPriority: [{weight: 101, matchSelector: {matchLabels: {a: b}}}]}}}}}`, in + "unorderedUpdate.priorityStrategy.weightPriority[0].weight"},
		"ASTS-042":                {`{replicas: -1}`, "spec.replicas"},
		"ASTS-043 none":           {`{selector: null}`, "spec.selector"},
		"ASTS-043 empty":          {`{selector: {matchLabels: null}}`, "spec.selector"},
		"ASTS-043 other":          {`{selector: {matchLabels: {app: other}}}`, "spec.template.metadata.labels"},
		"ASTS-044 restart policy": {`{template: {spec: {restartPolicy: Never}}}`, "spec.template.spec.restartPolicy"},
		"ASTS-044 deadline":       {`{template: {spec: {activeDeadlineSeconds: 5}}}`, "spec.template.spec.activeDeadlineSeconds"},
		"ASTS-044 a label":        {`{template: {metadata: {labels: {"a b": c}}}}`, "spec.template.metadata.labels"},
		"ASTS-044 an annotation":  {`{template: {metadata: {annotations: {"a b": c}}}}`, "spec.template.metadata.annotations"},
		"ASTS-044 no image":       {`{template: {spec: {containers: [{name: a}]}}}`, "spec.template.spec.containers[0].image"},
		"ASTS-044 no such volume": {`{template: {spec: {containers: [{name: a, image: a, volumeMounts: [{name: x, mountPath: /x}]}]}}}`, "spec.template.spec.containers[0].volumeMounts[0].name"},
		"ASTS-045 history":        {`{revisionHistoryLimit: -1}`, "spec.revisionHistoryLimit"},
		"ASTS-045 grace":          {rolling(`inPlaceUpdateStrategy: {gracePeriodSeconds: -1}`), in + "inPlaceUpdateStrategy.gracePeriodSeconds"},
		"ASTS-045 claims":         {`{volumeClaimTemplates: [` + claim("d") + `, ` + claim("d") + `]}`, "spec.volumeClaimTemplates[1].metadata.name"},
		"a claim's name":          {`{volumeClaimTemplates: [` + claim(`"B_d"`) + `]}`, "spec.volumeClaimTemplates[0].metadata.name"},
	} {
		for _, version := range []string{"v1alpha1", "v1beta1"} {
			t.Run(name+" "+version, func(t *testing.T) {
				err := kube.Create(t.Context(), statefulSet(version, "bad", `spec: `+test.spec), client.DryRunAll)
				if fields := fieldsOf(t, err); !names(fields, test.field) {
					t.Errorf("the refusal does not name %s: %v", test.field, fields)
				}
			})
		}
	}
	for name, test := range map[string]struct{ fields, field string }{
		"ASTS-032":           {`{"reserveOrdinals":[1,"5"]}`, "reserveOrdinals[1]"},
		"ASTS-033":           {`{"reserveOrdinals":["0-2147483648"]}`, "reserveOrdinals[0]"},
		"ASTS-034":           {`{"scaleStrategy":{"maxUnavailable":0}}`, "scaleStrategy.maxUnavailable"},
		"ASTS-035":           {`{"scaleStrategy":{"maxUnavailable":2}}`, "scaleStrategy.maxUnavailable"},
		"ASTS-041":           {`{"persistentVolumeClaimRetentionPolicy":{"whenScaled":"Keep"}}`, "persistentVolumeClaimRetentionPolicy.whenScaled"},
		"ASTS-045 ordinals":  {`{"ordinals":{"start":-1}}`, "ordinals.start"},
		"ASTS-045 claims":    {`{"volumeClaimUpdateStrategy":{"type":"Any"}}`, "volumeClaimUpdateStrategy.type"},
		"ASTS-322 not known": {`{"reserveOrdinal":[1]}`, ""},
	} {
		t.Run(name+" v1alpha1", func(t *testing.T) {
			set := statefulSet("v1alpha1", "bad", "")
			set.SetAnnotations(map[string]string{v1beta1Fields: test.fields})
			if fields := fieldsOf(t, kube.Create(t.Context(), set, client.DryRunAll)); !names(fields, strings.TrimSuffix(only+test.field, ".")) {
				t.Errorf("the refusal does not name %s: %v", test.field, fields)
			}
		})
		if test.field == "" {
			continue
		}
		t.Run(name+" v1beta1", func(t *testing.T) {
			err := kube.Create(t.Context(), statefulSet("v1beta1", "bad", `spec: `+test.fields), client.DryRunAll)
			if fields := fieldsOf(t, err); !names(fields, "spec."+test.field) {
				t.Errorf("the refusal does not name %s: %v", test.field, fields)
			}
		})
	}
	for name, field := range map[string]string{strings.Repeat("a", 53): "metadata.name", "a.b": "metadata.name"} { // ASTS-030
		set := statefulSet("v1beta1", "bad", "")
		set.SetName(name)
		if fields := fieldsOf(t, kube.Create(t.Context(), set, client.DryRunAll)); !names(fields, field) {
			t.Errorf("name %s: got refused fields %v, want %s", name, fields, field)
		}
	}
	generated := statefulSet("v1beta1", "bad", "")
	generated.SetName("")
	generated.SetGenerateName(strings.Repeat("a", 48))
	if fields := fieldsOf(t, kube.Create(t.Context(), generated, client.DryRunAll)); !names(fields, "metadata") {
		t.Errorf("a generated name: %v", fields)
	}
}

// What helps users is accepted: ranges of any length (ASTS-033), rollingUpdate beside OnDelete (ASTS-036),
// updates in place without a readiness gate in the template (ASTS-039), and a claim in the place of a volume.
func TestGoodManifestsOfStatefulSets(t *testing.T) {
	for name, spec := range map[string]string{
		"ranges":           `{reserveOrdinals: ["1-2000000000", 5]}`,
		"OnDelete":         `{updateStrategy: {type: OnDelete, rollingUpdate: {partition: 3}}}`,
		"in place":         `{updateStrategy: {rollingUpdate: {podUpdatePolicy: InPlaceOnly}}}`,
		"a claim":          `{template: {spec: {volumes: [{name: d, emptyDir: {}}], containers: [{name: a, image: a, volumeMounts: [{name: d, mountPath: /d}]}]}}, volumeClaimTemplates: [{metadata: {name: d}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}]}`,
		"everything above": `{podManagementPolicy: Parallel, scaleStrategy: {maxUnavailable: 120%}, updateStrategy: {rollingUpdate: {maxUnavailable: 50%, unorderedUpdate: {}}}}`,
	} {
		if err := kube.Create(t.Context(), statefulSet("v1beta1", "good", `spec: `+spec), client.DryRunAll); err != nil {
			t.Errorf("a good spec, %s: %v", name, err)
		}
	}
}

// Chapter 3: updates that are refused, in either version, and those that are not.
func TestUpdatesOfStatefulSets(t *testing.T) {
	yes := true
	for name, class := range map[string]*storagev1.StorageClass{"grows": {AllowVolumeExpansion: &yes}, "unset": {}} {
		class.Name, class.Provisioner = name, "example.org/none"
		if err := kube.Create(t.Context(), class); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = kube.Delete(t.Context(), class) }) //nolint:usetesting // the object goes with the API server
	}
	claim := func(class, size string) string {
		return `{"metadata":{"name":"` + class + `"},"spec":{"storageClassName":"` + class +
			`","accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"` + size + `"}}}}`
	}
	for _, version := range []string{"v1alpha1", "v1beta1"} {
		set := created(t, version, "updates-"+version, `spec: {replicas: 0, updateStrategy: {rollingUpdate: {podUpdatePolicy: InPlaceOnly}}, volumeClaimTemplates: [`+
			claim("grows", "1Gi")+`, `+claim("unset", "1Gi")+`]}`)
		follow := `"spec":{"volumeClaimUpdateStrategy":{"type":"OnPodRollingUpdate"}`
		if version == "v1alpha1" {
			follow = `"metadata":{"annotations":{"` + v1beta1Fields + `":"{\"volumeClaimUpdateStrategy\":{\"type\":\"OnPodRollingUpdate\"}}"}},"spec":{"replicas":0`
		}
		for name, test := range map[string]struct{ patch, field string }{
			"ASTS-050 selector":  {`{"spec":{"selector":{"matchLabels":{"app":"x"}},"template":{"metadata":{"labels":{"app":"x"}}}}}`, "spec"},
			"ASTS-050 service":   {`{"spec":{"serviceName":"x"}}`, "spec"},
			"ASTS-050 policy":    {`{"spec":{"podManagementPolicy":"Parallel"}}`, "spec"},
			"ASTS-051 env":       {`{"spec":{"template":{"spec":{"containers":[{"name":"main","image":"nginx:1.26","env":[{"name":"A"}]}]}}}}`, "spec"},
			"ASTS-051 image":     {`{"spec":{"template":{"metadata":{"labels":{"b":"c"}},"spec":{"containers":[{"name":"main","image":"nginx:1.27"}]}}}}`, ""},
			"ASTS-053 one less":  {`{` + follow + `,"volumeClaimTemplates":[` + claim("grows", "1Gi") + `]}}`, "spec.volumeClaimTemplates"},
			"ASTS-054 it grows":  {`{` + follow + `,"volumeClaimTemplates":[` + claim("grows", "2Gi") + `,` + claim("unset", "1Gi") + `]}}`, ""},
			"ASTS-054 it cannot": {`{` + follow + `,"volumeClaimTemplates":[` + claim("grows", "2Gi") + `,` + claim("unset", "2Gi") + `]}}`, "spec.volumeClaimTemplates[1].spec.resources.requests.storage"},
			"ASTS-056":           {`{"spec":{"volumeClaimTemplates":[` + claim("unset", "2Gi") + `]}}`, ""},
			"OnDelete":           {`{"spec":{"updateStrategy":{"type":"OnDelete"}}}`, ""},
		} {
			t.Run(name+" "+version, func(t *testing.T) {
				err := kube.Patch(t.Context(), set.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(test.patch)), client.DryRunAll)
				if test.field == "" {
					if err != nil {
						t.Errorf("the change: %v", err)
					}
					return
				}
				if fields := fieldsOf(t, err); !names(fields, test.field) {
					t.Errorf("the refusal does not name %s: %v", test.field, fields)
				}
			})
		}
	}
}

// ASTS-024, ASTS-320 (part), ASTS-321 (part), ASTS-322 (part), ASTS-324: through the API server, v1alpha1
// shows what only v1beta1 has in an annotation; a change made in v1alpha1 keeps it, and all fields that
// nobody knows.
func TestVersionsOfStatefulSets(t *testing.T) {
	const only = `{"reserveOrdinals":[1,"4-5"],"ordinals":{"start":2},"lifecycle":{"preDelete":{"finalizersHandler":["a/b"]}},"scaleStrategy":{"maxUnavailable":1},` +
		`"persistentVolumeClaimRetentionPolicy":{"whenDeleted":"Delete","whenScaled":"Retain"},"volumeClaimUpdateStrategy":{"type":"OnPodRollingUpdate"}}`
	set := created(t, "v1beta1", "versions", `spec: `+only)
	for _, path := range [][]string{{"spec", "template", "future"}, {"spec", "template", "spec", "future"}} {
		if err := unstructured.SetNestedMap(set.Object, map[string]any{"a": int64(9007199254740993)}, path...); err != nil {
			t.Fatal(err)
		}
	}
	claims := []any{map[string]any{"metadata": map[string]any{"name": "d"}, "future": "x", "spec": map[string]any{"accessModes": []any{"ReadWriteOnce"}, "future": "y",
		"resources": map[string]any{"requests": map[string]any{"storage": "1Gi"}}}}}
	set.Object["spec"].(map[string]any)["volumeClaimTemplates"] = claims
	unstructured.RemoveNestedField(set.Object, "spec", "volumeClaimUpdateStrategy") // claims are added
	if err := update(t, set); err != nil {
		t.Fatal(err)
	}
	if err := unstructured.SetNestedField(set.Object, "OnPodRollingUpdate", "spec", "volumeClaimUpdateStrategy", "type"); err != nil {
		t.Fatal(err)
	}
	if err := update(t, set); err != nil {
		t.Fatal(err)
	}
	alpha := in(t, "v1alpha1", set)
	if diff := cmp.Diff(only, alpha.GetAnnotations()[v1beta1Fields]); diff != "" {
		t.Errorf("the annotation in v1alpha1 (-want +got):\n%s", diff)
	}
	for key := range alpha.Object["spec"].(map[string]any) {
		if strings.Contains(only, `"`+key+`":`) && key != "type" {
			t.Errorf("v1alpha1 has %s", key)
		}
	}
	before := in(t, "v1beta1", set)
	if err := unstructured.SetNestedField(alpha.Object, int64(4), "spec", "replicas"); err != nil {
		t.Fatal(err)
	}
	if err := update(t, alpha); err != nil {
		t.Fatal(err)
	}
	if err := unstructured.SetNestedField(before.Object, int64(4), "spec", "replicas"); err != nil {
		t.Fatal(err)
	}
	after := in(t, "v1beta1", set)
	if diff := cmp.Diff(before.Object["spec"], after.Object["spec"]); diff != "" || len(after.GetAnnotations()) > 0 {
		t.Errorf("a change in v1alpha1: annotations %v; spec (-want +got):\n%s", after.GetAnnotations(), diff)
	}
	// A list in the other version is converted, too.
	list := &unstructured.UnstructuredList{}
	list.SetAPIVersion("apps.kruise.io/v1alpha1")
	list.SetKind("StatefulSetList")
	if err := kube.List(t.Context(), list, client.InNamespace("default")); err != nil || !slices.ContainsFunc(list.Items,
		func(o unstructured.Unstructured) bool { return o.GetAnnotations()[v1beta1Fields] == only }) {
		t.Errorf("the list in v1alpha1: got error %v, want the annotation of the set in it", err)
	}
}

// ASTS-011: the scale subresource is that of the fields, and has the selector that the controller fills in.
// ASTS-012: a status without one of its numbers is refused, and the controller writes all of them, also as 0.
func TestSubresourcesOfStatefulSets(t *testing.T) {
	set := created(t, "v1beta1", "subresources", `
spec:
  replicas: 0
  podManagementPolicy: Parallel
  selector: {matchExpressions: [{key: tier, operator: In, values: [a, b]}]}
  template: {metadata: {labels: {tier: b}}}`)
	const selector = "app=subresources,tier in (a,b)"
	scale := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "autoscaling/v1", "kind": "Scale", "spec": map[string]any{}}}
	reaches := func(replicas int64) {
		t.Helper()
		if err := wait(func() error {
			if err := kube.SubResource("scale").Get(t.Context(), set, scale); err != nil {
				return err
			}
			for path, want := range map[string]any{"spec.replicas": replicas, "status.replicas": replicas, "status.selector": selector} {
				if got, _, _ := unstructured.NestedFieldNoCopy(scale.Object, strings.Split(path, ".")...); got != want &&
					(got != nil || path != "spec.replicas" || replicas != 0) { // 0 is left out there
					return fmt.Errorf("%s is %v, not %v", path, got, want)
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	reaches(0)
	numbers := []string{"replicas", "readyReplicas", "availableReplicas", "currentReplicas", "updatedReplicas"}
	written, _ := in(t, "v1beta1", set).Object["status"].(map[string]any)
	for _, left := range numbers {
		if written[left] != int64(0) {
			t.Errorf("status.%s is %v", left, written[left])
		}
		body := fmt.Sprintf(`{"status":{%q:null}}`, left)
		err := kube.Status().Patch(t.Context(), set.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(body)))
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "status."+left) {
			t.Errorf("without %s: got %v, want it refused as invalid with the field", left, err)
		}
	}
	if err := unstructured.SetNestedField(scale.Object, int64(2), "spec", "replicas"); err != nil {
		t.Fatal(err)
	}
	if err := kube.SubResource("scale").Update(t.Context(), set, client.WithSubResourceBody(scale)); err != nil {
		t.Fatal(err)
	}
	if got, _, err := unstructured.NestedInt64(in(t, "v1beta1", set).Object, "spec", "replicas"); err != nil || got != 2 {
		t.Errorf("replicas: got %d, want 2; %v", got, err)
	}
	reaches(2)
}

// ASTS-060 (part): deletion of a protected set is refused, in either version, until the label goes.
func TestDeletionProtectionOfStatefulSets(t *testing.T) {
	for _, version := range []string{"v1alpha1", "v1beta1"} {
		set := created(t, version, "kept-"+version, `{metadata: {labels: {policy.kruise.io/delete-protection: Cascading}}, spec: {replicas: 1}}`)
		if err := kube.Delete(t.Context(), set); !apierrors.IsForbidden(err) {
			t.Errorf("deletion in %s: got %v, want it forbidden", version, err)
		}
		patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":0}}`))
		if err := errors.Join(kube.Patch(t.Context(), set, patch), kube.Delete(t.Context(), set)); err != nil {
			t.Errorf("%s, without pods: %v", version, err)
		}
	}
}

// update writes an object over its present version: the controller writes the status meanwhile.
func update(t *testing.T, object client.Object) error {
	t.Helper()
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		now := &unstructured.Unstructured{}
		now.SetGroupVersionKind(object.GetObjectKind().GroupVersionKind())
		if err := kube.Get(t.Context(), client.ObjectKeyFromObject(object), now); err != nil {
			return err
		}
		object.SetResourceVersion(now.GetResourceVersion())
		return kube.Update(t.Context(), object)
	})
}
