package inplace

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/afloat-project/afloat/internal/engine/revision"
)

// resource classifies the change of one quantity.
func (c *comparison) resource(path []string, old, new any) {
	kind, name := path[4], corev1.ResourceName(path[5])
	container := c.container(path)
	oldText, oldOK := old.(string)
	newText, newOK := new.(string)
	_, oldErr := resource.ParseQuantity(oldText)
	quantity, err := resource.ParseQuantity(newText)
	switch {
	case !c.options.Resize:
		c.block(path,
			"resources change in place only with gate InPlaceWorkloadVerticalScaling on a server that has pods/resize")
		return
	case kind != "limits" && kind != "requests" ||
		name != corev1.ResourceCPU && name != corev1.ResourceMemory:
		c.block(path, "of the resources only cpu and memory can change in place")
		return
	case !oldOK || !newOK || oldErr != nil || err != nil:
		c.block(path, "a quantity can only be replaced by another one")
		return
	case path[1] == "initContainers" && !restartable(container):
		c.block(path, "an init container that ends cannot be resized")
		return
	}

	containerName, _ := container["name"].(string)
	change := c.change.Resources[containerName]
	if kind == "limits" {
		change.Limits = merge(change.Limits, corev1.ResourceList{name: quantity})
	}
	if _, requested := object(object(container["resources"])["requests"])[path[5]]; kind == "requests" ||
		!requested {
		// Without a request, the API server has set the request to the limit.
		change.Requests = merge(change.Requests, corev1.ResourceList{name: quantity})
	}

	put(&c.change.Resources, containerName, change)
}

// quality blocks a change of resources that alters the QoS class of the pod.
func (c *comparison) quality() error {
	if len(c.change.Resources) == 0 {
		return nil
	}

	before, err := qualityOf(c.old)
	if err != nil {
		return err
	}

	after, err := qualityOf(c.new)
	if err != nil {
		return err
	}
	if before != after {
		c.block([]string{"spec", "containers"},
			fmt.Sprintf("resources would change the QoS class from %s to %s", before, after))
	}

	return nil
}

func qualityOf(template revision.Document) (corev1.PodQOSClass, error) {
	encoded, err := json.Marshal(template["spec"])
	if err != nil {
		return "", fmt.Errorf("encoding pod spec: %w", err)
	}
	var spec corev1.PodSpec
	if err := json.Unmarshal(encoded, &spec); err != nil {
		return "", fmt.Errorf("reading pod spec: %w", err)
	}
	return QualityOfService(&spec), nil
}

// QualityOfService returns the QoS class that the API server gives a pod: from the pod's own resources if it
// has any, and otherwise from those of all containers.
func QualityOfService(spec *corev1.PodSpec) corev1.PodQOSClass {
	all := []corev1.ResourceRequirements{}
	if r := spec.Resources; r != nil && len(r.Limits)+len(r.Requests) > 0 {
		all = append(all, *r)
	} else {
		for _, containers := range [][]corev1.Container{spec.Containers, spec.InitContainers} {
			for i := range containers {
				all = append(all, containers[i].Resources)
			}
		}
	}

	some, guaranteed := false, true
	for _, requirements := range all {
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			limit, request := requirements.Limits[name], requirements.Requests[name]
			if request.IsZero() {
				request = limit // the default of the API server
			}
			some = some || !limit.IsZero() || !request.IsZero()
			guaranteed = guaranteed && !limit.IsZero() && limit.Cmp(request) == 0
		}
	}

	switch {
	case !some:
		return corev1.PodQOSBestEffort
	case guaranteed:
		return corev1.PodQOSGuaranteed
	}

	return corev1.PodQOSBurstable
}

// restartsForResize reports whether the container's resizePolicy restarts it for the resources that change.
func restartsForResize(container revision.Document, change corev1.ResourceRequirements) bool {
	policies, _ := container["resizePolicy"].([]any)
	for _, entry := range policies {
		policy := object(entry)
		if policy["restartPolicy"] != string(corev1.RestartContainer) {
			continue
		}
		name, _ := policy["resourceName"].(string)
		_, limit := change.Limits[corev1.ResourceName(name)]
		_, request := change.Requests[corev1.ResourceName(name)]
		if limit || request {
			return true
		}
	}

	return false
}

func resourceWords(change corev1.ResourceRequirements) string {
	var words []string
	for _, list := range []struct {
		name   string
		values corev1.ResourceList
	}{{"requests", change.Requests}, {"limits", change.Limits}} {
		for _, name := range slices.Sorted(maps.Keys(list.values)) {
			quantity := list.values[name]
			words = append(words, fmt.Sprintf("%s %s %s", list.name, name, quantity.String()))
		}
	}
	return strings.Join(words, ", ")
}

// Lacking returns the wanted quantities that have another value at present. Absent and zero are the same
// (IPU-112, IPU-128).
func Lacking(want, have corev1.ResourceRequirements) corev1.ResourceRequirements {
	missing := func(want, have corev1.ResourceList) corev1.ResourceList {
		var out corev1.ResourceList
		for name, quantity := range want {
			if present := have[name]; present.Cmp(quantity) != 0 {
				out = merge(out, corev1.ResourceList{name: quantity})
			}
		}
		return out
	}
	return corev1.ResourceRequirements{
		Limits: missing(want.Limits, have.Limits), Requests: missing(want.Requests, have.Requests),
	}
}

// Quantities returns the cpu and memory of a pod whose template has these requirements; only these can be
// resized. If the template has only a limit, the API server gives the pod an equal request.
func Quantities(r corev1.ResourceRequirements) corev1.ResourceRequirements {
	resizable := func(name corev1.ResourceName) bool {
		return name == corev1.ResourceCPU || name == corev1.ResourceMemory
	}

	only := func(list corev1.ResourceList) corev1.ResourceList {
		var out corev1.ResourceList
		for name, quantity := range list {
			if resizable(name) {
				out = merge(out, corev1.ResourceList{name: quantity})
			}
		}
		return out
	}

	limits := only(r.Limits)
	return corev1.ResourceRequirements{Limits: limits, Requests: merge(limits, only(r.Requests))}
}

// Explains reports whether the container has, for each missing quantity, that of the other template instead.
// Quantities that only the container has were set by defaulting.
func Explains(other, missing, have corev1.ResourceRequirements) bool {
	if none(missing) {
		return false
	}

	of := func(have, missing corev1.ResourceList) corev1.ResourceList {
		var out corev1.ResourceList
		for name := range missing {
			out = merge(out, corev1.ResourceList{name: have[name]})
		}
		return out
	}

	present := corev1.ResourceRequirements{
		Limits: of(have.Limits, missing.Limits), Requests: of(have.Requests, missing.Requests),
	}
	return none(Lacking(present, other))
}

func none(r corev1.ResourceRequirements) bool { return len(r.Limits)+len(r.Requests) == 0 }

// restartedBy reports whether a resize to these quantities restarts the container.
func restartedBy(container *corev1.Container, quantities corev1.ResourceRequirements) bool {
	for _, list := range []corev1.ResourceList{quantities.Limits, quantities.Requests} {
		for name := range list {
			if Restarts(container, name) {
				return true
			}
		}
	}
	return false
}

// Restarts reports whether a resize of that resource restarts the container.
func Restarts(container *corev1.Container, resource corev1.ResourceName) bool {
	return slices.ContainsFunc(container.ResizePolicy, func(p corev1.ContainerResizePolicy) bool {
		return p.ResourceName == resource && p.RestartPolicy != "" && p.RestartPolicy != corev1.NotRequired
	})
}
