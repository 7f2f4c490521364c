//go:build integration

package tenants

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// pod is the template of all workloads here.
const pod = `{metadata: {labels: {app: %[1]s}}, spec: {containers: [{name: c, image: "i:1"}]}}`

// job is the template of what runs to its end.
const job = `{spec: {restartPolicy: Never, containers: [{name: c, image: "i:1"}]}}`

// small manifests of each kind that role edit may write. Their name is %[1]s.
var kinds = map[string]string{
	"CloneSet":     `{apiVersion: apps.kruise.io/v1beta1, kind: CloneSet, metadata: {name: %[1]s}, spec: {replicas: 0, selector: {matchLabels: {app: %[1]s}}, template: ` + pod + `}}`,
	"StatefulSet":  `{apiVersion: apps.kruise.io/v1beta1, kind: StatefulSet, metadata: {name: %[1]s}, spec: {replicas: 0, serviceName: s, selector: {matchLabels: {app: %[1]s}}, template: ` + pod + `}}`,
	"DaemonSet":    `{apiVersion: apps.kruise.io/v1beta1, kind: DaemonSet, metadata: {name: %[1]s}, spec: {selector: {matchLabels: {app: %[1]s}}, template: ` + pod + `}}`,
	"BroadcastJob": `{apiVersion: apps.kruise.io/v1beta1, kind: BroadcastJob, metadata: {name: %[1]s}, spec: {template: ` + job + `}}`,
	"AdvancedCronJob": `{apiVersion: apps.kruise.io/v1beta1, kind: AdvancedCronJob, metadata: {name: %[1]s}, spec: {schedule: "0 0 30 2 *",
		template: {jobTemplate: {spec: {template: ` + job + `}}}}}`,
	"UnitedDeployment": `{apiVersion: apps.kruise.io/v1beta1, kind: UnitedDeployment, metadata: {name: %[1]s}, spec: {replicas: 2, selector: {matchLabels: {app: %[1]s}},
		template: {cloneSetTemplate: {metadata: {labels: {app: %[1]s}}, spec: {selector: {matchLabels: {app: %[1]s}}, template: ` + pod + `}}}, topology: {subsets: [{name: a}, {name: b}]}}}`,
	"WorkloadSpread": `{apiVersion: apps.kruise.io/v1beta1, kind: WorkloadSpread, metadata: {name: %[1]s}, spec: {
		targetRef: {apiVersion: apps.kruise.io/v1beta1, kind: CloneSet, name: %[1]s}, subsets: [{name: a, maxReplicas: 3}, {name: b}]}}`,
	"PersistentPodState": `{apiVersion: apps.kruise.io/v1beta1, kind: PersistentPodState, metadata: {name: %[1]s}, spec: {
		targetRef: {apiVersion: apps.kruise.io/v1beta1, kind: StatefulSet, name: %[1]s}, requiredPersistentTopology: {keys: [kubernetes.io/hostname]}}}`,
	"ContainerRecreateRequest": `{apiVersion: apps.kruise.io/v1beta1, kind: ContainerRecreateRequest, metadata: {name: %[1]s}, spec: {podName: %[1]s, containers: [{name: c}]}}`,
	"ImagePullJob":             `{apiVersion: apps.kruise.io/v1beta1, kind: ImagePullJob, metadata: {name: %[1]s}, spec: {image: "shop/app:2", completionPolicy: {}}}`,
	"ImageListPullJob":         `{apiVersion: apps.kruise.io/v1beta1, kind: ImageListPullJob, metadata: {name: %[1]s}, spec: {images: ["a:1", "b:1"], completionPolicy: {}}}`,
	"PodProbeMarker": `{apiVersion: apps.kruise.io/v1alpha1, kind: PodProbeMarker, metadata: {name: %[1]s}, spec: {selector: {matchLabels: {app: %[1]s}},
		probes: [{name: p, containerName: c, podConditionType: example.com/p, probe: {exec: {command: ["true"]}}}]}}`,
	"PodUnavailableBudget": `{apiVersion: policy.kruise.io/v1beta1, kind: PodUnavailableBudget, metadata: {name: %[1]s}, spec: {maxUnavailable: 0, selector: {matchLabels: {app: %[1]s}}}}`,
}

// of returns a small object of a kind.
func of(kind, name string) *unstructured.Unstructured {
	return object(fmt.Sprintf(kinds[kind], name))
}

// workload returns a workload of a kind with that many pods, changed by the functions.
func workload(kind, namespace, name string, replicas int64, changes ...func(*unstructured.Unstructured)) *unstructured.Unstructured {
	o := of(kind, name)
	o.SetNamespace(namespace)
	if kind == "CloneSet" || kind == "StatefulSet" {
		with(o, "spec.replicas", replicas)
	}
	for _, change := range changes {
		change(o)
	}
	return o
}

// container returns the first container of a workload's template.
func container(o *unstructured.Unstructured) map[string]any {
	containers, _, _ := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
	return containers[0].(map[string]any) //nolint:forcetypeassert // the manifests above have one
}

// environment gives the container that many short variables.
func environment(n int) func(*unstructured.Unstructured) {
	return func(o *unstructured.Unstructured) {
		c := container(o)
		list := make([]any, n)
		for i := range list {
			list[i] = map[string]any{"name": fmt.Sprintf("E%d", i)}
		}
		c["env"] = list
		with(o, "spec.template.spec.containers", []any{c})
	}
}

// annotated gives an object and its pods an annotation.
func annotated(key, value string) func(*unstructured.Unstructured) {
	return func(o *unstructured.Unstructured) {
		annotations := o.GetAnnotations()
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[key] = value
		o.SetAnnotations(annotations)
		if _, ok, _ := unstructured.NestedMap(o.Object, "spec", "template", "metadata"); ok {
			_ = unstructured.SetNestedField(o.Object, value, "spec", "template", "metadata", "annotations", key)
		}
	}
}
