package podunavailablebudget

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	policyv1beta1 "github.com/afloat-project/afloat/api/policy/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/fieldcheck"
)

// Validate returns everything that is wrong with a budget (PUB-021 to PUB-029). old is nil on creation.
// others are the budgets of the namespace, which may include this one. They are needed only on creation,
// since what a budget covers does not change.
func Validate(
	budget, old *policyv1beta1.PodUnavailableBudget, others []policyv1beta1.PodUnavailableBudget,
) field.ErrorList {
	spec, path := &budget.Spec, field.NewPath("spec")
	errs := validateCovered(spec, path)
	if old == nil {
		errs = append(errs, validateOverlap(budget, others, path)...)
	} else {
		if !equality.Semantic.DeepEqual(spec.Selector, old.Spec.Selector) {
			errs = append(errs, field.Invalid(path.Child("selector"), spec.Selector, immutable))
		}
		if !equality.Semantic.DeepEqual(spec.TargetReference, old.Spec.TargetReference) {
			errs = append(errs, field.Invalid(path.Child("targetRef"), spec.TargetReference, immutable))
		}
	}

	errs = append(errs, validateNumbers(spec, path)...)
	for i, operation := range spec.ProtectOperations {
		if !slices.Contains(policyv1beta1.BudgetOperations, operation) {
			errs = append(errs, field.NotSupported(path.Child("protectOperations").Index(i), operation,
				policyv1beta1.BudgetOperations))
		}
	}

	if spec.IgnoredPodSelector != nil {
		errs = append(errs, validateSelector(spec.IgnoredPodSelector, path.Child("ignoredPodSelector"),
			"an empty selector would match all pods, so that none is protected: name a label, or leave it out")...)
	}
	if old == nil || budget.Annotations[pub.BudgetWindows] != old.Annotations[pub.BudgetWindows] {
		_, wrong := parseWindows(budget)
		errs = append(errs, wrong...)
	}

	return append(errs, validateAnnotations(budget, old)...)
}

const immutable = "what a budget covers cannot be changed: make another budget"

// validateCovered validates selector and targetRef.
func validateCovered(spec *policyv1beta1.PodUnavailableBudgetSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if (spec.Selector == nil) == (spec.TargetReference == nil) {
		errs = append(errs, field.Required(path.Child("selector, targetRef"),
			"exactly one of them says which pods the budget covers"))
	}
	if spec.Selector != nil {
		errs = append(errs, validateSelector(spec.Selector, path.Child("selector"),
			"an empty selector would match all pods of the namespace: name at least one label")...)
	}
	if target := spec.TargetReference; target != nil {
		at := path.Child("targetRef")
		for _, part := range [][2]string{
			{"apiVersion", target.APIVersion}, {"kind", target.Kind}, {"name", target.Name}} {
			if part[1] == "" {
				errs = append(errs,
					field.Required(at.Child(part[0]), "apiVersion, kind and name tell the workload"))
			}
		}
		if _, err := schema.ParseGroupVersion(target.APIVersion); err != nil {
			errs = append(errs, field.Invalid(at.Child("apiVersion"), target.APIVersion,
				"must be a group and a version, such as apps/v1"))
		}
	}

	return errs
}

func validateSelector(selector *metav1.LabelSelector, path *field.Path, empty string) field.ErrorList {
	switch n := fieldcheck.SelectorTerms(selector); {
	case n == 0:
		return field.ErrorList{field.Invalid(path, selector, empty)}
	case n > fieldcheck.MostSelectorTerms:
		return field.ErrorList{field.TooMany(path, n, fieldcheck.MostSelectorTerms)}
	}
	return metavalidation.ValidateLabelSelector(selector,
		metavalidation.LabelSelectorValidationOptions{}, path)
}

// validateNumbers validates maxUnavailable and minAvailable.
func validateNumbers(spec *policyv1beta1.PodUnavailableBudgetSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if (spec.MaxUnavailable == nil) == (spec.MinAvailable == nil) {
		errs = append(errs, field.Required(path.Child("maxUnavailable, minAvailable"),
			"exactly one of them says how many pods may be out of service"))
	}

	judge := func(value *intstr.IntOrString, path *field.Path) {
		if value == nil {
			return
		}
		if _, ok := percentage(value); value.Type == intstr.String && !ok {
			errs = append(errs, field.Invalid(path, value.StrVal,
				"must be an integer, or a percentage from 0% to 100%"))
		}
		if value.Type == intstr.Int && value.IntVal < 0 {
			errs = append(errs, field.Invalid(path, value.IntVal, "must not be negative"))
		}
	}

	judge(spec.MaxUnavailable, path.Child("maxUnavailable"))
	judge(spec.MinAvailable, path.Child("minAvailable"))
	return errs
}

// percentage parses a whole percentage of at most 100.
func percentage(value *intstr.IntOrString) (percent int, ok bool) {
	if value.Type != intstr.String || len(validation.IsValidPercent(value.StrVal)) > 0 {
		return 0, false
	}
	percent, err := strconv.Atoi(strings.TrimSuffix(value.StrVal, "%"))
	return percent, err == nil && percent <= 100
}

// validateAnnotations rejects annotations that cannot be parsed, and a number of pods that contradicts its
// field. An annotation that the update does not change is not checked: it may be older than the field, which
// takes precedence.
func validateAnnotations(budget, old *policyv1beta1.PodUnavailableBudget) field.ErrorList {
	_, badOperations := policyv1beta1.ParseBudgetOperations(budget.Annotations[pub.BudgetOperations])
	total, badTotal := policyv1beta1.ParseBudgetTotalReplicas(budget.Annotations[pub.BudgetTotalReplicas])
	_, badIgnored := policyv1beta1.ParseBudgetIgnoredPods(budget.Annotations[pub.BudgetIgnoredPods])
	if set := budget.Spec.ProtectTotalReplicas; badTotal == nil && set != nil && *set != *total {
		badTotal = fmt.Errorf("spec.protectTotalReplicas is %d: leave the annotation out", *set)
	}

	var errs field.ErrorList
	for _, annotation := range []struct {
		key string
		err error
	}{{pub.BudgetOperations, badOperations}, {pub.BudgetTotalReplicas, badTotal},
		{pub.BudgetIgnoredPods, badIgnored}} {
		text, set := budget.Annotations[annotation.key]
		if !set || annotation.err == nil {
			continue
		}
		if old != nil {
			if before, was := old.Annotations[annotation.key]; was && before == text {
				continue
			}
		}

		errs = append(errs, field.Invalid(field.NewPath("metadata", "annotations").Key(annotation.key), text,
			annotation.err.Error()))
	}

	return errs
}

// validateOverlap rejects a budget that overlaps with another one, as far as that can be seen from the two.
func validateOverlap(
	budget *policyv1beta1.PodUnavailableBudget, others []policyv1beta1.PodUnavailableBudget, path *field.Path,
) field.ErrorList {
	target, selector, selected := budget.Spec.TargetReference, budget.Spec.Selector,
		keys(budget.Spec.Selector)
	for i := range others {
		other := &others[i]
		if other.Name == budget.Name || other.DeletionTimestamp != nil {
			continue
		}
		if theirs := other.Spec.TargetReference; target != nil && theirs != nil &&
			workload(target) == workload(theirs) {
			return field.ErrorList{field.Invalid(path.Child("targetRef"), target, fmt.Sprintf(
				"PodUnavailableBudget %s covers this workload already, and a workload can have one",
				other.Name))}
		}
		if overlap(selector, selected, other.Spec.Selector) {
			return field.ErrorList{field.Invalid(path.Child("selector"), selector, fmt.Sprintf(
				"PodUnavailableBudget %s can select the same pods, and a pod can have one: make them disjoint in a label",
				other.Name))}
		}
	}

	return nil
}

type reference struct {
	schema.GroupKind
	name string
}

// workload returns the workload that a reference names, without the version.
func workload(target *policyv1beta1.TargetReference) reference {
	return reference{schema.FromAPIVersionAndKind(target.APIVersion, target.Kind).GroupKind(), target.Name}
}

// overlap reports whether the selectors use the same keys and some pod could match both. own are the keys of
// the first selector.
func overlap(selector *metav1.LabelSelector, own sets.Set[string], other *metav1.LabelSelector) bool {
	if selector == nil || other == nil || !keys(other).Equal(own) {
		return false
	}
	same, err := fieldcheck.SelectorsOverlap(selector, other)
	return same && err == nil // an invalid selector selects nothing
}

func keys(selector *metav1.LabelSelector) sets.Set[string] {
	if selector == nil {
		return nil
	}
	keys := sets.KeySet(selector.MatchLabels)
	for i := range selector.MatchExpressions {
		keys.Insert(selector.MatchExpressions[i].Key)
	}
	return keys
}

// Warnings returns what the author of a valid budget may not expect: that it never allows any disruption, or
// that an annotation takes effect because a field of v1beta1 is empty.
func Warnings(budget *policyv1beta1.PodUnavailableBudget) []string {
	var warnings []string
	most, least := budget.Spec.MaxUnavailable, budget.Spec.MinAvailable
	total, known := TotalOverride(budget)
	never := func(name string, value *intstr.IntOrString) {
		warnings = append(warnings, fmt.Sprintf(
			"spec.%s: %s never lets one of the expected pods leave service: what the budget protects from is refused, and drains of nodes wait",
			name, value))
	}

	if most != nil {
		if percent, ok := percentage(most); ok && percent == 0 ||
			most.Type == intstr.Int && most.IntVal == 0 {
			never("maxUnavailable", most)
		}
	}
	if least != nil {
		percent, ok := percentage(least)
		desired := int64(least.IntVal)
		if ok { // rounded up
			desired = (int64(percent)*int64(total) + 99) / 100
		}
		if ok && percent == 100 || known && desired >= int64(total) {
			never("minAvailable", least)
		}
	}

	decides := func(key, name string) {
		warnings = append(warnings,
			fmt.Sprintf("annotation %s has effect, because spec.%s is empty: remove it if it should not",
				key, name))
	}
	if operations, _ := policyv1beta1.ParseBudgetOperations(
		budget.Annotations[pub.BudgetOperations],
	); len(operations) > 0 && len(budget.Spec.ProtectOperations) == 0 {
		decides(pub.BudgetOperations, "protectOperations")
	}
	if known && budget.Spec.ProtectTotalReplicas == nil {
		decides(pub.BudgetTotalReplicas, "protectTotalReplicas")
	}

	return warnings
}
