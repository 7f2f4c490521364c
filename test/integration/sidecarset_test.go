//go:build integration

package integration

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// SS-030 to SS-070: invalid objects are refused with the field, in both versions; containers and volumes by
// the rules of this API server.
func TestBadSidecarSets(t *testing.T) {
	other := operation("v1beta1", "SidecarSet", "taken",
		`{spec: {selector: {matchLabels: {pool: x}}, containers: [{name: taken, image: i}], volumes: [{name: shared, emptyDir: {}}]}}`)
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kruise-system", Name: "kruise-configuration"},
		Data: map[string]string{"SidecarSet_PatchPodMetadata_WhiteList": `{"rules":[{"allowedAnnotationKeyExprs":["^ours/"]}]}`}}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kruise-system"}}
	if err := kube.Create(t.Context(), namespace); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	for _, object := range []client.Object{other, config} {
		if err := kube.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = kube.Delete(context.Background(), object) })
	}
	tests := map[string]struct{ over, field, text string }{
		"no selector (SS-032)": {`{spec: {selector: null}}`, "spec.selector", "no selector defined for SidecarSet"},
		"an empty selector (SS-032)": {`{spec: {selector: {matchLabels: null}}}`, "spec.selector",
			"empty selector is not valid for sidecarset."},
		"no containers (SS-033)": {`{spec: {containers: null}}`, "spec.containers",
			"no initContainer or container defined"},
		"a container without image (SS-034)": {`{spec: {containers: [{name: side}]}}`, "spec.containers[0].image", "Required"},
		"a mount of nothing (SS-034)": {
			`{spec: {containers: [{name: side, image: i, volumeMounts: [{name: x, mountPath: /x}]}]}}`,
			"spec.containers[0].volumeMounts[0].name", `Not found: "x"`},
		"a name twice (SS-034)": {`{spec: {initContainers: [{name: side, image: i}]}}`, "spec.initContainers[0].name",
			"Duplicate"},
		"a probe (SS-034)": {
			`{spec: {containers: [{name: side, image: i, livenessProbe: {httpGet: {port: 0}}}]}}`,
			"spec.containers[0].livenessProbe.httpGet.port", "between 1 and 65535"},
		"a volume of two sources (SS-034)": {`{spec: {volumes: [{name: v, emptyDir: {}, hostPath: {path: /}}]}}`,
			"spec.volumes[0].hostPath", "may not specify more than 1 volume type"},
		"an init container's port (SS-034, SS-D12)": {
			`{spec: {containers: null, initContainers: [{name: placeholder, image: i, ports: [{containerPort: 0}]}]}}`,
			"spec.initContainers[0].ports[0].containerPort", ""},
		"volumes that are none (SS-034)": {`{spec: {volumes: none}}`, "spec.volumes", "decoding"},
		"ports that are none (SS-034)": {`{spec: {containers: [{name: side, image: i, ports: none}]}}`, "spec.containers[0]",
			"decoding"},
		"a place (SS-035)": {`{spec: {containers: [{name: side, image: i, podInjectPolicy: Beside}]}}`,
			"spec.containers[0].podInjectPolicy", "unsupported pod inject policy"},
		"no fieldRef (SS-D08)": {
			`{spec: {containers: [{name: side, image: i, transferEnv: [{envName: E, sourceContainerNameFrom: {}}]}]}}`,
			"spec.containers[0].transferEnv[0].sourceContainerNameFrom.fieldRef", "must be given"},
		"partition and selector (SS-037)": {`{spec: {updateStrategy: {partition: 1, selector: {matchLabels: {a: b}}}}}`,
			"spec.updateStrategy", "Partition and Selector cannot be used together"},
		"an update type (SS-039)": {`{spec: {updateStrategy: {type: Sometimes}}}`, "spec.updateStrategy.type",
			"NotUpdate"},
		"a policy alone (SS-041)": {`{spec: {injectionStrategy: {revision: {policy: Partial}}}}`,
			"spec.injectionStrategy.revision", "cannot be empty simultaneously"},
		"a revision that does not exist (SS-042)": {`{spec: {injectionStrategy: {revision: {revisionName: nothing}}}}`,
			"spec.injectionStrategy.revision", "Cannot find specific ControllerRevision"},
		"a version that does not exist (SS-042)": {`{spec: {injectionStrategy: {revision: {customVersion: nothing}}}}`,
			"spec.injectionStrategy.revision", "Cannot find specific ControllerRevision"},
		"metadata that is not allowed (SS-160)": {`{spec: {patchPodMetadata: [{annotations: {theirs/k: v}}]}}`,
			"spec.patchPodMetadata[0].annotations[theirs/k]", "(theirs/k) is not allowed"},
		"an expression (SS-048)": {`{spec: {containers: [{name: side, image: i, resourcesPolicy: {targetContainersMode: sum, resourcesExpr: {limits: {cpu: "cpu*cpu"}}}}]}}`, "spec.containers[0].resourcesPolicy.resourcesExpr.limits.cpu", "multiplication of two quantities"},
		"a hot sidecar without empty image (SS-050)": {
			`{spec: {containers: [{name: side, image: i, upgradeStrategy: {upgradeType: HotUpgrade}}]}}`,
			"spec.containers[0].upgradeStrategy.hotUpgradeEmptyImage", "stands by"},
		"a container of another (SS-063)": {`{spec: {containers: [{name: taken, image: i}]}}`, "spec.containers[0].name",
			"container taken already exist in taken"},
		"a volume of another (SS-064)": {`{spec: {volumes: [{name: shared, hostPath: {path: /}}]}}`, "spec.volumes[0]",
			"volume shared is in conflict with sidecarset taken"},
		"a negative limit (SS-D25)": {`{spec: {revisionHistoryLimit: -1}}`, "spec.revisionHistoryLimit", "negative"},
	}
	if err := wait(func() error { // until the caches of the webhook know the other one
		err := kube.Create(t.Context(), operation("v1beta1", "SidecarSet", "bad", tests["a volume of another (SS-064)"].over),
			client.DryRunAll)
		if err == nil {
			return errors.New("accepted")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for name, test := range tests {
		for _, version := range served {
			t.Run(name+" "+version, func(t *testing.T) {
				err := kube.Create(t.Context(), operation(version, "SidecarSet", "bad", test.over), client.DryRunAll)
				var status apierrors.APIStatus
				if !errors.As(err, &status) || status.Status().Code != 422 || status.Status().Details == nil {
					t.Fatalf("creation: got %v, want it refused with code 422 and details", err)
				}
				if !strings.Contains(err.Error(), test.text) {
					t.Fatalf("creation: refused with %q, want %q in it", err, test.text)
				}
				var fields []string
				for _, cause := range status.Status().Details.Causes {
					fields = append(fields, cause.Field)
				}
				if !strings.Contains(" "+strings.Join(fields, " ")+" ", " "+test.field+" ") {
					t.Errorf("fields %v: %v", fields, err)
				}
			})
		}
	}
	for _, accepted := range []string{`{spec: {patchPodMetadata: [{annotations: {ours/k: v}}]}}`, `{spec: {volumes: [{name: shared}]}}`,
		`{spec: {containers: null, initContainers: [{name: placeholder, image: i}]}}`,
		`{spec: {initContainers: [{name: native, image: i, restartPolicy: Always}]}}`,
		`{spec: {customVersion: v, injectionStrategy: {revision: {customVersion: v}}}}`} {
		if err := kube.Create(t.Context(), operation("v1beta1", "SidecarSet", "fine", accepted), client.DryRunAll); err != nil {
			t.Errorf("a good SidecarSet, %s: %v", accepted, err)
		}
	}
}

// SS-001, SS-013, SS-016, SS-018, SS-270 to SS-274, SS-290, SS-291, SS-D24: for both written versions the
// hashes are the golden ones, also if the user wrote others; both versions show the same, and unknown fields
// stay.
func TestSidecarSetVersions(t *testing.T) {
	const spec = `spec: {selector: {matchLabels: {ship-logs: "yes"}}, containers: [{name: shipper, image: "example.com/shipper:1.0", volumeMounts: [{name: spool, mountPath: /spool}]}], volumes: [{name: spool, emptyDir: {}}]`
	for _, version := range served {
		t.Run(version, func(t *testing.T) {
			over := `{metadata: {annotations: {kruise.io/sidecarset-hash: forged}}, ` + spec + `, namespace: shop}}`
			if version == "v1beta1" {
				over = `{` + spec + `, customVersion: r1}}`
			}
			set := operation(version, "SidecarSet", "log-shipper", over)
			volumes := []any{map[string]any{"name": "spool", "emptyDir": map[string]any{}, "future": "1"}}
			containers, _, _ := unstructured.NestedSlice(set.Object, "spec", "containers")
			containers[0].(map[string]any)["hologram"] = map[string]any{"x": int64(1)}
			if err := errors.Join(unstructured.SetNestedSlice(set.Object, volumes, "spec", "volumes"),
				unstructured.SetNestedSlice(set.Object, containers, "spec", "containers")); err != nil {
				t.Fatal(err)
			}
			if err := kube.Create(t.Context(), set); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = kube.Delete(context.Background(), set) })
			read := map[string]*unstructured.Unstructured{}
			for _, v := range served {
				read[v] = operation(v, "SidecarSet", "log-shipper", "")
				if err := kube.Get(t.Context(), client.ObjectKeyFromObject(set), read[v]); err != nil {
					t.Fatal(err)
				}
				annotations := read[v].GetAnnotations()
				for key, want := range map[string]string{
					"kruise.io/sidecarset-hash":               "bffdzd74cc9942f2c56xx4v9wdc4w7c8z2vzx9c2cz644cxzv8cz6w824d7b4579",
					"kruise.io/sidecarset-hash-without-image": "w654zv5wfcb88c84cwcw56zw9c4v99225zw2d275b6wcfx9wvb4zxcd96bv68x64"} {
					if annotations[key] != want {
						t.Errorf("%s: annotation %s: got %s, want %s", v, key, annotations[key], want)
					}
				}
				kept, _, _ := unstructured.NestedSlice(read[v].Object, "spec", "containers")
				if diff := cmp.Diff(map[string]any{"x": int64(1)}, kept[0].(map[string]any)["hologram"]); diff != "" {
					t.Errorf("%s: the field that nobody knows (-want +got):\n%s", v, diff)
				}
				kept, _, _ = unstructured.NestedSlice(read[v].Object, "spec", "volumes")
				if diff := cmp.Diff(volumes, kept); diff != "" {
					t.Errorf("%s: volumes (-want +got):\n%s", v, diff)
				}
			}
			namespace, _, _ := unstructured.NestedString(read["v1alpha1"].Object, "spec", "namespace")
			label := read["v1alpha1"].GetLabels()["apps.kruise.io/sidecarset-custom-version"]
			selector, _, _ := unstructured.NestedString(read["v1beta1"].Object, "spec", "namespaceSelector", "matchLabels",
				"kubernetes.io/metadata.name")
			custom, _, _ := unstructured.NestedString(read["v1beta1"].Object, "spec", "customVersion")
			want := map[string][]string{"v1alpha1": {"shop", "", "shop", ""}, "v1beta1": {"", "r1", "", "r1"}}[version]
			if diff := cmp.Diff(want, []string{namespace, label, selector, custom}); diff != "" {
				t.Errorf("namespace and version as each version writes them (-want +got):\n%s", diff)
			}
		})
	}
}
