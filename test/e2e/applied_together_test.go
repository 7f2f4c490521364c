//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/afloat-project/afloat/api/pub"
)

// tries returns how often a test creates its objects together: TRIES, by default a few times.
func tries(t *testing.T) int {
	t.Helper()
	n, err := strconv.Atoi(os.Getenv("TRIES"))
	if err != nil {
		return 5
	}
	return n
}

// gated is a pod spec with a scheduling gate, so that the pods never run.
const gated = `schedulingGates: [{name: e2e.afloat/never}], containers: [{name: main, image: "app:v1"}, {name: other, image: "app:v1", env: [{name: KRUISE_CONTAINER_PRIORITY, value: "1"}]}]`

// madeTogether waits for that many pods, and returns those for which check returns a fault.
func madeTogether(t *testing.T, namespace string, n int, check func(*corev1.Pod) string) []string {
	t.Helper()
	var list corev1.PodList
	eventually(t, "the pods", func(ctx context.Context) string {
		if err := kube.List(ctx, &list, client.InNamespace(namespace)); err != nil {
			return err.Error()
		}
		if len(list.Items) < n {
			return fmt.Sprintf("%d of %d", len(list.Items), n)
		}
		return ""
	})
	var faults []string
	for i := range list.Items {
		if fault := check(&list.Items[i]); fault != "" {
			faults = append(faults, list.Items[i].Name+": "+fault)
		}
	}
	return faults
}

// held returns what is missing of a pod's launch priority.
func held(pod *corev1.Pod) string {
	for _, container := range pod.Spec.Containers {
		for _, env := range container.Env {
			if env.Name == pub.ContainerBarrierEnv {
				return ""
			}
		}
	}
	return "no launch barrier"
}

// TestSidecarSetAndPodsTogether: somebody applies a SidecarSet and a Deployment in one file: no pod is
// without its sidecar (SS-006 (part)).
func TestSidecarSetAndPodsTogether(t *testing.T) {
	t.Parallel()
	for i := range tries(t) {
		name := fmt.Sprintf("together-%d", i)
		ns := namespace(t)
		set := apply(t, `{apiVersion: apps.kruise.io/v1beta1, kind: SidecarSet, metadata: {name: `+name+
			`}, spec: {selector: {matchLabels: {app: `+name+`}}, namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: `+ns+
			`}}, containers: [{name: sidecar, image: "app:v1"}]}}`)
		apply(t, `{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: `+ns+
			`}, spec: {replicas: 4, selector: {matchLabels: {app: `+name+`}}, template: {metadata: {labels: {app: `+name+`}}, spec: {`+
			gated+`}}}}`)
		faults := madeTogether(t, ns, 4, func(pod *corev1.Pod) string {
			if pod.Annotations[pub.SidecarSetInjectedList] != name || len(pod.Spec.Containers) != 3 {
				return "no sidecar"
			}
			return held(pod)
		})
		if len(faults) > 0 {
			t.Errorf("try %d: %s", i, strings.Join(faults, ", "))
		}
		if err := kube.Delete(t.Context(), set); err != nil {
			t.Error(err)
		}
	}
}

// TestChangedSidecarSetAndPodsTogether: somebody applies a changed SidecarSet and a Deployment in one file:
// each pod has the changed sidecar.
func TestChangedSidecarSetAndPodsTogether(t *testing.T) {
	t.Parallel()
	sidecar := func(name, image string) string {
		return `{apiVersion: apps.kruise.io/v1beta1, kind: SidecarSet, metadata: {name: ` + name +
			`}, spec: {selector: {matchLabels: {app: ` + name + `}}, containers: [{name: sidecar, image: "` + image + `"}]}}`
	}
	for i := range tries(t) {
		name := fmt.Sprintf("changed-%d", i)
		ns := namespace(t)
		set := apply(t, sidecar(name, "app:v1"))
		if err := kube.Patch(t.Context(), set,
			client.RawPatch("application/json-patch+json",
				[]byte(`[{"op":"replace","path":"/spec/containers/0/image","value":"app:v2"}]`))); err != nil {
			t.Fatal(err)
		}
		apply(t, `{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: `+ns+
			`}, spec: {replicas: 4, selector: {matchLabels: {app: `+name+`}}, template: {metadata: {labels: {app: `+name+`}}, spec: {`+
			gated+`}}}}`)
		faults := madeTogether(t, ns, 4, func(pod *corev1.Pod) string {
			for _, container := range pod.Spec.Containers {
				if container.Name == "sidecar" {
					return map[bool]string{false: "sidecar has " + container.Image}[container.Image == "app:v2"]
				}
			}
			return "no sidecar"
		})
		if len(faults) > 0 {
			t.Errorf("try %d: %s", i, strings.Join(faults, ", "))
		}
		if err := kube.Delete(t.Context(), set); err != nil {
			t.Error(err)
		}
	}
}

// TestWorkloadSpreadAndPodsTogether: somebody applies a WorkloadSpread and its CloneSet in one file: every
// pod is in a subset (WS-050 (part)).
func TestWorkloadSpreadAndPodsTogether(t *testing.T) {
	t.Parallel()
	for i := range tries(t) {
		ns := namespace(t)
		apply(t, `{apiVersion: apps.kruise.io/v1beta1, kind: WorkloadSpread, metadata: {name: spread, namespace: `+ns+`}, spec: {targetRef: {apiVersion: apps.kruise.io/v1beta1, kind: CloneSet, name: web}, subsets: [{name: a, maxReplicas: 2}, {name: b}]}}`)
		apply(t, `{apiVersion: apps.kruise.io/v1beta1, kind: CloneSet, metadata: {name: web, namespace: `+ns+
			`}, spec: {replicas: 4, selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web}}, spec: {`+gated+`}}}}`)
		subsets := map[string]int{}
		faults := madeTogether(t, ns, 4, func(pod *corev1.Pod) string {
			for _, name := range []string{"a", "b"} {
				if strings.Contains(pod.Annotations[pub.MatchedWorkloadSpread], `"`+name+`"`) {
					subsets[name]++
					return held(pod)
				}
			}
			return "no subset"
		})
		if len(faults) > 0 || subsets["a"] != 2 {
			t.Errorf("try %d: %s; subsets %v", i, strings.Join(faults, ", "), subsets)
		}
	}
}
