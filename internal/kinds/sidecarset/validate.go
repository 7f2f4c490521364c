package sidecarset

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
)

// Environment is what a SidecarSet is judged against.
type Environment struct {
	// NativeSidecars says that the server knows init containers with restartPolicy Always (SS-257);
	// NativeInPlace that they may be upgraded (SS-W01).
	NativeSidecars, NativeInPlace bool
	// Others are all SidecarSets of the cluster; the judged one may be among them.
	Others []*appsv1beta1.SidecarSet
	// FindRevision says why there is no such revision, nil if there is one (SS-042). An ErrUnknown says that
	// this cannot be told.
	FindRevision func(*appsv1beta1.SidecarSetInjectRevision) error
	// WhiteList judges spec.patchPodMetadata (SS-160).
	WhiteList func(*appsv1beta1.SidecarSet) field.ErrorList
}

// ErrUnknown is an answer that says nothing of a SidecarSet: it may be right.
var ErrUnknown = errors.New("the API server did not say")

// Verdict is what is wrong with a SidecarSet.
type Verdict struct {
	Errors field.ErrorList
	// Warnings are about what is wrong and was so before an update (SS-052).
	Warnings []string
}

// problems collects errors.
type problems struct{ errs field.ErrorList }

func (p *problems) add(errs ...*field.Error) { p.errs = append(p.errs, errs...) }

// Validate judges a new SidecarSet, or the update of old (SS-030 to SS-070). Containers and volumes
// themselves are the API server's to judge (SS-034).
func Validate(set, old *appsv1beta1.SidecarSet, env Environment) Verdict {
	var verdict Verdict
	var before field.ErrorList
	if old != nil {
		before = judge(old, env).errs
		// a key that is not allowed any more gets no other value
		if equality.Semantic.DeepEqual(old.Spec.PatchPodMetadata, set.Spec.PatchPodMetadata) {
			before = append(before, env.whiteList(old)...)
		}
		verdict.Errors = validateChange(set, old)
	}
	verdict.Errors = append(verdict.Errors, validateRevision(set, old, env)...)
	if old != nil {
		before = append(before, Conflicts(old, env.Others)...)
	}
	verdict.add(slices.Concat(judge(set, env).errs, env.whiteList(set), Conflicts(set, env.Others)), before)
	return verdict
}

// add refuses for errors, and warns of those that were there before.
func (v *Verdict) add(errs, before field.ErrorList) {
	known := map[string]bool{}
	for _, err := range before {
		known[likeness(err)] = true
	}
	for _, err := range errs {
		if known[likeness(err)] {
			v.Warnings = append(v.Warnings, err.Error()+" (it was so before)")
		} else {
			v.Errors = append(v.Errors, err)
		}
	}
}

func (e *Environment) whiteList(set *appsv1beta1.SidecarSet) field.ErrorList {
	if e.WhiteList == nil {
		return nil
	}
	return e.WhiteList(set)
}

var indexes = regexp.MustCompile(`\[\d+\]`)

// likeness is the same for the same error in another place of a list.
func likeness(err *field.Error) string {
	return indexes.ReplaceAllString(err.Field, "[]") + ": " + err.ErrorBody()
}

var nameForm = regexp.MustCompile(`^[a-zA-Z0-9-]+$`)

// judge looks at one SidecarSet alone.
func judge(set *appsv1beta1.SidecarSet, env Environment) *problems {
	p, spec, path := &problems{}, &set.Spec, field.NewPath("spec")
	if !nameForm.MatchString(set.Name) || len(set.Name) > validation.DNS1035LabelMaxLength {
		p.add(field.Invalid(field.NewPath("metadata", "name"), set.Name,
			fmt.Sprintf("must consist of letters, digits and '-', and be no longer than %d characters",
				validation.DNS1035LabelMaxLength)))
	}
	if spec.Selector == nil {
		p.add(field.Required(path.Child("selector"),
			"no selector defined for SidecarSet: say by their labels which pods get its containers"))
	} else {
		p.add(validateSelector(spec.Selector, path.Child("selector"))...)
	}
	if spec.NamespaceSelector != nil {
		p.add(validateSelector(spec.NamespaceSelector, path.Child("namespaceSelector"))...)
	}
	if len(spec.Containers)+len(spec.InitContainers) == 0 {
		p.add(field.Required(path.Child("containers"),
			"no initContainer or container defined for SidecarSet: there is nothing to add to pods"))
	}
	p.validateContainers(spec, env, path)
	p.validateUpdateStrategy(&spec.UpdateStrategy, path.Child("updateStrategy"))
	if spec.UpdateStrategy.Type == appsv1beta1.RollingUpdateSidecarSetStrategyType &&
		len(nativeSidecars(spec)) > 0 && !env.NativeInPlace {
		p.add(field.Invalid(path.Child("updateStrategy"), spec.UpdateStrategy.Type,
			"The initContainer in-place upgrade is not currently supported. Native sidecars are upgraded in running pods from Kubernetes 1.29 on, with gate SidecarSetInPlaceUpdateNativeSidecar; here updateStrategy.type must be NotUpdate"))
	}
	p.validateMetadata(spec.PatchPodMetadata, path.Child("patchPodMetadata"))
	if spec.CustomVersion != "" {
		for _, text := range validation.IsValidLabelValue(spec.CustomVersion) {
			p.add(field.Invalid(path.Child("customVersion"), spec.CustomVersion, text))
		}
	}
	if limit := spec.RevisionHistoryLimit; limit != nil && *limit < 0 { // SS-D25
		p.add(field.Invalid(path.Child("revisionHistoryLimit"), *limit, "must not be negative"))
	}
	p.add(validateCanary(set, env.Others)...)
	return p
}

func validateSelector(selector *metav1.LabelSelector, path *field.Path) field.ErrorList {
	errs := metav1validation.ValidateLabelSelector(selector,
		metav1validation.LabelSelectorValidationOptions{}, path)
	if len(selector.MatchLabels)+len(selector.MatchExpressions) == 0 {
		errs = append(errs, field.Invalid(path, selector,
			"empty selector is not valid for sidecarset. It would match everything: name at least one label"))
	}
	return errs
}

// validateUpdateStrategy is SS-037 to SS-039.
func (p *problems) validateUpdateStrategy(strategy *appsv1beta1.SidecarSetUpdateStrategy, path *field.Path) {
	switch strategy.Type {
	case appsv1beta1.NotUpdateSidecarSetStrategyType:
		return
	case appsv1beta1.RollingUpdateSidecarSetStrategyType:
	default:
		p.add(field.NotSupported(path.Child("type"), strategy.Type,
			[]appsv1beta1.SidecarSetUpdateStrategyType{appsv1beta1.NotUpdateSidecarSetStrategyType,
				appsv1beta1.RollingUpdateSidecarSetStrategyType}))
	}
	if strategy.Selector != nil {
		p.add(validateSelector(strategy.Selector, path.Child("selector"))...)
		if partition := strategy.Partition; partition != nil &&
			(partition.Type == intstr.String || partition.IntVal != 0) {
			p.add(field.Invalid(path, "(both)",
				"Partition and Selector cannot be used together: a selector says which pods are updated, a partition how many are not; remove one"))
		}
	}

	for name, value := range map[string]*intstr.IntOrString{"partition": strategy.Partition,
		"maxUnavailable": strategy.MaxUnavailable} {
		if value != nil && !isShare(*value) {
			p.add(field.Invalid(path.Child(name), value.String(),
				"must be a non-negative integer or a percentage such as 30%"))
		}
	}

	if priority := strategy.PriorityStrategy; priority != nil {
		p.validatePriority(priority, path.Child("priorityStrategy"))
	}
	seen := map[pub.UpdateScatterTerm]bool{}
	for i, term := range strategy.ScatterStrategy {
		at := path.Child("scatterStrategy").Index(i)
		if term.Key == "" {
			p.add(field.Required(at.Child("key"), "must not be empty"))
		}
		if seen[term] {
			p.add(field.Duplicate(at, term))
		}
		seen[term] = true
	}
}

var percentage = regexp.MustCompile(`^[0-9]+%$`)

func isShare(value intstr.IntOrString) bool {
	return value.Type == intstr.Int && value.IntVal >= 0 ||
		value.Type == intstr.String && percentage.MatchString(value.StrVal)
}

func (p *problems) validatePriority(priority *pub.UpdatePriorityStrategy, path *field.Path) {
	if len(priority.WeightPriority) > 0 && len(priority.OrderPriority) > 0 {
		p.add(field.Invalid(path, "(both)", "only one of weightPriority and orderPriority can be used"))
	}

	for i := range priority.WeightPriority {
		term, at := &priority.WeightPriority[i], path.Child("weightPriority").Index(i)
		if term.Weight < 0 || term.Weight > 100 {
			p.add(field.Invalid(at.Child("weight"), term.Weight, "must be between 0 and 100"))
		}
		p.add(validateSelector(&term.MatchSelector, at.Child("matchSelector"))...)
	}

	for i := range priority.OrderPriority {
		if priority.OrderPriority[i].OrderedKey == "" {
			p.add(field.Required(path.Child("orderPriority").Index(i).Child("orderedKey"),
				"must not be empty"))
		}
	}
}

// validateMetadata is SS-044 and SS-045; which keys are allowed the white list says.
func (p *problems) validateMetadata(patches []appsv1beta1.SidecarSetPatchPodMetadata, path *field.Path) {
	seen := map[string]bool{}
	for i := range patches {
		patch, at := &patches[i], path.Index(i)
		if len(patch.Annotations) == 0 {
			p.add(field.Required(at.Child("annotations"), "no annotations defined for SidecarSet"))
		}
		p.add(apivalidation.ValidateAnnotations(patch.Annotations, at.Child("annotations"))...)
		switch patch.PatchPolicy {
		case "":
			p.add(field.Required(at.Child("patchPolicy"), "must not be empty"))
		case appsv1beta1.SidecarSetRetainPatchPolicy, appsv1beta1.SidecarSetOverwritePatchPolicy,
			appsv1beta1.SidecarSetMergePatchJSONPatchPolicy:
		default:
			p.add(field.NotSupported(at.Child("patchPolicy"), patch.PatchPolicy,
				[]appsv1beta1.SidecarSetPatchPolicyType{
					appsv1beta1.SidecarSetRetainPatchPolicy, appsv1beta1.SidecarSetOverwritePatchPolicy,
					appsv1beta1.SidecarSetMergePatchJSONPatchPolicy}))
		}
		for key, value := range patch.Annotations {
			if seen[key] {
				p.add(field.Invalid(at.Child("annotations").Key(key), value,
					fmt.Sprintf(
						"patch annotation[%s] already exist in another entry of patchPodMetadata: set it once",
						key)))
			}
			seen[key] = true
			if patch.PatchPolicy == appsv1beta1.SidecarSetMergePatchJSONPatchPolicy && !isObject(value) {
				p.add(field.Invalid(at.Child("annotations").Key(key), value,
					"must be a JSON object under patchPolicy MergePatchJson"))
			}
		}
	}
}

// validateRevision is SS-041 to SS-043 and SS-D22.
func validateRevision(set, old *appsv1beta1.SidecarSet, env Environment) field.ErrorList {
	revision, path := set.Spec.InjectionStrategy.Revision,
		field.NewPath("spec", "injectionStrategy", "revision")
	if revision == nil {
		return nil
	}

	var errs field.ErrorList
	switch revision.Policy {
	case "", appsv1beta1.AlwaysSidecarSetInjectRevisionPolicy,
		appsv1beta1.PartialSidecarSetInjectRevisionPolicy:
	default:
		errs = append(errs, field.Invalid(path, revision,
			fmt.Sprintf("Invalid policy %s, supported: [Always, Partial]", revision.Policy)))
	}
	name, version := value(revision.RevisionName), value(revision.CustomVersion)
	if name == "" && version == "" {
		return append(errs, field.Invalid(path, revision,
			"revisionName and customVersion cannot be empty simultaneously: one of them says which revision new pods get"))
	}

	switch before := formerRevision(old); {
	case before != nil && value(before.RevisionName) == name && value(before.CustomVersion) == version:
		return errs // a revision that has gone does not block other changes
	case old == nil && name == "" && version == set.Spec.CustomVersion:
		return errs // it is the revision that is about to be
	}
	if env.FindRevision != nil {
		if err := env.FindRevision(revision); errors.Is(err, ErrUnknown) {
			errs = append(errs, field.InternalError(path, err))
		} else if err != nil {
			errs = append(errs, field.Invalid(path, revision,
				fmt.Sprintf("Cannot find specific ControllerRevision, err: %v", err)))
		}
	}

	return errs
}

func formerRevision(old *appsv1beta1.SidecarSet) *appsv1beta1.SidecarSetInjectRevision {
	if old == nil {
		return nil
	}
	return old.Spec.InjectionStrategy.Revision
}

func value(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// validateChange is SS-055, SS-056 and what SS-070 says of updates.
func validateChange(set, old *appsv1beta1.SidecarSet) field.ErrorList {
	var errs field.ErrorList
	before := map[string]appsv1beta1.SidecarContainerUpgradeType{}
	for i := range old.Spec.Containers {
		before[old.Spec.Containers[i].Name] = old.Spec.Containers[i].UpgradeStrategy.UpgradeType
	}

	path := field.NewPath("spec", "containers")
	for i := range set.Spec.Containers {
		c := &set.Spec.Containers[i]
		kind, ok := before[c.Name]
		switch {
		case !ok:
			errs = append(errs, field.Invalid(path.Index(i).Child("name"), c.Name,
				fmt.Sprintf(
					"container %s is not found: regular containers cannot be added or renamed, since running pods have none of that name; make another SidecarSet for it",
					c.Name)))
		case kind != "" && kind != c.UpgradeStrategy.UpgradeType:
			errs = append(errs, field.Invalid(path.Index(i).Child("upgradeStrategy", "upgradeType"),
				c.UpgradeStrategy.UpgradeType,
				fmt.Sprintf("container %s upgradeType is immutable: it is %s", c.Name, kind)))
		}
	}

	if base := pub.SidecarSetBase; set.Annotations[base] != old.Annotations[base] {
		errs = append(errs, field.Invalid(field.NewPath("metadata"), set.Annotations[base],
			fmt.Sprintf("annotations[%s] is immutable: it must stay %q; make another SidecarSet", base,
				old.Annotations[base])))
	}

	return errs
}

// CanaryOf returns the name of the SidecarSet that this one is a canary of, empty if it is none (SS-070).
func CanaryOf(set *appsv1beta1.SidecarSet) string {
	if set.Annotations[pub.SidecarSetCanary] != "true" {
		return ""
	}
	return set.Annotations[pub.SidecarSetBase]
}

// validateCanary is SS-070.
func validateCanary(set *appsv1beta1.SidecarSet, others []*appsv1beta1.SidecarSet) field.ErrorList {
	name, path := CanaryOf(set), field.NewPath("metadata")
	if name == "" {
		return nil
	}

	var errs field.ErrorList
	refuse := func(text string) { errs = append(errs, field.Invalid(path, name, text)) }
	if set.Spec.UpdateStrategy.Type != appsv1beta1.NotUpdateSidecarSetStrategyType {
		refuse(
			"RollingUpdate is not supported for canary sidecarSet: spec.updateStrategy.type must be NotUpdate")
	}
	if name == set.Name {
		refuse(fmt.Sprintf("base sidecarSet cannot be itself: annotation %s must name another",
			pub.SidecarSetBase))
		return errs
	}

	for _, other := range others {
		if other.Name != name {
			continue
		}
		if CanaryOf(other) != "" {
			refuse(fmt.Sprintf("base sidecarSet cannot be canary: %s is one", name))
		}
		return errs
	}

	refuse(fmt.Sprintf("fetch base sidecarSet[%s] failed: it does not exist; annotation %s names it", name,
		pub.SidecarSetBase))
	return errs
}

func isObject(text string) bool {
	return strings.HasPrefix(strings.TrimSpace(text), "{") && json.Valid([]byte(text))
}
