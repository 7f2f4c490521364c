//go:build integration

package integration

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestBadManifests: invalid manifests are refused with 422, naming the field in the version that the user
// wrote (CS-020 to 035).
func TestBadManifests(t *testing.T) {
	both := []string{"v1alpha1", "v1beta1"}
	tests := map[string]struct {
		versions []string
		over     string
		field    string
	}{
		"selector does not match the template (CS-021)": {both, `spec: {selector: {matchLabels: {app: other}}}`,
			"spec.template.metadata.labels"},
		"empty selector (CS-021)": {both, `spec: {selector: {matchLabels: null}}`, "spec.selector"},
		"malformed selector (CS-021)": {both, `spec: {selector: {matchExpressions: [{key: app, operator: Near}]}}`,
			"spec.selector"},
		"negative replicas (CS-020)":             {both, `spec: {replicas: -1}`, "spec.replicas"},
		"negative minReadySeconds (CS-035)":      {both, `spec: {minReadySeconds: -1}`, "spec.minReadySeconds"},
		"negative revisionHistoryLimit (CS-035)": {both, `spec: {revisionHistoryLimit: -1}`, "spec.revisionHistoryLimit"},
		"negative scale limit (CS-035)": {both, `spec: {scaleStrategy: {maxUnavailable: -1}}`,
			"spec.scaleStrategy.maxUnavailable"},
		"deadline below minReadySeconds (CS-030)": {both, `spec: {minReadySeconds: 10, progressDeadlineSeconds: 5}`,
			"spec.progressDeadlineSeconds"},
		"restartPolicy Never (CS-023)": {both, `spec: {template: {spec: {restartPolicy: Never}}}`,
			"spec.template.spec.restartPolicy"},
		"activeDeadlineSeconds (CS-023)": {both, `spec: {template: {spec: {activeDeadlineSeconds: 5}}}`,
			"spec.template.spec.activeDeadlineSeconds"},
		"no image (CS-022)": {both, `spec: {template: {spec: {containers: [{name: nginx}]}}}`,
			"spec.template.spec.containers[0].image"},
		"bad image (CS-022)": {both,
			`spec: {template: {spec: {containers: [{name: nginx, image: " nginx"}]}}}`, "spec.template.spec.containers[0].image"},
		"no container (CS-022)": {both, `spec: {template: {spec: {containers: []}}}`,
			"spec.template.spec.containers"},
		"port out of range (CS-022)": {both,
			`spec: {template: {spec: {containers: [{name: nginx, image: a, ports: [{containerPort: 99999}]}]}}}`,
			"spec.template.spec.containers[0].ports[0].containerPort"},
		"mount of a volume that is nowhere (CS-022)": {both,
			`spec: {template: {spec: {containers: [{name: nginx, image: a, volumeMounts: [{name: x, mountPath: /x}]}]}}}`,
			"spec.template.spec.containers[0].volumeMounts[0].name"},
		"volume and claim template of one name (CS-022)": {both, `spec: {template: {spec: {volumes: [{name: data, emptyDir: {}}]}}, volumeClaimTemplates: [{metadata: {name: data}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}]}`, "spec.volumeClaimTemplates[0].metadata.name"},
		"two claim templates of one name (CS-035)":       {both, `spec: {volumeClaimTemplates: [{metadata: {name: d}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}, {metadata: {name: d}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}]}`, "spec.volumeClaimTemplates[1].metadata.name"},
		"claim template without name (CS-035)": {both,
			`spec: {volumeClaimTemplates: [{metadata: {}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}]}`, "spec.volumeClaimTemplates[0].metadata.name"},
		"the same pod twice (CS-029)": {both, `spec: {scaleStrategy: {podsToDelete: [a, a]}}`,
			"spec.scaleStrategy.podsToDelete"},
		"unknown strategy v1alpha1 (CS-024)": {both[:1], `spec: {updateStrategy: {type: Sometimes}}`,
			"spec.updateStrategy.type"},
		"unknown strategy v1beta1 (CS-024)": {both[1:], `spec: {updateStrategy: {type: Sometimes}}`,
			"spec.updateStrategy.type"},
		"unknown policy (CS-024)": {both[1:],
			`spec: {updateStrategy: {rollingUpdate: {podUpdatePolicy: Sometimes}}}`, "spec.updateStrategy.rollingUpdate.podUpdatePolicy"},
		"maxUnavailable without percent sign v1alpha1": {both[:1], `spec: {updateStrategy: {maxUnavailable: "5"}}`,
			"spec.updateStrategy.maxUnavailable"},
		"maxUnavailable without percent sign (CS-025)": {both[1:], `spec: {updateStrategy: {rollingUpdate: {maxUnavailable: "5"}}}`,
			"spec.updateStrategy.rollingUpdate.maxUnavailable"},
		"partition without percent sign (CS-025)": {both[1:], `spec: {updateStrategy: {rollingUpdate: {partition: "5"}}}`,
			"spec.updateStrategy.rollingUpdate.partition"},
		"negative partition (CS-025)": {both[1:], `spec: {updateStrategy: {rollingUpdate: {partition: -1}}}`,
			"spec.updateStrategy.rollingUpdate.partition"},
		"negative maxSurge (CS-035)": {both[1:], `spec: {updateStrategy: {rollingUpdate: {maxSurge: -1}}}`,
			"spec.updateStrategy.rollingUpdate.maxSurge"},
		"neither unavailable nor surge (CS-026)": {both[1:],
			`spec: {updateStrategy: {rollingUpdate: {maxUnavailable: 0, maxSurge: 0}}}`,
			"spec.updateStrategy.rollingUpdate.maxUnavailable"},
		"InPlaceOnly with surge v1alpha1 (CS-027)": {both[:1], `spec: {updateStrategy: {type: InPlaceOnly, maxSurge: 1}}`,
			"spec.updateStrategy.maxSurge"},
		"InPlaceOnly with surge (CS-027, IPU-021)": {both[1:],
			`spec: {updateStrategy: {rollingUpdate: {podUpdatePolicy: InPlaceOnly, maxSurge: 1}}}`,
			"spec.updateStrategy.rollingUpdate.maxSurge"},
		"negative grace period (IPU-022, CS-035)": {both[1:],
			`spec: {updateStrategy: {rollingUpdate: {podUpdatePolicy: InPlaceOnly, inPlaceUpdateStrategy: {gracePeriodSeconds: -1}}}}`,
			"spec.updateStrategy.rollingUpdate.inPlaceUpdateStrategy.gracePeriodSeconds"},
		"weight out of range (CS-028)": {both[1:], `spec: {updateStrategy: {rollingUpdate: {priorityStrategy: {weightPriority: [{weight: 101, matchSelector: {matchLabels: {a: b}}}]}}}}`, "spec.updateStrategy.rollingUpdate.priorityStrategy.weightPriority[0].weight"},
		"two containers of one name (CS-022)": {both,
			`spec: {template: {spec: {containers: [{name: a, image: a}, {name: a, image: b}]}}}`, "spec.template.spec.containers[1].name"},
		"a resizePolicy that does not exist (IPU-323)": {both,
			`spec: {template: {spec: {containers: [{name: a, image: a, resizePolicy: [{resourceName: cpu, restartPolicy: Sometimes}]}]}}}`, "spec.template.spec.containers[0].resizePolicy"},
		"request above the limit (CS-022)": {both,
			`spec: {template: {spec: {containers: [{name: a, image: a, resources: {requests: {cpu: "2"}, limits: {cpu: "1"}}}]}}}`,
			"spec.template.spec.containers[0].resources.requests"},
		"negative progressDeadlineSeconds (CS-030)": {both, `spec: {progressDeadlineSeconds: -1}`, "spec.progressDeadlineSeconds"},
		"scale limit without percent sign (CS-035)": {both, `spec: {scaleStrategy: {maxUnavailable: "5"}}`,
			"spec.scaleStrategy.maxUnavailable"},
		"an unusable order key (CS-028)": {both[1:],
			`spec: {updateStrategy: {rollingUpdate: {priorityStrategy: {orderPriority: [{orderedKey: ""}]}}}}`,
			"spec.updateStrategy.rollingUpdate.priorityStrategy.orderPriority[0].orderedKey"},
		"scatter twice (CS-028)": {both[1:],
			`spec: {updateStrategy: {rollingUpdate: {scatterStrategy: [{key: a, value: b}, {key: a, value: b}]}}}`,
			"spec.updateStrategy.rollingUpdate.scatterStrategy"},
		"pre-download parallelism in percent (CS-031)": {both[1:], `spec: {updateStrategy: {rollingUpdate: {podUpdatePolicy: InPlaceIfPossible, inPlaceUpdateStrategy: {imagePreDownloadParallelism: 10%}}}}`, "spec.updateStrategy.rollingUpdate.inPlaceUpdateStrategy.imagePreDownloadParallelism"},
		"partition without percent sign v1alpha1 (CS-025)": {both[:1], `spec: {updateStrategy: {partition: "5"}}`,
			"spec.updateStrategy.partition"},
		"negative partition v1alpha1 (CS-025)": {both[:1], `spec: {updateStrategy: {partition: -1}}`,
			"spec.updateStrategy.partition"},
		"negative maxSurge v1alpha1 (CS-035)": {both[:1], `spec: {updateStrategy: {maxSurge: -1}}`,
			"spec.updateStrategy.maxSurge"},
		"negative maxUnavailable v1alpha1 (CS-035)": {both[:1], `spec: {updateStrategy: {maxUnavailable: -1}}`,
			"spec.updateStrategy.maxUnavailable"},
		"negative maxUnavailable (CS-035)": {both[1:], `spec: {updateStrategy: {rollingUpdate: {maxUnavailable: -1}}}`,
			"spec.updateStrategy.rollingUpdate.maxUnavailable"},
		"maxSurge without percent sign (CS-025)": {both[1:], `spec: {updateStrategy: {rollingUpdate: {maxSurge: "1"}}}`,
			"spec.updateStrategy.rollingUpdate.maxSurge"},
		"neither unavailable nor surge v1alpha1 (CS-026)": {both[:1], `spec: {updateStrategy: {maxUnavailable: 0, maxSurge: 0}}`,
			"spec.updateStrategy.maxUnavailable"},
		"negative grace period v1alpha1 (IPU-022)": {both[:1],
			`spec: {updateStrategy: {type: InPlaceIfPossible, inPlaceUpdateStrategy: {gracePeriodSeconds: -1}}}`,
			"spec.updateStrategy.inPlaceUpdateStrategy.gracePeriodSeconds"},
		"weight out of range v1alpha1 (CS-028)": {both[:1],
			`spec: {updateStrategy: {priorityStrategy: {weightPriority: [{weight: 101, matchSelector: {matchLabels: {a: b}}}]}}}`,
			"spec.updateStrategy.priorityStrategy.weightPriority[0].weight"},
		"negative weight (CS-028)": {both[1:], `spec: {updateStrategy: {rollingUpdate: {priorityStrategy: {weightPriority: [{weight: -1, matchSelector: {matchLabels: {a: b}}}]}}}}`, "spec.updateStrategy.rollingUpdate.priorityStrategy.weightPriority[0].weight"},
		"weight without selector (CS-028)": {both[1:],
			`spec: {updateStrategy: {rollingUpdate: {priorityStrategy: {weightPriority: [{weight: 1, matchSelector: {}}]}}}}`,
			"spec.updateStrategy.rollingUpdate.priorityStrategy.weightPriority[0].matchSelector"},
		"scatter without key (CS-028)": {both[1:],
			`spec: {updateStrategy: {rollingUpdate: {scatterStrategy: [{key: "", value: b}]}}}`,
			"spec.updateStrategy.rollingUpdate.scatterStrategy[0].key"},
		"scatter twice v1alpha1 (CS-028)": {both[:1],
			`spec: {updateStrategy: {scatterStrategy: [{key: a, value: b}, {key: a, value: b}]}}`, "spec.updateStrategy.scatterStrategy"},
		"negative pre-download timeout (CS-031)": {both[1:], `spec: {updateStrategy: {rollingUpdate: {podUpdatePolicy: InPlaceIfPossible, inPlaceUpdateStrategy: {imagePreDownloadTimeoutSeconds: -1}}}}`, "spec.updateStrategy.rollingUpdate.inPlaceUpdateStrategy.imagePreDownloadTimeoutSeconds"},
		"negative pre-download minimum (CS-031)": {both[1:], `spec: {updateStrategy: {rollingUpdate: {podUpdatePolicy: InPlaceIfPossible, inPlaceUpdateStrategy: {imagePreDownloadMinUpdatedReadyPods: -1}}}}`, "spec.updateStrategy.rollingUpdate.inPlaceUpdateStrategy.imagePreDownloadMinUpdatedReadyPods"},
		"restartPolicy OnFailure (CS-023)": {both, `spec: {template: {spec: {restartPolicy: OnFailure}}}`,
			"spec.template.spec.restartPolicy"},
		"an environment variable without name (CS-022)": {both,
			`spec: {template: {spec: {containers: [{name: a, image: a, env: [{value: x}]}]}}}`,
			"spec.template.spec.containers[0].env[0].name"},
		"two volumes of one name (CS-022)": {both,
			`spec: {template: {spec: {volumes: [{name: v, emptyDir: {}}, {name: v, emptyDir: {}}]}}}`,
			"spec.template.spec.volumes[1].name"},
		"a container name that is none (CS-022)": {both, `spec: {template: {spec: {containers: [{name: "A B", image: a}]}}}`,
			"spec.template.spec.containers[0].name"},
		"a quantity below zero (CS-022)": {both,
			`spec: {template: {spec: {containers: [{name: a, image: a, resources: {limits: {cpu: "-1"}}}]}}}`,
			"spec.template.spec.containers[0].resources.limits"},
		"a label that is none (CS-022)": {both, `spec: {template: {metadata: {labels: {"a b": c}}}}`,
			"spec.template.metadata.labels"},
		"weight and order (CS-028, CS-183)": {both[1:], `spec: {updateStrategy: {rollingUpdate: {priorityStrategy: {weightPriority: [{weight: 1, matchSelector: {matchLabels: {a: b}}}], orderPriority: [{orderedKey: a}]}}}}`, "spec.updateStrategy.rollingUpdate.priorityStrategy"},
	}
	if !resizes(t) { // the API server drops the field
		delete(tests, "a resizePolicy that does not exist (IPU-323)")
	}
	for name, tt := range tests {
		for _, version := range tt.versions {
			t.Run(name+" "+version, func(t *testing.T) {
				err := kube.Create(t.Context(), cloneSet(version, "bad", tt.over), client.DryRunAll)
				if fields := fieldsOf(t, err); !names(fields, tt.field) {
					t.Errorf("the refusal does not name %s: %v", tt.field, fields)
				}
			})
		}
	}
}

// TestAcceptedManifests: manifests that the reference refused without need are accepted (CS-341 to 343).
func TestAcceptedManifests(t *testing.T) {
	for name, tt := range map[string]struct{ version, over string }{
		"surge alone (CS-341)": {"v1beta1", `spec: {updateStrategy: {rollingUpdate: {maxUnavailable: 0, maxSurge: 1}}}`},
		"OnDelete partly filled (CS-342)": {"v1beta1",
			`spec: {updateStrategy: {type: OnDelete, rollingUpdate: {maxUnavailable: 1}}}`},
		"OnDelete in v1alpha1 (CS-343)":          {"v1alpha1", `spec: {updateStrategy: {type: OnDelete}}`},
		"mount of a claim template (CS-022)":     {"v1beta1", `spec: {volumeClaimTemplates: [{metadata: {name: data}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}], template: {spec: {containers: [{name: nginx, image: a, volumeMounts: [{name: data, mountPath: /data}]}]}}}`},
		"fractional percentage (CS-095)":         {"v1beta1", `spec: {updateStrategy: {rollingUpdate: {maxUnavailable: "12.5%"}}}`},
		"a field that nobody knows yet (CS-016)": {"v1beta1", `spec: {template: {spec: {tomorrow: {a: [1]}}}}`},
	} {
		t.Run(name, func(t *testing.T) {
			if err := kube.Create(t.Context(), cloneSet(tt.version, "good", tt.over), client.DryRunAll); err != nil {
				t.Errorf("a dry run of the creation: %v", err)
			}
		})
	}
}

// TestUpdatesThatAreRefused: the selector is immutable (CS-032), InPlaceOnly accepts only changes that
// qualify (CS-033).
func TestUpdatesThatAreRefused(t *testing.T) {
	for _, version := range []string{"v1alpha1", "v1beta1"} {
		t.Run(version, func(t *testing.T) {
			strategy := `spec: {replicas: 0, updateStrategy: {type: InPlaceOnly}}`
			if version == "v1beta1" {
				strategy = `spec: {replicas: 0, updateStrategy: {rollingUpdate: {podUpdatePolicy: InPlaceOnly}}}`
			}
			set := cloneSet(version, "immutable-"+version, strategy)
			if err := kube.Create(t.Context(), set); err != nil {
				t.Fatal(err)
			}
			patch := func(body string) error {
				return kube.Patch(t.Context(), set.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte(body)),
					client.DryRunAll)
			}
			for what, body := range map[string]string{
				"selector": `{"spec":{"selector":{"matchLabels":{"app":"x"}},"template":{"metadata":{"labels":{"app":"x"}}}}}`,
				"env":      `{"spec":{"template":{"spec":{"containers":[{"name":"nginx","image":"nginx:1.26","env":[{"name":"A","value":"b"}]}]}}}}`,
			} {
				if fields := fieldsOf(t, patch(body)); !names(fields, "spec") {
					t.Errorf("%s: the refusal does not name spec: %v", what, fields)
				}
			}
			if err := patch(`{"spec":{"template":{"spec":{"containers":[{"name":"nginx","image":"nginx:1.27"}]}}}}`); err != nil {
				t.Errorf("an image under InPlaceOnly: %v", err)
			}
		})
	}
}

// TestConversion: what is written in one version can be read in the other (CS-250 to 256).
func TestConversion(t *testing.T) {
	old := cloneSet("v1alpha1", "converted", `
metadata: {labels: {apps.kruise.io/cloneset-scaling-exclude-preparing-delete: "true"}}
spec: {replicas: 0, scaleStrategy: {disablePVCReuse: true}, updateStrategy: {type: InPlaceIfPossible, partition: 40%, maxSurge: 1, paused: true}}
`)
	if err := kube.Create(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	read := &unstructured.Unstructured{}
	read.SetAPIVersion("apps.kruise.io/v1beta1")
	read.SetKind("CloneSet")
	if err := kube.Get(t.Context(), client.ObjectKeyFromObject(old), read); err != nil {
		t.Fatal(err)
	}
	strategy, _, _ := unstructured.NestedMap(read.Object, "spec", "updateStrategy")
	want := map[string]any{"type": "RollingUpdate",
		"rollingUpdate": map[string]any{"podUpdatePolicy": "InPlaceIfPossible", "partition": "40%",
			"maxSurge": int64(1), "maxUnavailable": "20%", "paused": true, "inPlaceUpdateStrategy": map[string]any{}}}
	if diff := cmp.Diff(want, strategy); diff != "" {
		t.Errorf("update strategy (-want +got):\n%s", diff)
	}
	exclude, _, _ := unstructured.NestedBool(read.Object, "spec", "scaleStrategy", "excludePreparingDelete")
	if !exclude {
		t.Error("the label did not become scaleStrategy.excludePreparingDelete")
	}
}

// TestUnknownFieldOfTheTemplate: a field that our types do not know reaches the body of the request that
// creates the pod, is kept in the revision and in the object, and survives an unrelated update (CS-016,
// CS-359).
func TestUnknownFieldOfTheTemplate(t *testing.T) {
	set := cloneSet("v1alpha1", "unknown", "")
	set.Object["spec"].(map[string]any)["template"] = map[string]any{
		"metadata": map[string]any{"labels": map[string]any{"app": "unknown"}},
		"spec": map[string]any{"tomorrow": map[string]any{"a": []any{int64(1), int64(1234567890123456789)}},
			"containers": []any{map[string]any{"name": "nginx", "image": "nginx:1.26", "nextYear": "x"}}},
	}
	if err := kube.Create(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	has := func(document string) bool {
		return strings.Contains(document, `"tomorrow":{"a":[1,1234567890123456789]}`) && strings.Contains(document, `"nextYear":"x"`)
	}
	count := func(n int) {
		t.Helper()
		if err := wait(func() error {
			if got := len(pods(t, "unknown")); got != n {
				return fmt.Errorf("%d pods, want %d", got, n)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	count(2)
	scale := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"replicas":3}}`))
	if err := kube.Patch(t.Context(), set.DeepCopy(), scale); err != nil {
		t.Fatal(err)
	}
	count(3)
	bodies := sent.with(`"generateName":"unknown-"`)
	if len(bodies) != 3 {
		t.Errorf("%d pods were sent, want 3", len(bodies))
	}
	for _, body := range bodies {
		if !has(body) {
			t.Errorf("the request lacks the unknown fields: %s", body)
		}
	}
	var revisions appsv1.ControllerRevisionList
	if err := kube.List(t.Context(), &revisions, client.InNamespace("default"), client.MatchingLabels{"app": "unknown"}); err != nil {
		t.Fatal(err)
	}
	if n := len(revisions.Items); n != 1 {
		t.Errorf("revisions: got %d, want 1", n)
	} else if text := string(revisions.Items[0].Data.Raw); !has(text) {
		t.Errorf("revision: got %s, want the unknown fields in it", text)
	}
	stored := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "apps.kruise.io/v1beta1", "kind": "CloneSet"}}
	if err := kube.Get(t.Context(), client.ObjectKeyFromObject(set), stored); err != nil {
		t.Fatal(err)
	}
	if encoded, _ := json.Marshal(stored.Object); !has(string(encoded)) {
		t.Errorf("the object lost the unknown fields: %s", encoded)
	}
}
