package sidecarset

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
)

// IsNative tells whether an init container is a native sidecar: one that runs beside the containers.
func IsNative(c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

// IsHot tells whether a container is upgraded by a second one that takes over (SS-125).
func IsHot(c *appsv1beta1.SidecarContainer) bool {
	return c.UpgradeStrategy.UpgradeType == appsv1beta1.SidecarContainerHotUpgrade
}

// HotNames are the two containers that stand for a hot-upgrade container in a pod (SS-125).
func HotNames(name string) (first, second string) { return name + "-1", name + "-2" }

// Names are those of the sidecars as the SidecarSet has them, sorted: containers and native sidecars
// (SS-180).
func Names(spec *appsv1beta1.SidecarSetSpec) []string {
	names := nativeSidecars(spec)
	for i := range spec.Containers {
		names = append(names, spec.Containers[i].Name)
	}
	slices.Sort(names)
	return names
}

// PodNames are the names that the sidecars have in pods: of each hot-upgrade container both (SS-125, SS-215).
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
