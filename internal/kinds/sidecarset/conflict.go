package sidecarset

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/fieldcheck"
)

// meets is the part of a message that describes another SidecarSet. It is followed by what else can be done.
const meets = "whose selectors can match the same pods: make the selectors disjoint in a key that both name, or"

// Conflicts returns the errors of a SidecarSet that others cause which could match the same pods (SS-060 to
// SS-067). Invalid selectors match nothing.
func Conflicts(set *appsv1beta1.SidecarSet, others []*appsv1beta1.SidecarSet) field.ErrorList {
	var errs field.ErrorList
	path := field.NewPath("spec")
	for _, other := range others {
		if other.Name == set.Name || CanaryOf(set) == other.Name || CanaryOf(other) == set.Name ||
			!meet(&set.Spec, &other.Spec) {
			continue
		}

		theirs := occupied(&other.Spec)
		for _, list := range []string{"containers", "initContainers"} {
			containers := set.Spec.Containers
			if list == "initContainers" {
				containers = set.Spec.InitContainers
			}
			for i := range containers {
				if at := slices.IndexFunc(names(&containers[i]),
					func(name string) bool { return theirs[name] }); at >= 0 {
					errs = append(errs,
						field.Invalid(path.Child(list).Index(i).Child("name"), containers[i].Name,
							fmt.Sprintf("container %s already exist in %s, %s rename it",
								names(&containers[i])[at], other.Name, meets)))
				}
			}
		}
		errs = append(errs, volumeConflicts(set, other, path.Child("volumes"))...)
		errs = append(errs, metadataConflicts(set, other, path.Child("patchPodMetadata"))...)
	}

	return errs
}

// meet reports whether a pod could be matched by both.
func meet(a, b *appsv1beta1.SidecarSetSpec) bool {
	if a.Selector == nil || b.Selector == nil {
		return false
	}
	namespaces, err := fieldcheck.SelectorsOverlap(a.NamespaceSelector, b.NamespaceSelector)
	if err != nil || !namespaces {
		return false
	}
	pods, err := fieldcheck.SelectorsOverlap(a.Selector, b.Selector)
	return err == nil && pods
}

// names returns all names that a container may have in a pod.
func names(c *appsv1beta1.SidecarContainer) []string {
	if !IsHot(c) {
		return []string{c.Name}
	}
	first, second := HotNames(c.Name)
	return []string{c.Name, first, second}
}

func occupied(spec *appsv1beta1.SidecarSetSpec) map[string]bool {
	all := map[string]bool{}
	for _, list := range [][]appsv1beta1.SidecarContainer{spec.Containers, spec.InitContainers} {
		for i := range list {
			for _, name := range names(&list[i]) {
				all[name] = true
			}
		}
	}
	return all
}

// volumeConflicts returns errors for volumes that have the name of a different volume of the other
// SidecarSet.
func volumeConflicts(set, other *appsv1beta1.SidecarSet, path *field.Path) (errs field.ErrorList) {
	theirs := map[string]*corev1.Volume{}
	for i := range other.Spec.Volumes.List {
		theirs[other.Spec.Volumes.List[i].Name] = &other.Spec.Volumes.List[i]
	}

	for i := range set.Spec.Volumes.List {
		volume := &set.Spec.Volumes.List[i]
		if their := theirs[volume.Name]; their != nil && !equality.Semantic.DeepEqual(their, volume) {
			errs = append(errs, field.Invalid(path.Index(i), volume.Name,
				fmt.Sprintf(
					"volume %s is in conflict with sidecarset %s, %s rename it, or make both volumes alike",
					volume.Name, other.Name, meets)))
		}
	}

	return errs
}

// metadataConflicts returns errors for annotations that both SidecarSets change, at least one of them by
// overwriting.
func metadataConflicts(set, other *appsv1beta1.SidecarSet, path *field.Path) (errs field.ErrorList) {
	theirs := map[string]appsv1beta1.SidecarSetPatchPolicyType{}
	for i := range other.Spec.PatchPodMetadata {
		for key := range other.Spec.PatchPodMetadata[i].Annotations {
			theirs[key] = other.Spec.PatchPodMetadata[i].PatchPolicy
		}
	}

	const retain, overwrite = appsv1beta1.SidecarSetRetainPatchPolicy,
		appsv1beta1.SidecarSetOverwritePatchPolicy
	for i := range set.Spec.PatchPodMetadata {
		patch := &set.Spec.PatchPodMetadata[i]
		for key := range patch.Annotations {
			their, ok := theirs[key]
			if ok && their != retain && patch.PatchPolicy != retain &&
				(their == overwrite || patch.PatchPolicy == overwrite) {
				errs = append(errs,
					field.Invalid(path.Index(i).Child("annotations").Key(key), patch.PatchPolicy,
						fmt.Sprintf(
							"annotation %s is in conflict with sidecarset %s, %s leave it to one of the two",
							key, other.Name, meets)))
			}
		}
	}

	return errs
}
