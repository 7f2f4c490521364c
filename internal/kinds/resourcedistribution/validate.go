package resourcedistribution

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
)

// mostFaults is how many faults of names in one list are told: there may be thousands.
const mostFaults = 20

// Validate judges a ResourceDistribution; old is the stored one, nil on create; own are the namespaces of the
// manager (RD-030 to RD-036).
func Validate(distribution, old *appsv1beta1.ResourceDistribution, own ...string) field.ErrorList {
	var errs field.ErrorList
	for _, fault := range validation.NameIsDNSSubdomain(distribution.Name, false) {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), distribution.Name, fault))
	}

	resource := field.NewPath("spec", "resource")
	given, err := read(distribution.Spec.Resource.Raw)
	var whole *Resource
	if err == nil {
		whole, err = Read(distribution)
	}

	switch {
	case err == nil && token(whole.Type):
		errs = append(errs, field.Forbidden(resource.Child("type"), tokens))
	case err != nil:
		errs = append(errs, field.Invalid(resource, field.OmitValueType{},
			strings.TrimPrefix(err.Error(), "spec.resource ")))
	}
	if old != nil && given.Kind != "" {
		if stored, err := read(old.Spec.Resource.Raw); err == nil &&
			(stored.TypeMeta != given.TypeMeta || stored.Metadata.Name != given.Metadata.Name) {
			errs = append(errs, field.Invalid(resource, field.OmitValueType{},
				"resource apiVersion, kind, and name are immutable"))
		}
	}

	for i, target := range distribution.Spec.Targets.IncludedNamespaces.List {
		if target.Name != "" && slices.Contains(own, target.Name) {
			errs = append(errs, field.Forbidden(field.NewPath("spec", "targets",
				"includedNamespaces", "list").Index(i).Child("name"),
				target.Name+" is a namespace of the manager, which goes by what stands in it"))
		}
	}

	return append(errs, validateTargets(&distribution.Spec.Targets, field.NewPath("spec", "targets"))...)
}

func validateTargets(
	targets *appsv1beta1.ResourceDistributionTargets, at *field.Path,
) (errs field.ErrorList) {
	names := func(of appsv1beta1.ResourceDistributionTargetNamespaces, at *field.Path) {
		found := 0
		for i := range of.List {
			for _, fault := range validation.ValidateNamespaceName(of.List[i].Name, false) {
				if found++; found <= mostFaults {
					errs = append(errs,
						field.Invalid(at.Child("list").Index(i).Child("name"), of.List[i].Name, fault))
				}
			}
		}
	}
	names(targets.IncludedNamespaces, at.Child("includedNamespaces"))
	names(targets.ExcludedNamespaces, at.Child("excludedNamespaces"))
	excluded := set(targets.ExcludedNamespaces)
	both := slices.Sorted(maps.Keys(set(targets.IncludedNamespaces)))
	both = slices.DeleteFunc(both, func(name string) bool { return !excluded[name] })
	if len(both) > 0 {
		more := ""
		if len(both) > mostFaults {
			both, more = both[:mostFaults], ", and more"
		}
		errs = append(errs, field.Invalid(at, field.OmitValueType{},
			"namespaces are both in includedNamespaces and in excludedNamespaces: "+strings.Join(both,
				", ")+more))
	}

	return append(errs, metav1validation.ValidateLabelSelector(&targets.NamespaceSelector,
		metav1validation.LabelSelectorValidationOptions{}, at.Child("namespaceSelector"))...)
}

// Warnings tells of what is accepted and has no effect (RD-037).
func Warnings(distribution *appsv1beta1.ResourceDistribution) (warnings []string) {
	included := set(distribution.Spec.Targets.IncludedNamespaces)
	for _, name := range []string{metav1.NamespaceSystem, metav1.NamespacePublic} {
		if included[name] {
			warnings = append(warnings, "spec.targets.includedNamespaces: "+name+" never gets a copy")
		}
	}
	return warnings
}
