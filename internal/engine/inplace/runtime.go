package inplace

import (
	"encoding/json"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/revision"
)

// RuntimeMeta is what the node daemon reports about a pod's containers, in the annotation
// apps.kruise.io/runtime-containers-meta (IPU-123).
type RuntimeMeta struct {
	Containers []RuntimeContainer `json:"containers"`
}

// RuntimeContainer is what the daemon reports about one container.
type RuntimeContainer struct {
	Name         string        `json:"name"`
	ContainerID  string        `json:"containerID"`
	RestartCount int32         `json:"restartCount"`
	Hashes       RuntimeHashes `json:"hashes"`
}

// RuntimeHashes are unsigned decimal numbers: the hash of the container as kubelet started it, and the hash
// of the environment that it has from metadata.
type RuntimeHashes struct {
	PlainHash                    uint64 `json:"plainHash"`
	ExtractedEnvFromMetadataHash uint64 `json:"extractedEnvFromMetadataHash,omitempty"`
}

// Reported reports whether a node daemon watches the pod (IPU-312).
func Reported(pod *corev1.Pod) bool {
	_, ok := pod.Annotations[pub.RuntimeContainersMeta]
	return ok
}

// reported returns what the daemon reports about the container with the ID in the status, nil if it reports
// nothing about it. An unreadable report counts as none. The report is parsed once for all containers.
func (s *State) reported(pod *corev1.Pod, status *corev1.ContainerStatus) *RuntimeContainer {
	text := pod.Annotations[pub.RuntimeContainersMeta]
	if text == "" || status == nil || status.ContainerID == "" {
		return nil
	}
	if s.report == nil {
		s.report = &RuntimeMeta{}
		if json.Unmarshal([]byte(text), s.report) != nil {
			s.report = &RuntimeMeta{}
		}
	}

	for i := range s.report.Containers {
		if c := &s.report.Containers[i]; c.Name == status.Name && c.ContainerID == status.ContainerID {
			return c
		}
	}

	return nil
}

// PlainHash returns the hash that kubelet, from 1.31 on, stores with a container to find out whether its
// image changed (IPU-125).
func PlainHash(name, image string) string {
	// Encoding strings cannot fail. The order of the fields matters for the hash.
	encoded, _ := json.Marshal(struct {
		Image string `json:"image,omitempty"`
		Name  string `json:"name,omitempty"`
	}{image, name})
	return revision.HashBytes(encoded)
}

// envValue is one entry of the hash of an environment.
type envValue struct {
	Name  string `json:"name"`
	Value string `json:"value,omitempty"`
}

// EnvHash returns the hash of the environment that a container has from metadata, with the values that it
// would have if it started now (IPU-126, ND-102).
func EnvHash(pod *corev1.Pod, container *corev1.Container) string {
	return envHash(container, func(_, key string, label bool) string {
		if label {
			return pod.Labels[key]
		}
		return pod.Annotations[key]
	})
}

// ActualEnvHash returns the hash of the environment that a container has from metadata, with the values that
// it was started with (ND-102).
func ActualEnvHash(container *corev1.Container, environment map[string]string) string {
	return envHash(container, func(name, _ string, _ bool) string { return environment[name] })
}

// ReadsMetadata reports whether any of the container's environment comes from labels or annotations.
func ReadsMetadata(container *corev1.Container) bool {
	return slices.ContainsFunc(container.Env, func(env corev1.EnvVar) bool {
		_, _, ok := EnvReference(&env)
		return ok
	})
}

// envHash hashes the entries that refer to metadata, sorted by name. An entry that a later one of the same
// name overrides does not count, because the container does not have its value.
func envHash(container *corev1.Container, value func(name, key string, label bool) string) string {
	var values []envValue
	for i := range container.Env {
		env := &container.Env[i]
		overridden := slices.ContainsFunc(container.Env[i+1:],
			func(later corev1.EnvVar) bool { return later.Name == env.Name })
		if key, label, ok := EnvReference(env); ok && !overridden {
			values = append(values, envValue{env.Name, value(env.Name, key, label)})
		}
	}
	slices.SortStableFunc(values, func(a, b envValue) int { return strings.Compare(a.Name, b.Name) })
	encoded, _ := json.Marshal(values) // encoding strings cannot fail
	return revision.HashBytes(encoded)
}
