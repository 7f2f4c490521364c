//go:build integration

package integration

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
)

// spreadNode makes a node of a zone, without the taint that the API server gives new nodes.
func spreadNode(t *testing.T, name, zone string) {
	t.Helper()
	node := made(t, fmt.Sprintf(`{apiVersion: v1, kind: Node, metadata: {name: %s, labels: {zone: %s}}}`, name, zone))
	if err := kube.Patch(t.Context(), node, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"taints":null}}`))); err != nil {
		t.Fatal(err)
	}
}

const spreadTemplate = `{metadata: {labels: {app: %s%s}}, spec: {containers: [{name: c, image: "app:%s"}]}}`

// replicaSet makes the ReplicaSet that the Deployment's controller, which does not run here, would make.
func replicaSet(t *testing.T, deployment *unstructured.Unstructured, version string) *unstructured.Unstructured {
	t.Helper()
	name := deployment.GetName()
	return made(t,
		fmt.Sprintf(
			`{apiVersion: apps/v1, kind: ReplicaSet, metadata: {name: %s-%s, namespace: default, labels: {app: %s, pod-template-hash: %s},
  ownerReferences: [{apiVersion: apps/v1, kind: Deployment, name: %s, uid: %s, controller: true}]},
  spec: {replicas: 0, selector: {matchLabels: {app: %s, pod-template-hash: %s}}, template: %s}}`, name, version, name, version, name,
			deployment.GetUID(), name, version,
			fmt.Sprintf(spreadTemplate, name, ", pod-template-hash: "+version, version)))
}

// podOf makes a pod of a ReplicaSet; node may be empty.
func podOf(t *testing.T, set *unstructured.Unstructured, name, node string) {
	t.Helper()
	labels, err := json.Marshal(set.GetLabels())
	if err != nil {
		t.Fatal(err)
	}
	made(t, fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: %s, namespace: default, labels: %s,
  ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: %s, uid: %s, controller: true}]}, spec: {nodeName: %q, containers: [{name: c, image: app}]}}`,
		name, labels, set.GetName(), set.GetUID(), node))
}

// counted formats a list of a status: name, replicas and missing replicas of each subset.
func counted(list []appsv1beta1.WorkloadSpreadSubsetStatus) string {
	var parts []string
	for _, s := range list {
		part := fmt.Sprintf("%s %d %d", s.Name, s.Replicas, s.MissingReplicas)
		if n := len(s.CreatingPods) + len(s.DeletingPods); n > 0 {
			part += fmt.Sprintf(" (%d booked)", n)
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, ", ")
}

// countsBecome waits until the lists of a status are as given, by version; the list of all pods has version
// "".
func countsBecome(t *testing.T, name string, want map[string]string) {
	t.Helper()
	spread := &appsv1beta1.WorkloadSpread{}
	if err := wait(func() error {
		if err := kube.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: name}, spread); err != nil {
			return err
		}
		got := map[string]string{"": counted(spread.Status.SubsetStatuses)}
		for version, list := range spread.Status.VersionedSubsetStatuses {
			got[version] = counted(list)
		}
		if diff := cmp.Diff(want, got); diff != "" || spread.Status.ObservedGeneration != spread.Generation {
			return fmt.Errorf("generation %d of %d: %s", spread.Status.ObservedGeneration, spread.Generation, diff)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// ranked waits for subset and deletion cost of each pod of an application.
func ranked(t *testing.T, app string, want map[string]string) {
	t.Helper()
	if err := wait(func() error {
		var list corev1.PodList
		if err := kube.List(t.Context(), &list, client.InNamespace("default"), client.MatchingLabels{"app": app}); err != nil {
			return err
		}
		got := map[string]string{}
		for i := range list.Items {
			placed, _ := pub.ParsePlacement(list.Items[i].Annotations)
			got[list.Items[i].Name] = placed.Subset + " " + list.Items[i].Annotations[pub.PodDeletionCost]
		}
		if diff := cmp.Diff(want, got); diff != "" {
			return fmt.Errorf("pods: %s", diff)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// WS-003, WS-085, WS-120, WS-121, WS-141 to WS-145, WS-154, WS-161 to WS-164, WS-178: pods that existed
// before are found and ranked, a rollout is counted by version, and nothing is written twice.
func TestWorkloadSpreadOfPodsThatWereThere(t *testing.T) {
	const name = "spread-before"
	for _, zone := range []string{"a", "b", "c"} {
		spreadNode(t, name+"-"+zone, name+"-"+zone)
	}
	deployment := made(t, fmt.Sprintf(`{apiVersion: apps/v1, kind: Deployment, metadata: {name: %s, namespace: default},
  spec: {replicas: 4, selector: {matchLabels: {app: %s}}, template: %s}}`, name, name, fmt.Sprintf(spreadTemplate, name, "", "v1")))
	first := replicaSet(t, deployment, "v1")
	for _, pod := range [][2]string{{"-p4", "-c"}, {"-p3", "-b"}, {"-p2", "-a"}, {"-p1", "-a"}} {
		podOf(t, first, name+pod[0], name+pod[1])
	}
	spread := made(t,
		fmt.Sprintf(`{apiVersion: apps.kruise.io/v1beta1, kind: WorkloadSpread, metadata: {name: %s, namespace: default}, spec: {
  targetRef: {apiVersion: apps/v1, kind: Deployment, name: %s}, subsets: [
  {name: a, maxReplicas: 1, requiredNodeSelector: {matchExpressions: [{key: zone, operator: In, values: [%s-a]}]}, patch: {metadata: {labels: {pool: a}}}},
  {name: b, requiredNodeSelector: {matchExpressions: [{key: zone, operator: In, values: [%s-b]}]}}]}}`, name, name, name, name))
	countsBecome(t, name, map[string]string{"": "a 2 0, b 1 -1", "v1": "a 2 0, b 1 -1"})
	// Of the two pods in a, the first by name is deleted first, or the newer one, which is the same pod here.
	ranked(t, name, map[string]string{name + "-p1": "a -100", name + "-p2": "a 200", name + "-p3": "b 100", name + "-p4": " -300"})
	pod := &corev1.Pod{}
	if err := kube.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: name + "-p1"},
		pod); err != nil {
		t.Errorf("reading the pod: %v", err)
	}
	if pod.Labels["pool"] != "a" {
		t.Errorf("labels of the pod: got %v, want pool a", pod.Labels)
	}

	// At rest a pass writes nothing; the second change is written once.
	status := fmt.Sprintf("PATCH /apis/apps.kruise.io/v1beta1/namespaces/default/workloadspreads/%s/status", name)
	before, podWrites := len(writes.with(status)), len(writes.with("PATCH /api/v1/namespaces/default/pods/"+name))
	for _, patch := range []string{`{"metadata":{"annotations":{"nothing":"new"}}}`, `{"spec":{"scheduleStrategy":{"type":"Fixed"}}}`} {
		if err := kube.Patch(t.Context(), spread, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
			t.Fatal(err)
		}
	}
	countsBecome(t, name, map[string]string{"": "a 2 0, b 1 -1", "v1": "a 2 0, b 1 -1"})
	if n := len(writes.with(status)) - before; n != 1 {
		t.Errorf("%d writes of the status", n)
	}
	if n := len(writes.with("PATCH /api/v1/namespaces/default/pods/"+name)) - podWrites; n != 0 {
		t.Errorf("%d writes of pods at rest", n)
	}

	// In the next version the ReplicaSet of the Deployment's template is the latest one, and its pods fill
	// the subsets again.
	second := replicaSet(t, deployment, "v2")
	if err := kube.Patch(t.Context(), deployment,
		client.RawPatch(types.MergePatchType,
			[]byte(`{"spec":{"template":{"spec":{"containers":[{"name":"c","image":"app:v2"}]}}}}`))); err != nil {
		t.Fatal(err)
	}
	ranked(t, name, map[string]string{name + "-p1": "a -200", name + "-p2": "a 100", name + "-p3": "b 200", name + "-p4": " -300"})
	podOf(t, second, name+"-q1", name+"-a")
	podOf(t, second, name+"-q2", name+"-b")
	countsBecome(t, name, map[string]string{"": "a 3 0, b 2 -1", "v1": "a 2 0, b 1 -1", "v2": "a 1 0, b 1 -1"})
	ranked(t, name, map[string]string{name + "-p1": "a -200", name + "-p2": "a 100", name + "-p3": "b 200", name + "-p4": " -300",
		name + "-q1": "a 200", name + "-q2": "b 100"})

	// A deleted pod frees its place, also if the webhook has a booking for it.
	for _, pod := range []string{"-p1", "-p2", "-p3", "-p4"} {
		if err := kube.Delete(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name + pod}},
			client.GracePeriodSeconds(0)); err != nil {
			t.Fatal(err)
		}
	}
	countsBecome(t, name, map[string]string{"": "a 1 0, b 1 -1", "v2": "a 1 0, b 1 -1"})
}

// WS-122, WS-152, WS-155: a booking whose pod never comes expires by itself, without another event.
func TestABookingWhosePodNeverComesExpires(t *testing.T) {
	const name = "spread-expires"
	deployment := made(t, fmt.Sprintf(`{apiVersion: apps/v1, kind: Deployment, metadata: {name: %s, namespace: default},
  spec: {replicas: 4, selector: {matchLabels: {app: %s}}, template: %s}}`, name, name, fmt.Sprintf(spreadTemplate, name, "", "v1")))
	replicaSet(t, deployment, "v1")
	spread := made(t,
		fmt.Sprintf(`{apiVersion: apps.kruise.io/v1beta1, kind: WorkloadSpread, metadata: {name: %s, namespace: default}, spec: {
  targetRef: {apiVersion: apps/v1, kind: Deployment, name: %s}, subsets: [{name: a, maxReplicas: "50%%"}, {name: b}]}}`, name, name))
	countsBecome(t, name, map[string]string{"": "a 0 2, b 0 -1"})
	booked := time.Now().UTC().Add(-28 * time.Second).Format(time.RFC3339)
	patch := fmt.Sprintf(
		`{"status":{"versionedSubsetStatuses":{"v1":[{"name":"a","replicas":0,"missingReplicas":1,"creatingPods":{"lost":%q}}]}}}`, booked)
	if err := kube.Status().Patch(t.Context(), spread, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		t.Fatal(err)
	}
	countsBecome(t, name, map[string]string{"": "a 0 2, b 0 -1"})
	hasEvent(t, spread, "CreatePodFailed", "lost of subset a")
	// WS-121: a change of the replicas is a change of the quotas.
	if err := kube.Patch(t.Context(), deployment, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":7}}`))); err != nil {
		t.Fatal(err)
	}
	countsBecome(t, name, map[string]string{"": "a 0 4, b 0 -1"})
}
