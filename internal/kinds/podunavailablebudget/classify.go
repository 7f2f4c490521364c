package podunavailablebudget

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	policyv1beta1 "github.com/afloat-project/afloat/api/policy/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/disruption"
	"github.com/afloat-project/afloat/internal/engine/inplace"
)

// Annotations of pods that a kubelet has from elsewhere than the API server.
const (
	configSource = "kubernetes.io/config.source"
	configMirror = "kubernetes.io/config.mirror"
)

// Changed returns the operation by which a pod changes from one document to another, empty if budgets have
// nothing to say to that (PUB-082, PUB-083). That the QoS class stays the API server has seen to: it refuses
// resizes that change it.
func Changed(before, after []byte) (disruption.Operation, error) {
	was, is := &versioned{}, &versioned{}
	for document, into := range map[*[]byte]*versioned{&before: was, &after: is} {
		if err := json.Unmarshal(*document, into); err != nil {
			return "", fmt.Errorf("reading the pod: %w", err)
		}
	}

	labelled := unavailableLabel(&was.pod) == "" && unavailableLabel(&is.pod) != ""
	switch {
	case labelled:
		return policyv1beta1.Update, nil
	case reflect.DeepEqual(was.spec, is.spec):
		return "", nil
	case onlyResized(was, is):
		return policyv1beta1.Resize, nil
	}

	return policyv1beta1.Update, nil
}

// versioned is a pod with its spec as it was sent: a field that our types do not know may differ.
type versioned struct {
	pod  corev1.Pod
	spec map[string]any
}

// UnmarshalJSON implements json.Unmarshaler.
func (v *versioned) UnmarshalJSON(document []byte) error {
	var raw struct{ Spec map[string]any }
	if err := json.Unmarshal(document, &raw); err != nil {
		return err
	}
	v.spec = raw.Spec
	return json.Unmarshal(document, &v.pod)
}

// onlyResized tells whether nothing but CPU and memory of containers and native sidecars differs, and kubelet
// need restart none of them for that.
func onlyResized(was, is *versioned) bool {
	source, static := was.pod.Annotations[configSource]
	if _, mirror := was.pod.Annotations[configMirror]; mirror || static && source != "api" {
		return false
	}
	if !reflect.DeepEqual(withoutResources(was.spec), withoutResources(is.spec)) {
		return false
	}

	all := func(pod *corev1.Pod) []corev1.Container {
		return slices.Concat(pod.Spec.Containers, pod.Spec.InitContainers)
	}
	olds, news := all(&was.pod), all(&is.pod)
	for i := range olds {
		before, after := &olds[i], &news[i]
		if !equality.Semantic.DeepEqual(before.Resources.Claims, after.Resources.Claims) {
			return false
		}
		changed := slices.Concat(differing(before.Resources.Requests, after.Resources.Requests),
			differing(before.Resources.Limits, after.Resources.Limits))
		for _, resource := range changed {
			if resource != corev1.ResourceCPU && resource != corev1.ResourceMemory ||
				inplace.Restarts(after, resource) {
				return false
			}
		}
	}

	return true
}

// withoutResources is a spec without the resources of its containers and native sidecars.
func withoutResources(spec map[string]any) map[string]any {
	rest := map[string]any{}
	maps.Copy(rest, spec)
	for _, list := range []string{"containers", "initContainers"} {
		containers, _ := spec[list].([]any)
		kept := make([]any, len(containers))
		for i := range containers {
			container, _ := containers[i].(map[string]any)
			container = maps.Clone(container)
			if list == "containers" ||
				container["restartPolicy"] == string(corev1.ContainerRestartPolicyAlways) {
				delete(container, "resources")
			}
			kept[i] = container
		}
		rest[list] = kept
	}

	return rest
}

func differing(before, after corev1.ResourceList) []corev1.ResourceName {
	var names []corev1.ResourceName
	for name, quantity := range before {
		if other, found := after[name]; !found || quantity.Cmp(other) != 0 {
			names = append(names, name)
		}
	}
	for name := range after {
		if _, found := before[name]; !found {
			names = append(names, name)
		}
	}
	return names
}
