//go:build integration

package integration

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	dto "github.com/prometheus/client_model/go"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/nodes"
)

// broadcastJob returns a BroadcastJob in the version, merged with a manifest in YAML. No node is eligible for
// it.
func broadcastJob(t *testing.T, version, name, over string) *unstructured.Unstructured {
	t.Helper()
	object, extra := document(t, fmt.Sprintf(`
apiVersion: apps.kruise.io/%s
kind: BroadcastJob
metadata: {name: %q, namespace: default}
spec:
  template:
    spec: {restartPolicy: Never, nodeSelector: {nowhere: "1"}, containers: [{name: main, image: "nginx:1.26"}]}
`, version, name)), map[string]any{}
	if err := yaml.Unmarshal([]byte(over), &extra); err != nil {
		t.Fatal(err)
	}
	object.Object = mergeInto(object.Object, extra)
	return object
}

// TestNamesOfBroadcastJobs shows BJ-019 (part), and names and subresources of the kind in both versions.
func TestNamesOfBroadcastJobs(t *testing.T) {
	crd := document(t, `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: broadcastjobs.apps.kruise.io}}`)
	if err := kube.Get(t.Context(), client.ObjectKeyFromObject(crd), crd); err != nil {
		t.Fatal(err)
	}
	spec := crd.Object["spec"].(map[string]any)
	strategy, _, _ := unstructured.NestedString(spec, "conversion", "strategy")
	if diff := cmp.Diff([]any{"bcj"}, spec["names"].(map[string]any)["shortNames"]); diff != "" {
		t.Errorf("short names (-want +got):\n%s", diff)
	}
	if spec["scope"] != "Namespaced" {
		t.Errorf("scope: got %v, want Namespaced", spec["scope"])
	}
	if strategy != "None" {
		t.Errorf("conversion: got %s, want None", strategy)
	}
	for _, item := range spec["versions"].([]any) {
		if diff := cmp.Diff(map[string]any{"status": map[string]any{}}, item.(map[string]any)["subresources"]); diff != "" {
			t.Errorf("sub-resources (-want +got):\n%s", diff)
		}
	}
}

// TestDefaultsOfBroadcastJobs shows BJ-016, BJ-019 and BJ-150: what users leave out is filled in on create
// and update (BJ-010 (part)), a status is not taken from users, fields of the template that nobody knows
// stay, and what is written in one version is there in the other, whole.
func TestDefaultsOfBroadcastJobs(t *testing.T) {
	const given = `{metadata: {labels: {l: "1"}, annotations: {a: "1"}, finalizers: [example.org/f]}, spec: {failurePolicy: {restartLimit: 3}, template: {future: {a: [1]}}},
		status: {active: 7, succeeded: 7, failed: 7, desired: 7, phase: completed}}`
	for _, versions := range [][2]string{{"v1alpha1", "v1beta1"}, {"v1beta1", "v1alpha1"}} {
		job := broadcastJob(t, versions[0], "defaults-"+versions[0], given)
		makes(t, job)
		t.Cleanup(func() { // the finalizer is its user's
			_ = kube.Patch(t.Context(), job, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))) //nolint:usetesting // see makes
		})
		spec := job.Object["spec"].(map[string]any)
		limit, _, _ := unstructured.NestedInt64(spec, "failurePolicy", "restartLimit")
		failure, _, _ := unstructured.NestedString(spec, "failurePolicy", "type")
		completion, _, _ := unstructured.NestedString(spec, "completionPolicy", "type")
		template := spec["template"].(map[string]any)
		container := template["spec"].(map[string]any)["containers"].([]any)[0].(map[string]any)
		for name, test := range map[string]struct{ got, want any }{
			"parallelism":    {spec["parallelism"], int64(2147483647)},
			"failure policy": {failure, "FailFast"}, "completion policy": {completion, "Always"},
			"pull policy": {container["imagePullPolicy"], "Always"},
			"DNS policy":  {template["spec"].(map[string]any)["dnsPolicy"], "ClusterFirst"}} {
			if test.got != test.want {
				t.Errorf("%s: got %v, want %v: %s", name, test.got, test.want, asYAML(t, spec))
			}
		}
		if limit != 3 {
			t.Errorf("restart limit: got %d, want 3: %s", limit, asYAML(t, spec))
		}
		if template["future"] == nil {
			t.Errorf("the field that nobody knows has gone: %s", asYAML(t, spec))
		}
		if active, _, _ := unstructured.NestedInt64(job.Object, "status", "active"); active != 0 {
			t.Errorf("active pods of the status that its author wrote: got %v, want none", job.Object["status"])
		}
		body := `{"spec":{"parallelism":null,"completionPolicy":null},"status":{"active":9}}`
		if err := kube.Patch(t.Context(), job, client.RawPatch(types.MergePatchType, []byte(body))); err != nil {
			t.Fatal(err)
		}
		if active, _, _ := unstructured.NestedInt64(job.Object, "status", "active"); active != 0 {
			t.Errorf("active pods of the status that was patched: got %d, want none", active)
		}
		if diff := cmp.Diff(asYAML(t, spec), asYAML(t, job.Object["spec"])); diff != "" {
			t.Errorf("spec after what was taken away (-want +got):\n%s", diff)
		}
		same, other := in(t, versions[0], job), in(t, versions[1], job)
		same.SetManagedFields(nil)
		other.SetManagedFields(nil)
		same.SetAPIVersion("")
		other.SetAPIVersion("")
		for _, object := range []*unstructured.Unstructured{same, other} {
			object.SetResourceVersion("")
			delete(object.Object, "status") // the controller may have written between
		}
		if diff := cmp.Diff(same.Object, other.Object); diff != "" {
			t.Errorf("in %s and %s: %s", versions[0], versions[1], diff)
		}
	}
}

// TestBadManifestsOfBroadcastJobs: invalid manifests are refused with 422, naming the field that the user
// wrote (BJ-024, and parts of the chapter).
func TestBadManifestsOfBroadcastJobs(t *testing.T) {
	template := func(more string) string { return `{spec: {template: ` + more + `}}` }
	for name, test := range map[string]struct{ name, over, field string }{
		"a dot":             {"a.b", `{}`, "metadata.name"},
		"Never with a time": {"bad", `{spec: {completionPolicy: {type: Never, ttlSecondsAfterFinished: 1}}}`, "spec.completionPolicy.ttlSecondsAfterFinished"},
		"no restartPolicy":  {"bad", template(`{spec: {restartPolicy: null}}`), "spec.template.spec.restartPolicy"},
		"a label of ours":   {"bad", template(`{metadata: {labels: {broadcastjob-name: x}}}`), "spec.template.metadata.labels[broadcastjob-name]"},
		"no image":          {"bad", template(`{spec: {containers: [{name: a}]}}`), "spec.template.spec.containers[0].image"},
		"a bad label":       {"bad", template(`{metadata: {labels: {"a b": c}}}`), "spec.template.metadata.labels"},
		"what pods may not have": {"bad", template(`{metadata: {annotations: {controller.kubernetes.io/pod-deletion-cost: much}}}`),
			"spec.template.metadata.annotations[controller.kubernetes.io/pod-deletion-cost]"},
		"parallelism":       {"bad", `{spec: {parallelism: many}}`, "spec.parallelism"},
		"an unknown policy": {"bad", `{spec: {failurePolicy: {type: Cry}}}`, "spec.failurePolicy.type"},
		"a negative limit":  {"bad", `{spec: {failurePolicy: {restartLimit: -1}}}`, "spec.failurePolicy.restartLimit"},
		"a wrong type":      {"bad", `{spec: {paused: perhaps}}`, "spec.paused"},
	} {
		for _, version := range []string{"v1alpha1", "v1beta1"} {
			err := kube.Create(t.Context(), broadcastJob(t, version, test.name, test.over))
			var status apierrors.APIStatus
			if !errors.As(err, &status) || status.Status().Details == nil {
				t.Errorf("%s %s: got %v, want it refused with details", name, version, err)
				continue
			}
			if code := status.Status().Code; code != 422 && name != "a wrong type" {
				t.Errorf("%s %s: refused by %d, want 422: %v", name, version, code, err)
			}
			if len(status.Status().Details.Causes) == 0 && name != "a wrong type" {
				t.Errorf("%s %s: refused without causes: %v", name, version, err)
			}
			if !strings.Contains(err.Error(), test.field) {
				t.Errorf("%s %s: got %v, want %s in it", name, version, err, test.field)
			}
		}
	}
	if err := kube.Create(t.Context(), broadcastJob(t, "v1beta1", "good", `{spec: {completionPolicy: {activeDeadlineSeconds: 0}}}`), client.DryRunAll); err != nil {
		t.Errorf("a deadline of 0 s: %v", err)
	}
}

// TestLifeOfABroadcastJob: pods are created for the nodes that the template selects, with what the API server
// makes of them; the job completes when they have ended, and goes when its time is over (BJ-040 (part),
// BJ-041 (part), BJ-110 (part), BJ-112 (part), BJ-120 (part), BJ-131 (part)).
func TestLifeOfABroadcastJob(t *testing.T) {
	node := func(name string) {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"bcj": "life"}}}
		if err := kube.Create(t.Context(), node); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = kube.Delete(t.Context(), node) }) //nolint:usetesting // see makes
		node.Status.Allocatable = corev1.ResourceList{corev1.ResourcePods: resource.MustParse("10")}
		if err := kube.Status().Update(t.Context(), node); err != nil {
			t.Fatal(err)
		}
	}
	node("bcj-1")
	node("bcj-2")
	job := broadcastJob(t, "v1beta1", "life", `{spec: {completionPolicy: {ttlSecondsAfterFinished: 1}, template: {metadata: {labels: {x: "y"}}, spec: {tolerations: [{operator: Exists}], nodeSelector: {nowhere: null, bcj: life}}}}}`)
	makes(t, job)
	ends := func(count int) {
		t.Helper()
		var pods corev1.PodList
		if err := wait(func() error {
			if err := kube.List(t.Context(), &pods, client.InNamespace("default"), client.MatchingLabels{"broadcastjob-name": "life"}); err != nil {
				return err
			}
			if len(pods.Items) != count {
				return fmt.Errorf("%d pods: %v", len(pods.Items), in(t, "v1beta1", job).Object["status"])
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		for i := range pods.Items {
			pod := &pods.Items[i]
			owner := metav1.GetControllerOf(pod)
			if owner == nil || owner.UID != job.GetUID() || !*owner.BlockOwnerDeletion {
				t.Errorf("owner of pod %s: got %+v, want the job, which waits for it", pod.Name, owner)
			}
			for key, want := range map[string]string{"x": "y", "broadcastjob-controller-uid": string(job.GetUID())} {
				if pod.Labels[key] != want {
					t.Errorf("labels of pod %s: got %v, want %s to be %s", pod.Name, pod.Labels, key, want)
				}
			}
			if pod.GenerateName != "life-" {
				t.Errorf("generated name of pod %s: got %s, want life-", pod.Name, pod.GenerateName)
			}
			if node := nodes.Target(pod); !strings.HasPrefix(node, "bcj-") {
				t.Errorf("node of pod %s: got %q, want one of the job", pod.Name, node)
			}
			succeeded := client.RawPatch(types.MergePatchType, []byte(`{"status":{"phase":"Succeeded"}}`)) // controllers write pods, too
			if err := kube.Status().Patch(t.Context(), pod, succeeded); err != nil {
				t.Fatal(err)
			}
		}
	}
	var served map[string]*dto.MetricFamily
	if err := wait(func() (err error) { // BJ-143; while its pods run, since what waits is not told of a job that has ended
		if served, err = scrape(t); err != nil {
			return err
		}
		for name, labels := range map[string][]string{"afloat_broadcastjob_pod_actions_total": {"action", "reason"}, "afloat_broadcastjob_pods_waiting": {"namespace", "name", "reason"}} {
			kind := map[bool]string{true: "counter", false: "gauge"}[strings.HasSuffix(name, "total")]
			err = errors.Join(err, isServed(served, name, kind, labels))
		}
		return err
	}); err != nil {
		t.Errorf("metrics: %v", err)
	}
	for family, label := range map[string]string{"controller_runtime_reconcile_total": "controller", "workqueue_adds_total": "controller"} {
		found := false
		for _, metric := range served[family].GetMetric() {
			for _, pair := range metric.GetLabel() {
				found = found || pair.GetName() == label && pair.GetValue() == "broadcastjob"
			}
		}
		if !found {
			t.Errorf("%s has no controller broadcastjob", family)
		}
	}
	ends(2)
	if err := wait(func() error {
		found := &appsv1beta1.BroadcastJob{}
		if err := kube.Get(t.Context(), client.ObjectKeyFromObject(job), found); err == nil {
			return fmt.Errorf("%+v", found.Status)
		} else if !apierrors.IsNotFound(err) {
			return err
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}
