package statefulset

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/template"
)

// DefaultClassAnnotation marks a storage class as the default.
const DefaultClassAnnotation = "storageclass.kubernetes.io/is-default-class"

// Classes finds the storage class of the name; without a name the default class. It returns nil if there is
// none. An error means that nobody knows.
type Classes func(name string) (*storagev1.StorageClass, error)

// DefaultClass returns the default class: of several the newest, and of those the first by name, as
// Kubernetes chooses it; nil if there is none (ASTS-054).
func DefaultClass(classes []storagev1.StorageClass) *storagev1.StorageClass {
	var chosen *storagev1.StorageClass
	for i := range classes {
		class := &classes[i]
		if class.Annotations[DefaultClassAnnotation] != "true" {
			continue
		}
		if chosen == nil || chosen.CreationTimestamp.Before(&class.CreationTimestamp) ||
			chosen.CreationTimestamp.Equal(&class.CreationTimestamp) && class.Name < chosen.Name {
			chosen = class
		}
	}
	return chosen
}

// validateClaimChanges checks how claim templates change where existing claims follow them (ASTS-053 to
// ASTS-055). Where they do not, the templates may change freely.
func validateClaimChanges(
	updated, old *appsv1beta1.StatefulSetSpec, gates Gates, classes Classes, path *field.Path,
) field.ErrorList {
	if !gates.AutoResizePVC ||
		updated.VolumeClaimUpdateStrategy.Type != appsv1beta1.OnPodRollingUpdateStatefulSetClaimUpdate ||
		updated.VolumeClaimTemplates.DecodeError() != nil || old.VolumeClaimTemplates.DecodeError() != nil {
		return nil
	}

	var errs field.ErrorList
	if len(updated.VolumeClaimTemplates) != len(old.VolumeClaimTemplates) {
		errs = append(errs, field.Forbidden(path,
			"claim templates cannot be added or removed under OnPodRollingUpdate: use OnDelete for it"))
	}
	before := map[string]*template.VolumeClaimTemplate{}
	for i := range old.VolumeClaimTemplates {
		claim := &old.VolumeClaimTemplates[i]
		before[claim.Name] = claim
	}

	for i := range updated.VolumeClaimTemplates {
		claim, at := &updated.VolumeClaimTemplates[i], path.Index(i)
		stored, exists := before[claim.Name]
		if !exists {
			errs = append(errs, field.Invalid(at.Child("metadata", "name"), claim.Name,
				"there was no claim template of this name: under OnPodRollingUpdate names cannot change"))
			continue
		}
		errs = append(errs, validateClaimChange(&claim.Spec, &stored.Spec, classes, at.Child("spec"))...)
	}

	return errs
}

// validateAddedClaims refuses claim templates that no pod there is could get a volume for under InPlaceOnly.
func validateAddedClaims(updated, old *appsv1beta1.StatefulSetSpec, path *field.Path) field.ErrorList {
	if updated.VolumeClaimTemplates.DecodeError() != nil || old.VolumeClaimTemplates.DecodeError() != nil {
		return nil
	}

	var errs field.ErrorList
	for i := range updated.VolumeClaimTemplates {
		name := updated.VolumeClaimTemplates[i].Name
		if !slices.ContainsFunc(old.VolumeClaimTemplates,
			func(t template.VolumeClaimTemplate) bool { return t.Name == name }) {
			errs = append(errs, field.Forbidden(path.Index(i),
				fmt.Sprintf("under InPlaceOnly claim template %s cannot be added: "+
					"a running pod gets no further volume; use podUpdatePolicy InPlaceIfPossible, which recreates the pods that lack it",
					name)))
		}
	}

	return errs
}

func validateClaimChange(
	updated, old *corev1.PersistentVolumeClaimSpec, classes Classes, path *field.Path,
) field.ErrorList {
	const cannot = "cannot change under OnPodRollingUpdate: existing claims could not follow"
	var errs field.ErrorList
	if updated.StorageClassName != nil && old.StorageClassName != nil &&
		*updated.StorageClassName != *old.StorageClassName {
		errs = append(errs, field.Forbidden(path.Child("storageClassName"), cannot))
	}
	if !equality.Semantic.DeepEqual(updated.AccessModes, old.AccessModes) {
		errs = append(errs, field.Forbidden(path.Child("accessModes"), cannot))
	}
	if !equality.Semantic.DeepEqual(withoutSize(updated), withoutSize(old)) {
		errs = append(errs, field.Forbidden(path,
			"only the storage request and limit can change under OnPodRollingUpdate"))
	}
	size := updated.Resources.Requests[corev1.ResourceStorage]
	if size.Cmp(old.Resources.Requests[corev1.ResourceStorage]) == 0 {
		return errs
	}

	return append(errs, validateExpansion(updated.StorageClassName, classes, path)...)
}

// withoutSize is a claim without what may change, or is checked by itself.
func withoutSize(claim *corev1.PersistentVolumeClaimSpec) *corev1.PersistentVolumeClaimSpec {
	claim = claim.DeepCopy()
	claim.StorageClassName, claim.AccessModes = nil, nil
	delete(claim.Resources.Requests, corev1.ResourceStorage)
	delete(claim.Resources.Limits, corev1.ResourceStorage)
	if claim.VolumeMode == nil { // as the API server completes it
		mode := corev1.PersistentVolumeFilesystem
		claim.VolumeMode = &mode
	}
	return claim
}

// validateExpansion checks that volumes of the storage class can grow.
func validateExpansion(name *string, classes Classes, path *field.Path) field.ErrorList {
	at, wanted := path.Child("storageClassName"), ""
	if name != nil {
		if wanted = *name; wanted == "" {
			return field.ErrorList{field.Invalid(at, "",
				"volumes without a storage class cannot be expanded")}
		}
	}
	class, err := classes(wanted)
	switch {
	case err != nil:
		return field.ErrorList{field.InternalError(at, fmt.Errorf("reading the storage class: %w", err))}
	case class == nil && name != nil:
		return field.ErrorList{field.Invalid(at, wanted, "there is no such storage class")}
	case class == nil || class.AllowVolumeExpansion != nil && *class.AllowVolumeExpansion:
		return nil
	}

	return field.ErrorList{field.Forbidden(path.Child("resources", "requests", "storage"),
		fmt.Sprintf("the size cannot change: storage class %q does not have allowVolumeExpansion: true",
			class.Name))}
}
