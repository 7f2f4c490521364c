package uniteddeployment

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/fieldcheck"
	"github.com/afloat-project/afloat/internal/engine/inplace"
	"github.com/afloat-project/afloat/internal/engine/subset"
	"github.com/afloat-project/afloat/internal/kinds/workloadspread"
)

const (
	// mostSubsets limits the number of subsets, since each is a workload, and each pass looks at all of them.
	mostSubsets = 1000
	// mostText limits the total size in bytes of the template, counted once for each subset, since a pass
	// builds the workload of each subset.
	mostText = 16 << 20
	// maxNameLength leaves room for the hash in the names of revisions.
	maxNameLength = 253 - len("-") - 10
)

// Validate returns everything that is wrong with a UnitedDeployment; old is nil on creation (UD-020 to
// UD-052). The API server validates pod templates, node selectors and tolerations, and the pod template with
// the patches applied.
//
// An update is not rejected for errors that the stored object already has, so that objects admitted by an
// older release can still be scaled, repaired step by step, and deleted.
func Validate(updated, old *appsv1beta1.UnitedDeployment, rules Rules) field.ErrorList {
	errs := validate(updated, rules)
	if old == nil {
		return append(errs, validateName(updated)...)
	}

	errs = fieldcheck.Fresh(errs, validate(old, rules))
	return append(errs, validateUpdate(updated, old, rules)...)
}

// validateName validates the name of a new object.
func validateName(united *appsv1beta1.UnitedDeployment) field.ErrorList {
	name, path := united.Name, field.NewPath("metadata", "name")
	if name == "" {
		if name, path = united.GenerateName, field.NewPath("metadata", "generateName"); name == "" {
			return nil // the API server rejects it
		}
		name += "xxxxx"
	}

	var errs field.ErrorList
	for _, message := range validation.NameIsDNSSubdomain(name, false) {
		errs = append(errs, field.Invalid(path, name, message))
	}
	if len(name) > maxNameLength {
		errs = append(errs, field.Invalid(path, name, fmt.Sprintf(
			"must be no more than %d characters, so that revisions can be named after it", maxNameLength)))
	}

	return errs
}

func validate(united *appsv1beta1.UnitedDeployment, rules Rules) field.ErrorList {
	spec, path := &united.Spec, field.NewPath("spec")
	errs := fieldcheck.NotNegative(spec.Replicas, path.Child("replicas"))
	errs = append(errs, fieldcheck.NotNegative(spec.RevisionHistoryLimit,
		path.Child("revisionHistoryLimit"))...)
	errs = append(errs, validateSelector(spec.Selector, path.Child("selector"))...)
	errs = append(errs, validateTemplate(united, rules, path.Child("template"))...)
	errs = append(errs, validateTopology(united, path.Child("topology"))...)
	return append(errs, validateStrategy(spec, path.Child("updateStrategy"))...)
}

// validateSelector validates the selector, which must not use labels that controllers set and change.
func validateSelector(selector *metav1.LabelSelector, path *field.Path) field.ErrorList {
	if selector == nil {
		return field.ErrorList{field.Required(path,
			"it says by labels which workloads and pods are those of the UnitedDeployment, and must match those of the template")}
	}
	if len(selector.MatchLabels)+len(selector.MatchExpressions) == 0 {
		return field.ErrorList{field.Invalid(path, "{}",
			"an empty selector would match everything; name at least one label of the template")}
	}

	errs := metavalidation.ValidateLabelSelector(selector,
		metavalidation.LabelSelectorValidationOptions{}, path)
	if n := fieldcheck.SelectorTerms(selector); n > fieldcheck.MostSelectorTerms {
		errs = append(errs, field.TooMany(path, n, fieldcheck.MostSelectorTerms))
	}
	matcher, err := metav1.LabelSelectorAsSelector(selector)
	switch {
	case err != nil && len(errs) == 0:
		errs = append(errs, field.Invalid(path, metav1.FormatLabelSelector(selector), err.Error()))
	case err == nil:
		if key := inplace.Selects(matcher); key != "" {
			errs = append(errs, field.Forbidden(path, fmt.Sprintf(
				"label %s is the controllers' own, who set and change it: workloads would lose their pods", key)))
		}
	}

	for _, key := range []string{SubsetName, RevisionHash, ReservedPod} {
		expression := func(r metav1.LabelSelectorRequirement) bool { return r.Key == key }
		if _, ok := selector.MatchLabels[key]; ok ||
			slices.ContainsFunc(selector.MatchExpressions, expression) {
			errs = append(errs, field.Forbidden(path, fmt.Sprintf(
				"label %s is set by the controller, for each subset or pod as it is: select by a label of the template",
				key)))
		}
	}

	return errs
}

// validateStrategy validates updateStrategy.
func validateStrategy(spec *appsv1beta1.UnitedDeploymentSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if kind := spec.UpdateStrategy.Type; kind != "" &&
		kind != appsv1beta1.ManualUnitedDeploymentUpdateStrategyType {
		errs = append(errs, field.NotSupported(path.Child("type"), kind,
			[]appsv1beta1.UnitedDeploymentUpdateStrategyType{
				appsv1beta1.ManualUnitedDeploymentUpdateStrategyType}))
	}

	manual := spec.UpdateStrategy.ManualUpdate
	if manual == nil {
		return errs
	}

	names := sets.New[string]()
	for i := range spec.Topology.Subsets {
		names.Insert(spec.Topology.Subsets[i].Name)
	}

	at := path.Child("manualUpdate", "partitions")
	for _, name := range slices.Sorted(maps.Keys(manual.Partitions)) {
		value := manual.Partitions[name]
		if !names.Has(name) {
			errs = append(errs, field.Invalid(at, name, "no subset has this name"))
		}
		if value < 0 {
			errs = append(errs, field.Invalid(at, value,
				fmt.Sprintf("the partition of subset %q must be greater than or equal to 0", name)))
		}
	}

	return errs
}

// validateTopology validates the subsets, and how pods move between them.
func validateTopology(united *appsv1beta1.UnitedDeployment, path *field.Path) field.ErrorList {
	topology, template, replicas := &united.Spec.Topology, &united.Spec.Template, united.Spec.Replicas
	errs := validateSchedule(&topology.ScheduleStrategy, &template.SubsetTemplateSpec,
		path.Child("scheduleStrategy"))
	subsets, path := topology.Subsets, path.Child("subsets")
	if most := mostFor(united); len(subsets) > most {
		return append(errs, field.TooMany(path, len(subsets), most))
	}

	used, _ := usedBy(united) //nolint:errcheck // it is judged apart
	adaptive := topology.ScheduleStrategy.Type == appsv1beta1.AdaptiveUnitedDeploymentScheduleStrategyType
	names, sound := sets.New[string](), true
	for i := range subsets {
		s, at := &subsets[i], path.Index(i)
		if s.Name == "" {
			errs = append(errs, field.Required(at.Child("name"), "a subset is known by its name"))
		} else {
			if names.Has(s.Name) {
				errs = append(errs, field.Invalid(at.Child("name"), s.Name, "another subset has this name"))
			}
			for _, message := range validation.NameIsDNSLabel(s.Name, false) {
				errs = append(errs, field.Invalid(at.Child("name"), s.Name, message))
			}
		}
		names.Insert(s.Name)

		for _, number := range []struct {
			name  string
			value *intstr.IntOrString
		}{{"replicas", s.Replicas}, {"minReplicas", s.MinReplicas}, {"maxReplicas", s.MaxReplicas}} {
			if err := validateNumber(number.value, replicas, at.Child(number.name)); err != nil {
				errs, sound = append(errs, err), false
			}
		}

		if adaptive && s.Replicas != nil {
			errs = append(errs, field.Forbidden(at.Child("replicas"),
				"with scheduleStrategy Adaptive pods move between subsets: use minReplicas and maxReplicas"))
		}
		if used != nil {
			if err := subset.Requirable(within(used.Document, "spec", "template", "spec"),
				&s.NodeSelectorTerm); err != nil {
				errs = append(errs, field.Invalid(at.Child("nodeSelectorTerm"), field.OmitValueType{},
					err.Error()))
			}
		}
		if err := tryPatch(used, s.Patch.Raw); err != nil {
			errs = append(errs, field.Invalid(at.Child("patch"), field.OmitValueType{}, err.Error()))
		}
	}

	return append(errs, validateSums(subsets, replicas, sound, path)...)
}

// mostFor returns how many subsets there may be with that template.
func mostFor(united *appsv1beta1.UnitedDeployment) int {
	text, err := json.Marshal(united.Spec.Template)
	if err != nil {
		return mostSubsets
	}
	return min(mostText/max(len(text), 1), mostSubsets)
}

// TooLarge reports whether there are too many subsets to validate them one by one.
func TooLarge(united *appsv1beta1.UnitedDeployment) bool {
	return len(united.Spec.Topology.Subsets) > mostFor(united)
}

// tryPatch applies a patch to the pod template. If there is no usable template, it applies the patch to an
// empty one.
func tryPatch(used *used, patch []byte) error {
	if len(patch) == 0 {
		return nil
	}
	workload := Document{"spec": Document{"template": Document{}}}
	if used != nil && within(used.Document, "spec", "template") != nil {
		workload = used.Document
	}
	_, err := workloadspread.Patched(workload, patch)
	return err
}

// Selectors returns a pod template with the node selectors and tolerations of all subsets, for the API server
// to validate, or nil if there are none. translate converts the path of a field in the template to that in
// the UnitedDeployment (UD-030).
func Selectors(united *appsv1beta1.UnitedDeployment) (template Document, translate func(string) string) {
	spread := &appsv1beta1.WorkloadSpread{}
	for i := range united.Spec.Topology.Subsets {
		s := &united.Spec.Topology.Subsets[i]
		like := appsv1beta1.WorkloadSpreadSubset{}
		like.Tolerations = s.Tolerations
		if len(s.NodeSelectorTerm.MatchExpressions)+len(s.NodeSelectorTerm.MatchFields) > 0 {
			like.RequiredNodeSelector = &s.NodeSelectorTerm
		}
		spread.Spec.Subsets = append(spread.Spec.Subsets, like)
	}

	template, back := workloadspread.Selectors(spread)
	return template, func(path string) string {
		return strings.NewReplacer("spec.subsets", "spec.topology.subsets", ".requiredNodeSelector",
			".nodeSelectorTerm").Replace(back(path))
	}
}

// validateNumber validates a number of replicas.
func validateNumber(value *intstr.IntOrString, replicas *int32, path *field.Path) *field.Error {
	if value == nil {
		return nil
	}
	if _, err := Scaled(value, 0); err != nil {
		return field.Invalid(path, value.String(),
			`must be an integer not below 0, or an integer percentage from "0%" to "100%"`)
	}
	if value.Type == intstr.String && replicas == nil {
		return field.Invalid(path, value.String(), "a percentage needs spec.replicas")
	}
	return nil
}

// validateSums checks that the numbers of the subsets fit together, and fit all replicas. sound reports that
// each of them is valid.
func validateSums(
	subsets []appsv1beta1.Subset, replicas *int32, sound bool, path *field.Path,
) field.ErrorList {
	fixed := slices.ContainsFunc(subsets, func(s appsv1beta1.Subset) bool { return s.Replicas != nil })
	if Elastic(subsets) {
		return validateElastic(subsets, replicas, fixed, path)
	}

	given := func(s appsv1beta1.Subset) bool { return s.Replicas == nil }
	switch {
	case replicas == nil && slices.ContainsFunc(subsets, given):
		return field.ErrorList{field.Invalid(path, field.OmitValueType{},
			"spec.replicas is not given, so every subset must give replicas")}
	case !sound || !fixed || replicas == nil || *replicas < 0:
		return nil
	}

	numbers, err := Numbers(subsets, *replicas)
	if err != nil {
		return field.ErrorList{field.Invalid(path, field.OmitValueType{}, err.Error())}
	}

	switch sum, given := Sum(numbers); {
	case sum > int64(*replicas):
		return field.ErrorList{field.Invalid(path, sum, fmt.Sprintf(
			"the subsets have %d replicas together, more than spec.replicas, which is %d", sum, *replicas))}
	case given == len(subsets) && sum < int64(*replicas):
		return field.ErrorList{field.Invalid(path, sum, fmt.Sprintf(
			"the subsets have %d replicas together, fewer than spec.replicas, which is %d: leave replicas out of one of them, or give more",
			sum, *replicas))}
	}

	return nil
}

// validateElastic validates minima and maxima.
func validateElastic(
	subsets []appsv1beta1.Subset, replicas *int32, fixed bool, path *field.Path,
) field.ErrorList {
	var errs field.ErrorList
	if fixed {
		errs = append(errs, field.Invalid(path, field.OmitValueType{},
			"replicas of one subset, and minReplicas or maxReplicas of any, exclude each other: use one or the other"))
	}
	if replicas == nil {
		errs = append(errs, field.Invalid(path, field.OmitValueType{},
			"minReplicas and maxReplicas need spec.replicas"))
	}
	unbounded := false
	for i := range subsets {
		s := &subsets[i]
		unbounded = unbounded || s.MaxReplicas == nil
		if replicas == nil || s.MinReplicas == nil || s.MaxReplicas == nil {
			continue
		}
		least, err := Scaled(s.MinReplicas, *replicas)
		most, wrong := Scaled(s.MaxReplicas, *replicas)
		if err == nil && wrong == nil && least > most {
			errs = append(errs, field.Invalid(path.Index(i).Child("minReplicas"), s.MinReplicas.String(),
				fmt.Sprintf("is %d of %d, more than maxReplicas, which is %d", least, *replicas, most)))
		}
	}

	if !unbounded {
		errs = append(errs, field.Invalid(path, field.OmitValueType{},
			"all subsets have maxReplicas: one at least must have none, to take what is left"))
	}

	return errs
}

// validateSchedule validates scheduleStrategy.
func validateSchedule(
	strategy *appsv1beta1.UnitedDeploymentScheduleStrategy, template *appsv1beta1.SubsetTemplateSpec,
	path *field.Path,
) field.ErrorList {
	var errs field.ErrorList
	switch strategy.Type {
	case "", appsv1beta1.FixedUnitedDeploymentScheduleStrategyType,
		appsv1beta1.AdaptiveUnitedDeploymentScheduleStrategyType:
	default:
		errs = append(errs, field.NotSupported(path.Child("type"), strategy.Type,
			[]appsv1beta1.UnitedDeploymentScheduleStrategyType{
				appsv1beta1.FixedUnitedDeploymentScheduleStrategyType,
				appsv1beta1.AdaptiveUnitedDeploymentScheduleStrategyType}))
	}

	adaptive := strategy.Adaptive
	if adaptive == nil {
		return errs
	}

	errs = append(errs, fieldcheck.NotNegative(adaptive.RescheduleCriticalSeconds,
		path.Child("adaptive", "rescheduleCriticalSeconds"))...)
	errs = append(errs, fieldcheck.NotNegative(adaptive.UnschedulableDuration,
		path.Child("adaptive", "unschedulableDuration"))...)
	errs = append(errs, fieldcheck.NotNegative(adaptive.UnschedulableLastSeconds,
		path.Child("adaptive", "unschedulableLastSeconds"))...)

	if strategy.Type == appsv1beta1.AdaptiveUnitedDeploymentScheduleStrategyType &&
		adaptive.ReserveUnschedulablePods &&
		(template.StatefulSetTemplate != nil || template.AdvancedStatefulSetTemplate != nil) {
		errs = append(errs, field.Invalid(path, field.OmitValueType{},
			"reserveUnschedulablePods is possible with deploymentTemplate and cloneSetTemplate alone: pods of StatefulSets wait for each other"))
	}

	return errs
}

// validateUpdate validates what an update changes.
func validateUpdate(updated, old *appsv1beta1.UnitedDeployment, rules Rules) field.ErrorList {
	path := field.NewPath("spec")
	var errs field.ErrorList
	if !equality.Semantic.DeepEqual(updated.Spec.Selector, old.Spec.Selector) {
		errs = append(errs, field.Forbidden(path.Child("selector"),
			"the selector cannot be changed, since those of the workloads cannot: make another UnitedDeployment"))
	}

	stored := map[string]*appsv1beta1.Subset{}
	for i := range old.Spec.Topology.Subsets {
		s := &old.Spec.Topology.Subsets[i]
		stored[s.Name] = s
	}

	for i := range updated.Spec.Topology.Subsets {
		s := &updated.Spec.Topology.Subsets[i]
		before, at := stored[s.Name], path.Child("topology", "subsets").Index(i)
		if before == nil {
			continue
		}
		const message = "cannot be changed, since pods that run would be on the wrong nodes: rename the subset, or use patch"
		if !equality.Semantic.DeepEqual(s.NodeSelectorTerm, before.NodeSelectorTerm) {
			errs = append(errs, field.Forbidden(at.Child("nodeSelectorTerm"), message))
		}
		if !equality.Semantic.DeepEqual(s.Tolerations, before.Tolerations) {
			errs = append(errs, field.Forbidden(at.Child("tolerations"), message))
		}
	}

	return append(errs, validateTemplateUpdate(updated, old, rules, path.Child("template"))...)
}
