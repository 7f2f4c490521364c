package sidecarset

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
)

// IsNative reports whether an init container is a native sidecar, which runs beside the containers.
func IsNative(c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

// IsHot reports whether a container is upgraded by a second one that takes over (SS-125).
func IsHot(c *appsv1beta1.SidecarContainer) bool {
	return c.UpgradeStrategy.UpgradeType == appsv1beta1.SidecarContainerHotUpgrade
}

// HotNames returns the names of the two containers that represent a hot-upgrade container in a pod (SS-125).
func HotNames(name string) (first, second string) { return name + "-1", name + "-2" }

// Names returns the sorted names of the sidecars as in the SidecarSet: containers and native sidecars
// (SS-180).
func Names(spec *appsv1beta1.SidecarSetSpec) []string {
	names := nativeSidecars(spec)
	for i := range spec.Containers {
		names = append(names, spec.Containers[i].Name)
	}
	slices.Sort(names)
	return names
}

// PodNames returns the names of the sidecars in pods, which are two for each hot-upgrade container (SS-125,
// SS-215).
func PodNames(spec *appsv1beta1.SidecarSetSpec) []string {
	names := nativeSidecars(spec)
	for i := range spec.Containers {
		if c := &spec.Containers[i]; IsHot(c) {
			first, second := HotNames(c.Name)
			names = append(names, first, second)
		} else {
			names = append(names, c.Name)
		}
	}
	slices.Sort(names)
	return names
}

func nativeSidecars(spec *appsv1beta1.SidecarSetSpec) []string {
	var names []string
	for i := range spec.InitContainers {
		if IsNative(&spec.InitContainers[i].Container) {
			names = append(names, spec.InitContainers[i].Name)
		}
	}
	return names
}
