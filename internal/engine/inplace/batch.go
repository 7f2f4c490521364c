package inplace

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/afloat-project/afloat/api/pub"
)

// launchPriority returns the launch priority of the container, if it has one.
func launchPriority(container *corev1.Container) (int, bool) {
	if container == nil {
		return 0, false
	}

	for i := range container.Env {
		env := &container.Env[i]
		if env.Name != pub.ContainerBarrierEnv || env.ValueFrom == nil ||
			env.ValueFrom.ConfigMapKeyRef == nil {
			continue
		}
		if priority, ok := pub.LaunchBarrierPriority(env.ValueFrom.ConfigMapKeyRef.Key); ok {
			return priority, true
		}
	}

	return 0, false
}

// split divides parts into those to be written now and those that wait. The parts of these containers are
// written now: those without priority, those of the highest priority, and all that read the same metadata as
// one of these, because a key has one value at a time. The containers in ahead belong to an earlier batch and
// are not up yet; containers of a lower priority wait for them.
func split(pod *corev1.Pod, parts Parts, ahead []string) (now, later Parts) {
	names := parts.Names()
	highest, some := 0, false
	for _, name := range slices.Concat(names, ahead) {
		if priority, ok := launchPriority(containerOf(pod, name)); ok && (!some || priority > highest) {
			highest, some = priority, true
		}
	}

	first := map[string]bool{}
	for _, name := range names {
		priority, ok := launchPriority(containerOf(pod, name))
		first[name] = !ok || priority == highest
	}

	for grown := true; grown; {
		grown = false
		for _, name := range names {
			for _, member := range names {
				if !first[name] && first[member] && shareMetadata(parts.Refs[name], parts.Refs[member]) {
					first[name], grown = true, true
				}
			}
		}
	}

	return parts.only(func(name string) bool { return first[name] }),
		parts.only(func(name string) bool { return !first[name] })
}

func shareMetadata(a, b RefMetadata) bool {
	return shareKey(a.Labels, b.Labels) || shareKey(a.Annotations, b.Annotations)
}

func shareKey(a, b map[string]*string) bool {
	for key := range a {
		if _, ok := b[key]; ok {
			return true
		}
	}
	return false
}
