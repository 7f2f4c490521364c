// Package podpatch builds the minimal strategic merge patches that change pods. They contain only the fields
// to change and are guarded by UID and resourceVersion, so that fields that another writer added, or that
// only a newer Kubernetes knows, are kept (IPU-084, docs/architecture.md).
package podpatch

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Patch is a strategic merge patch of one pod or of its status subresource. The zero value is an empty patch.
type Patch struct {
	labels, annotations map[string]*string
	addFinalizers       []string
	removeFinalizers    []string
	images              map[string]string
	resources           map[string]corev1.ResourceRequirements
	conditions          []corev1.PodCondition
	phase               corev1.PodPhase
	dropOwner           string
	addOwner            *metav1.OwnerReference
}

// Empty reports whether the patch changes nothing.
func (p *Patch) Empty() bool {
	return p == nil || len(p.labels)+len(p.annotations)+len(p.addFinalizers)+len(p.removeFinalizers)+
		len(p.images)+len(p.resources)+len(p.conditions) == 0 &&
		p.phase == "" && p.dropOwner == "" && p.addOwner == nil
}

// Label sets a label.
func (p *Patch) Label(key, value string) { set(&p.labels, key, &value) }

// RemoveLabel removes a label.
func (p *Patch) RemoveLabel(key string) { set(&p.labels, key, nil) }

// Annotation sets an annotation.
func (p *Patch) Annotation(key, value string) { set(&p.annotations, key, &value) }

// RemoveAnnotation removes an annotation.
func (p *Patch) RemoveAnnotation(key string) { set(&p.annotations, key, nil) }

func set(m *map[string]*string, key string, value *string) {
	if *m == nil {
		*m = map[string]*string{}
	}
	(*m)[key] = value
}

// Finalizers adds and removes finalizers.
func (p *Patch) Finalizers(add, remove []string) {
	p.addFinalizers = append(p.addFinalizers, add...)
	p.removeFinalizers = append(p.removeFinalizers, remove...)
}

// Image sets the image of a container.
func (p *Patch) Image(container, image string) {
	if p.images == nil {
		p.images = map[string]string{}
	}
	p.images[container] = image
}

// Resources sets the given quantities of a container. Such a patch goes to the resize subresource and may
// contain nothing else (IPU-112).
func (p *Patch) Resources(container string, quantities corev1.ResourceRequirements) {
	if p.resources == nil {
		p.resources = map[string]corev1.ResourceRequirements{}
	}
	p.resources[container] = quantities
}

// Condition sets a condition, including its reason and message. Only a patch of the status subresource may
// have conditions.
func (p *Patch) Condition(c corev1.PodCondition) { p.conditions = append(p.conditions, c) }

// Phase sets the phase. Only a patch of the status subresource may have one.
func (p *Patch) Phase(phase corev1.PodPhase) { p.phase = phase }

// ReleaseOwner removes the owner reference with that UID (CS-056).
func (p *Patch) ReleaseOwner(uid string) { p.dropOwner = uid }

// AdoptOwner adds an owner reference, or replaces the one with the same UID (ASTS-070).
func (p *Patch) AdoptOwner(owner metav1.OwnerReference) { p.addOwner = &owner }

// Subresource returns the subresource to which the patch must be sent, empty for the pod itself.
func (p *Patch) Subresource() string {
	switch {
	case len(p.resources) > 0:
		return "resize"
	case len(p.conditions) > 0 || p.phase != "":
		return "status"
	}
	return ""
}

// JSON encodes the patch, guarded by the UID and resourceVersion of the given pod.
func (p *Patch) JSON(pod *corev1.Pod) ([]byte, error) {
	metadata := map[string]any{"uid": pod.UID, "resourceVersion": pod.ResourceVersion}
	if len(p.labels) > 0 {
		metadata["labels"] = p.labels
	}
	if len(p.annotations) > 0 {
		metadata["annotations"] = p.annotations
	}
	if len(p.addFinalizers) > 0 {
		metadata["finalizers"] = p.addFinalizers
	}
	if len(p.removeFinalizers) > 0 {
		metadata["$deleteFromPrimitiveList/finalizers"] = p.removeFinalizers
	}
	if p.dropOwner != "" {
		metadata["ownerReferences"] = []any{map[string]any{"$patch": "delete", "uid": p.dropOwner}}
	}
	if p.addOwner != nil {
		metadata["ownerReferences"] = []any{p.addOwner}
	}

	doc := map[string]any{"metadata": metadata}
	if spec := p.spec(pod); len(spec) > 0 {
		doc["spec"] = spec
	}

	status := map[string]any{}
	if p.phase != "" {
		status["phase"] = p.phase
	}
	if len(p.conditions) > 0 {
		conditions := make([]any, len(p.conditions))
		for i, c := range p.conditions {
			entry := map[string]any{"type": c.Type, "status": c.Status, "reason": nil, "message": nil}
			if !c.LastTransitionTime.IsZero() {
				entry["lastTransitionTime"] = c.LastTransitionTime.UTC().Format(time.RFC3339)
			}
			if !c.LastProbeTime.IsZero() {
				entry["lastProbeTime"] = c.LastProbeTime.UTC().Format(time.RFC3339)
			}
			if c.Reason != "" {
				entry["reason"] = c.Reason
			}
			if c.Message != "" {
				entry["message"] = c.Message
			}
			conditions[i] = entry
		}
		status["conditions"] = conditions
	}

	if len(status) > 0 {
		doc["status"] = status
	}

	body, err := json.Marshal(doc)
	if err != nil {
		return nil, fmt.Errorf("encoding patch of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}

	return body, nil
}

// spec returns the images and resources, in the list to which each container belongs. The entries have the
// order of the pod's containers: another order would reorder the containers, which the API server forbids.
func (p *Patch) spec(pod *corev1.Pod) map[string]any {
	spec := map[string]any{}
	add := func(list string, containers []corev1.Container) {
		var entries []any
		for i := range containers {
			name := containers[i].Name
			if image, ok := p.images[name]; ok {
				entries = append(entries, map[string]any{"name": name, "image": image})
			}
			if resources, ok := p.resources[name]; ok {
				entries = append(entries, map[string]any{"name": name, "resources": resources})
			}
		}
		if len(entries) > 0 {
			spec[list] = entries
		}
	}

	add("containers", pod.Spec.Containers)
	add("initContainers", pod.Spec.InitContainers)
	return spec
}

// String describes what the patch changes, for logs and narratives.
func (p *Patch) String() string {
	var parts []string
	if p.phase != "" {
		parts = append(parts, "phase "+string(p.phase))
	}

	for _, c := range p.conditions {
		parts = append(parts, fmt.Sprintf("%s=%s", c.Type, c.Status))
	}
	for _, name := range sortedKeys(p.images) {
		parts = append(parts, fmt.Sprintf("image of %s=%s", name, p.images[name]))
	}
	for _, name := range sortedKeys(p.resources) {
		parts = append(parts, "resources of "+name)
	}
	for _, key := range sortedKeys(p.labels) {
		if value := p.labels[key]; value != nil {
			parts = append(parts, fmt.Sprintf("label %s=%s", key, *value))
		} else {
			parts = append(parts, "no label "+key)
		}
	}

	for _, key := range sortedKeys(p.annotations) {
		if p.annotations[key] != nil {
			parts = append(parts, "annotation "+key)
		} else {
			parts = append(parts, "no annotation "+key)
		}
	}

	for _, finalizer := range p.addFinalizers {
		parts = append(parts, "finalizer "+finalizer)
	}
	for _, finalizer := range p.removeFinalizers {
		parts = append(parts, "no finalizer "+finalizer)
	}

	if p.dropOwner != "" {
		parts = append(parts, "no owner")
	}
	if p.addOwner != nil {
		parts = append(parts, "owner "+p.addOwner.Name)
	}

	return strings.Join(parts, ", ")
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}
