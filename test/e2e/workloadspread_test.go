//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
)

// zone labels the nodes of the tests.
const zone = "e2e.afloat/zone"

// zones puts the nodes into zones a, b, c, and so on, and returns them by name of the node.
func zones(t *testing.T) map[string]string {
	t.Helper()
	nodes := kubelets(t)
	if len(nodes) < 3 {
		t.Fatalf("%d nodes, not 3", len(nodes))
	}
	of := map[string]string{}
	for i := range nodes {
		node := &nodes[i]
		of[node.Name] = string(rune('a' + i))
		// Tests run side by side: the label stays.
		if err := kube.Patch(t.Context(), node,
			client.RawPatch("application/merge-patch+json",
				fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q}}}`, zone, of[node.Name]))); err != nil {
			t.Error(err)
		}
	}
	return of
}

// in is a subset of one zone.
func in(name, rest string) string {
	return `{name: zone-` + name + `, requiredNodeSelector: {matchExpressions: [{key: ` + zone + `, operator: In, values: [` + name +
		`]}]}` + rest + `}`
}

// apply makes an object from YAML.
func apply(t *testing.T, manifest string) *unstructured.Unstructured {
	t.Helper()
	object := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(manifest), &object.Object); err != nil {
		t.Fatalf("%v in\n%s", err, manifest)
	}
	if err := kube.Create(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	return object
}

func spread(t *testing.T, namespace, target, spec string) *appsv1beta1.WorkloadSpread {
	t.Helper()
	object := apply(t, `{apiVersion: apps.kruise.io/v1beta1, kind: WorkloadSpread, metadata: {namespace: `+namespace+
		`, name: spread}, spec: {targetRef: `+target+`, `+spec+`}}`)
	made := &appsv1beta1.WorkloadSpread{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: object.GetName()}}
	// the controller counts, and the webhook knows the WorkloadSpread
	eventually(t, "the WorkloadSpread", func(ctx context.Context) string {
		if err := kube.Get(ctx, client.ObjectKeyFromObject(made), made); err != nil || made.Status.ObservedGeneration == 0 {
			return fmt.Sprintf("%v, %+v", err, made.Status)
		}
		return ""
	})
	return made
}

// place returns the subset of a pod, the zone of its node and its deletion cost.
func place(pod *corev1.Pod, of map[string]string) string {
	placement, _ := pub.ParsePlacement(pod.Annotations)
	return strings.TrimSpace(placement.Subset + " in " + of[pod.Spec.NodeName] + " " + pod.Annotations[pub.PodDeletionCost])
}

// spreads waits until the pods that are neither ending nor ended are placed as given: how many at each place.
func spreads(t *testing.T, namespace string, of map[string]string, want map[string]int) {
	t.Helper()
	eventually(t, "the spread", func(ctx context.Context) string {
		var pods corev1.PodList
		if err := kube.List(ctx, &pods, client.InNamespace(namespace)); err != nil {
			return err.Error()
		}
		got := map[string]int{}
		for i := range pods.Items {
			if pod := &pods.Items[i]; pod.DeletionTimestamp == nil && pod.Status.Phase == corev1.PodRunning {
				got[place(pod, of)]++
			}
		}
		if !maps.Equal(got, want) {
			return fmt.Sprintf("%v, not %v", got, want)
		}
		return ""
	})
}

// counted waits until the overall status has these replicas and missing replicas by subset, and nothing is
// booked any more.
func counted(t *testing.T, s *appsv1beta1.WorkloadSpread, want map[string][2]int32) {
	t.Helper()
	eventually(t, "the status", func(ctx context.Context) string {
		if err := kube.Get(ctx, client.ObjectKeyFromObject(s), s); err != nil {
			return err.Error()
		}
		got := map[string][2]int32{}
		for _, subset := range s.Status.SubsetStatuses {
			got[subset.Name] = [2]int32{subset.Replicas, subset.MissingReplicas}
		}
		for version, subsets := range s.Status.VersionedSubsetStatuses {
			for _, subset := range subsets {
				if len(subset.CreatingPods)+len(subset.DeletingPods) > 0 {
					return fmt.Sprintf("version %s books %v, %v in %s", version, subset.CreatingPods, subset.DeletingPods, subset.Name)
				}
			}
		}
		if !maps.Equal(got, want) {
			return fmt.Sprintf("%v, not %v", got, want)
		}
		return ""
	})
}

const nap = `terminationGracePeriodSeconds: 1, containers: [{name: nginx, image: "nginx:1.26", imagePullPolicy: IfNotPresent MOUNTS}]`

// WS-001 (part), WS-002 (part), WS-047 (part), WS-050 (part), WS-074 to WS-076, WS-092 (part), WS-094 (part),
// WS-142 (part), WS-144 (part), WS-150 (part), WS-160 to WS-165, WS-190 (part): a CloneSet with claims is
// spread over three zones, with a patch; pods that existed before are adopted, and those above the number of
// their subset are deleted first.
func TestSpreadOfCloneSet(t *testing.T) {
	t.Parallel()
	of := zones(t)
	w := create(t, "spread", `
replicas: 2
template:
  spec:
    nodeSelector: {`+zone+`: a}
    containers:
    - {name: nginx, image: "nginx:1.26", imagePullPolicy: IfNotPresent, volumeMounts: [{name: data, mountPath: /data}]}
volumeClaimTemplates:
- metadata: {name: data}
  spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 10Mi}}}
updateStrategy: {type: RollingUpdate, rollingUpdate: {podUpdatePolicy: InPlaceIfPossible}}
`)
	s := spread(t, w.key.Namespace, `{apiVersion: apps.kruise.io/v1alpha1, kind: CloneSet, name: spread}`,
		`subsets: [`+in("a", `, maxReplicas: 1`)+`, `+
			in("b", `, maxReplicas: 2, patch: {metadata: {labels: {at: b}}, spec: {containers: [{name: nginx, env: [{name: AT, value: b}]}]}}`)+`, `+in("c", ``)+`]`)
	// adopted, and one more than the subset may have
	spreads(t, w.key.Namespace, of, map[string]int{"zone-a in a 300": 1, "zone-a in a -100": 1})
	w.change(`spec: {replicas: 0}`)
	spreads(t, w.key.Namespace, of, map[string]int{})
	w.change(`spec: {template: {spec: {nodeSelector: null}}}`)
	w.change(`spec: {replicas: 6}`)
	spreads(t, w.key.Namespace, of, map[string]int{"zone-a in a 300": 1, "zone-b in b 200": 2, "zone-c in c 100": 3})
	counted(t, s, map[string][2]int32{"zone-a": {1, 0}, "zone-b": {2, 0}, "zone-c": {3, -1}})
	for _, pod := range w.pods() {
		if placed, _ := pub.ParsePlacement(pod.Annotations); placed.Subset == "zone-b" &&
			(pod.Labels["at"] != "b" || !slices.Contains(pod.Spec.Containers[0].Env, corev1.EnvVar{Name: "AT", Value: "b"})) {
			t.Errorf("pod %s lacks the patch: %v %v", pod.Name, pod.Labels, pod.Spec.Containers[0].Env)
		}
	}
	w.settled()
	w.change(`spec: {replicas: 2}`)
	spreads(t, w.key.Namespace, of, map[string]int{"zone-a in a 300": 1, "zone-b in b 200": 1})
	counted(t, s, map[string][2]int32{"zone-a": {1, 0}, "zone-b": {1, 1}, "zone-c": {0, -1}})
}

// WS-012 (part), WS-080 to WS-085, WS-163 (part), WS-196 (part), WS-198 (part): percentages of a Deployment;
// a rolling update fills the subsets again.
func TestSpreadOfDeployment(t *testing.T) {
	t.Parallel()
	of := zones(t)
	space := namespace(t)
	s := spread(t, space, `{apiVersion: apps/v1, kind: Deployment, name: web}`, `subsets: [`+in("a", `, maxReplicas: 30%`)+`, `+
		in("b", `, maxReplicas: 30%`)+`, `+in("c", `, maxReplicas: 40%`)+`]`)
	deployment := apply(t, `{apiVersion: apps/v1, kind: Deployment, metadata: {namespace: `+space+
		`, name: web}, spec: {replicas: 5, selector: {matchLabels: {app: web}},
		template: {metadata: {labels: {app: web}}, spec: {`+strings.ReplaceAll(nap, "MOUNTS", "")+`}}}}`)
	spreads(t, space, of, map[string]int{"zone-a in a 300": 2, "zone-b in b 200": 2, "zone-c in c 100": 1})
	patch := func(body string) {
		t.Helper()
		if err := kube.Patch(t.Context(), deployment, client.RawPatch("application/merge-patch+json", []byte(body))); err != nil {
			t.Fatal(err)
		}
	}
	patch(`{"spec":{"template":{"metadata":{"annotations":{"again":"1"}}}}}`)
	eventually(t, "the rolling update", func(ctx context.Context) string {
		var pods corev1.PodList
		if err := kube.List(ctx, &pods, client.InNamespace(space)); err != nil {
			return err.Error()
		}
		for _, pod := range pods.Items {
			if pod.DeletionTimestamp == nil && pod.Annotations["again"] == "" {
				return pod.Name + " is old"
			}
		}
		return ""
	})
	spreads(t, space, of, map[string]int{"zone-a in a 300": 2, "zone-b in b 200": 2, "zone-c in c 100": 1})
	patch(`{"spec":{"replicas":10}}`)
	spreads(t, space, of, map[string]int{"zone-a in a 300": 3, "zone-b in b 200": 3, "zone-c in c 100": 4})
	counted(t, s, map[string][2]int32{"zone-a": {3, 0}, "zone-b": {3, 0}, "zone-c": {4, 0}})
	patch(`{"spec":{"replicas":0}}`)
	counted(t, s, map[string][2]int32{"zone-a": {0, 0}, "zone-b": {0, 0}, "zone-c": {0, 0}})
}

// WS-020 (part), WS-107 (part), WS-168 (part): the pods of a Job are spread, and give their places back when
// they end.
func TestSpreadOfJob(t *testing.T) {
	t.Parallel()
	of := zones(t)
	space := namespace(t)
	s := spread(t, space, `{apiVersion: batch/v1, kind: Job, name: work}`, `subsets: [`+in("a", `, maxReplicas: 1`)+`, `+
		in("b", `, maxReplicas: 2`)+`, `+in("c", ``)+`]`)
	apply(t, `{apiVersion: batch/v1, kind: Job, metadata: {namespace: `+space+`, name: work}, spec: {parallelism: 5, completions: 5,
		template: {spec: {restartPolicy: Never, `+
		strings.ReplaceAll(nap, "MOUNTS", `, command: [sh, -c, "until [ -e /tmp/end ]; do sleep 0.2; done"]`)+`}}}}`)
	spreads(t, space, of, map[string]int{"zone-a in a": 1, "zone-b in b": 2, "zone-c in c": 2})
	counted(t, s, map[string][2]int32{"zone-a": {1, 0}, "zone-b": {2, 0}, "zone-c": {2, -1}})
}

// WS-060 to WS-064: the ordinals of a StatefulSet.
func TestSpreadOfStatefulSet(t *testing.T) {
	t.Parallel()
	of := zones(t)
	space := namespace(t)
	spread(t, space, `{apiVersion: apps/v1, kind: StatefulSet, name: db}`, `subsets: [`+in("a", `, maxReplicas: 1`)+`, `+
		in("b", `, maxReplicas: 2`)+`, `+in("c", ``)+`]`)
	apply(t, `{apiVersion: apps/v1, kind: StatefulSet, metadata: {namespace: `+space+
		`, name: db}, spec: {serviceName: db, replicas: 4, podManagementPolicy: Parallel, ordinals: {start: 5},
		selector: {matchLabels: {app: db}}, template: {metadata: {labels: {app: db}}, spec: {`+strings.ReplaceAll(nap, "MOUNTS", "")+`}}}}`)
	spreads(t, space, of, map[string]int{"zone-a in a": 1, "zone-b in b": 2, "zone-c in c": 1})
	for name, want := range map[string]string{"db-5": "zone-a", "db-6": "zone-b", "db-7": "zone-b", "db-8": "zone-c"} {
		pod := &corev1.Pod{}
		if err := kube.Get(t.Context(), client.ObjectKey{Namespace: space, Name: name}, pod); err != nil {
			t.Error(err)
		} else if placed, _ := pub.ParsePlacement(pod.Annotations); placed.Subset != want {
			t.Errorf("%s is in %s, not %s", name, placed.Subset, want)
		}
	}
}

// WS-120 (part), WS-130 (part), WS-170 to WS-176: pods that cannot be scheduled are replaced by pods of
// another subset.
func TestSpreadAdapts(t *testing.T) {
	of := zones(t)
	space := namespace(t)
	s := spread(t, space, `{apiVersion: apps/v1, kind: Deployment, name: web}`,
		`scheduleStrategy: {type: Adaptive, adaptive: {rescheduleCriticalSeconds: 5}}, subsets: [`+in("nowhere", `, maxReplicas: 2`)+`, `+
			in("a", `, maxReplicas: 2`)+`, `+in("b", ``)+`]`)
	apply(t, `{apiVersion: apps/v1, kind: Deployment, metadata: {namespace: `+space+
		`, name: web}, spec: {replicas: 5, selector: {matchLabels: {app: web}},
		template: {metadata: {labels: {app: web}}, spec: {`+strings.ReplaceAll(nap, "MOUNTS", "")+`}}}}`)
	spreads(t, space, of, map[string]int{"zone-a in a 200": 2, "zone-b in b 100": 3})
	counted(t, s, map[string][2]int32{"zone-nowhere": {0, 2}, "zone-a": {2, 0}, "zone-b": {3, -1}})
	for _, subset := range s.Status.SubsetStatuses {
		want := map[string]metav1.ConditionStatus{"zone-nowhere": metav1.ConditionFalse, "zone-a": metav1.ConditionTrue,
			"zone-b": metav1.ConditionTrue}[subset.Name]
		if len(subset.Conditions) != 1 || subset.Conditions[0].Status != want ||
			subset.Conditions[0].Type != string(appsv1beta1.SubsetSchedulable) {
			t.Errorf("%s: %+v", subset.Name, subset.Conditions)
		}
	}
}
