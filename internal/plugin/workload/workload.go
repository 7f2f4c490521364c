// Package workload finds, in the document of each kind, the fields that commands read and change, and the
// objects that a command line selects. It works on documents, so that unknown fields survive, and on every
// version that a server may serve.
package workload

import (
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Path is the path of a field in a document.
type Path []string

// Child returns the path of a field below p.
func (p Path) Child(names ...string) Path { return append(slices.Clone(p), names...) }

// The kinds of the project that can have a rollout, and those of Kubernetes.
var (
	Deployment          = schema.GroupKind{Group: "apps", Kind: "Deployment"}
	StatefulSet         = schema.GroupKind{Group: "apps", Kind: "StatefulSet"}
	DaemonSet           = schema.GroupKind{Group: "apps", Kind: "DaemonSet"}
	CloneSet            = schema.GroupKind{Group: "apps.kruise.io", Kind: "CloneSet"}
	AdvancedStatefulSet = schema.GroupKind{Group: "apps.kruise.io", Kind: "StatefulSet"}
	AdvancedDaemonSet   = schema.GroupKind{Group: "apps.kruise.io", Kind: "DaemonSet"}
	UnitedDeployment    = schema.GroupKind{Group: "apps.kruise.io", Kind: "UnitedDeployment"}
	SidecarSet          = schema.GroupKind{Group: "apps.kruise.io", Kind: "SidecarSet"}
	BroadcastJob        = schema.GroupKind{Group: "apps.kruise.io", Kind: "BroadcastJob"}
	AdvancedCronJob     = schema.GroupKind{Group: "apps.kruise.io", Kind: "AdvancedCronJob"}
	ImagePullJob        = schema.GroupKind{Group: "apps.kruise.io", Kind: "ImagePullJob"}
	Rollout             = schema.GroupKind{Group: "rollouts.kruise.io", Kind: "Rollout"}
)

var template = Path{"spec", "template"}

// templates maps kinds to the paths of their pod templates, of which an object may lack some.
var templates = map[schema.GroupKind][]Path{
	Deployment: {template}, StatefulSet: {template}, DaemonSet: {template},
	{Group: "apps", Kind: "ReplicaSet"}:        {template},
	{Group: "", Kind: "ReplicationController"}: {template},
	{Group: "batch", Kind: "Job"}:              {template},
	{Group: "batch", Kind: "CronJob"}:          {{"spec", "jobTemplate", "spec", "template"}},
	CloneSet:                                   {template}, AdvancedStatefulSet: {template},
	AdvancedDaemonSet: {template},
	BroadcastJob:      {template},
	UnitedDeployment: {within("cloneSetTemplate"), within("advancedStatefulSetTemplate"),
		within("statefulSetTemplate"), within("deploymentTemplate")},
	AdvancedCronJob: {within("jobTemplate"), within("broadcastJobTemplate")},
}

// within returns the path of the pod template in the template of a workload.
func within(workload string) Path { return template.Child(workload, "spec", "template") }

// Kind returns the kind of an object.
func Kind(object *unstructured.Unstructured) schema.GroupKind {
	return object.GroupVersionKind().GroupKind()
}

// Templates returns the paths of the pod templates that the object has.
func Templates(object *unstructured.Unstructured) ([]Path, error) {
	var found []Path
	for _, path := range templates[Kind(object)] {
		if _, ok, err := unstructured.NestedMap(object.Object, path...); err == nil && ok {
			found = append(found, path)
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("a %s has no pod template", object.GroupVersionKind().Kind)
	}
	return found, nil
}

// PodSpecs returns the paths of what contains containers: the spec of a pod template, of a pod, or of a
// SidecarSet.
func PodSpecs(object *unstructured.Unstructured) ([]Path, error) {
	if kind := Kind(object); kind == SidecarSet || kind == (schema.GroupKind{Kind: "Pod"}) {
		return []Path{{"spec"}}, nil
	}
	found, err := Templates(object)
	for i, path := range found {
		found[i] = path.Child("spec")
	}
	return found, err
}

// Container is a container in a document.
type Container struct {
	// Fields are the fields of the container in the document; changes apply to the document.
	Fields map[string]any
	// Init is true for init containers.
	Init bool
}

// Name returns the name of the container.
func (c Container) Name() string { return text(c.Fields["name"]) }

func text(value any) string {
	s, _ := value.(string)
	return s
}

// Typed returns the container with those fields that the client knows.
func (c Container) Typed() (*corev1.Container, error) {
	typed := &corev1.Container{}
	return typed, Decode(c.Fields, typed)
}

// Containers returns the containers of the object. In each pod spec, init containers come last.
func Containers(object *unstructured.Unstructured) ([]Container, error) {
	specs, err := PodSpecs(object)
	if err != nil {
		return nil, err
	}

	var found []Container
	for _, spec := range specs {
		for _, list := range []string{"containers", "initContainers"} {
			value, _, _ := unstructured.NestedFieldNoCopy(object.Object, spec.Child(list)...)
			for _, one := range slice(value) {
				if fields, ok := one.(map[string]any); ok {
					found = append(found, Container{Fields: fields, Init: list == "initContainers"})
				}
			}
		}
	}

	return found, nil
}

func slice(value any) []any {
	list, _ := value.([]any)
	return list
}

// Paused returns the path of the field that pauses the object, and false if its kind cannot be paused.
func Paused(object *unstructured.Unstructured) (Path, bool) {
	flat := object.GroupVersionKind().Version == "v1alpha1"
	switch kind := Kind(object); {
	case kind == Deployment, kind == BroadcastJob, kind == AdvancedCronJob:
		return Path{"spec", "paused"}, true
	case kind == CloneSet && flat, kind == SidecarSet:
		return Path{"spec", "updateStrategy", "paused"}, true
	case kind == CloneSet, kind == AdvancedStatefulSet, kind == AdvancedDaemonSet:
		return Path{"spec", "updateStrategy", "rollingUpdate", "paused"}, true
	}
	return nil, false
}

// IsPaused reports whether the object is paused.
func IsPaused(object *unstructured.Unstructured) bool {
	path, ok := Paused(object)
	paused, _, _ := unstructured.NestedBool(object.Object, path...)
	return ok && paused
}

// Decode decodes part of a document into a typed value.
func Decode(from, into any) error {
	encoded, err := json.Marshal(from)
	if err != nil {
		return fmt.Errorf("encoding a %T: %w", from, err)
	}
	if err := json.Unmarshal(encoded, into); err != nil {
		return fmt.Errorf("reading a %T: %w", into, err)
	}
	return nil
}

// Encode encodes a typed value as part of a document.
func Encode(value any) (map[string]any, error) {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(value)
	if err != nil {
		return nil, fmt.Errorf("encoding a %T: %w", value, err)
	}
	return fields, nil
}
