package cloneset

import (
	"fmt"
	"math"
	"regexp"
	"strings"

	"github.com/distribution/reference"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/inplace"
	"github.com/afloat-project/afloat/internal/engine/rollout"
)

// maxNameLength leaves room for "-<id>" in pod names (CS-040). Revision labels have no part in it: long names are labelled by the
// short hash (CS-052).
const maxNameLength = 253 - 6

// mutableFields are the members of spec that an update may change (CS-032).
const mutableFields = "'replicas', 'template', 'lifecycle', 'scaleStrategy', 'updateStrategy', 'minReadySeconds', " +
	"'progressDeadlineSeconds', 'volumeClaimTemplates' and 'revisionHistoryLimit'"

// Written is a CloneSet in the version in which its author wrote it. Errors name the fields of that version.
type Written struct {
	set   *appsv1beta1.CloneSet
	alpha *appsv1alpha1.CloneSet
}

// WrittenInV1beta1 wraps a CloneSet written in v1beta1.
func WrittenInV1beta1(set *appsv1beta1.CloneSet) *Written { return &Written{set: set} }

// WrittenInV1alpha1 wraps a CloneSet written in v1alpha1.
func WrittenInV1alpha1(set *appsv1alpha1.CloneSet) *Written {
	return &Written{set: set.ToV1beta1(), alpha: set}
}

// CloneSet returns the object in the storage version.
func (w *Written) CloneSet() *appsv1beta1.CloneSet { return w.set }

// Validate checks a CloneSet to be created, or with an old one, to be updated (CS-020 to CS-035). What the API server has to say on
// the pod template comes on top, see internal/admission. All errors are returned.
//
// An update is not refused for what the stored object has got already: objects that an older release let in can still be scaled,
// mended step by step, and deleted.
func Validate(updated, old *Written, qualifies inplace.Options) field.ErrorList {
	errs := validate(updated)
	if old == nil {
		return append(errs, validateName(updated.set.Name)...)
	}
	errs = newErrors(errs, validate(old))
	return append(errs, validateUpdate(updated.set, old.set, qualifies)...)
}

var indexes = regexp.MustCompile(`\[\d+\]`)

// newErrors are the errors that were none before. Where in a list an item is does not matter, since others may have come before it;
// how often it is wrong does.
func newErrors(errs, before field.ErrorList) field.ErrorList {
	likeness := func(err *field.Error) string {
		return indexes.ReplaceAllString(err.Field, "[]") + ": " + err.ErrorBody()
	}
	known := map[string]int{}
	for _, err := range before {
		known[likeness(err)]++
	}
	var fresh field.ErrorList
	for _, err := range errs {
		if known[likeness(err)]--; known[likeness(err)] < 0 {
			fresh = append(fresh, err)
		}
	}
	return fresh
}

func validateName(name string) field.ErrorList {
	path := field.NewPath("metadata", "name")
	var errs field.ErrorList
	if name == "" {
		return nil // to be generated
	}
	for _, message := range validation.NameIsDNSSubdomain(name, false) {
		errs = append(errs, field.Invalid(path, name, message)) // CS-020
	}
	if len(name) > maxNameLength {
		errs = append(errs, field.Invalid(path, name,
			fmt.Sprintf("must be no more than %d characters, so that pods can be named after it", maxNameLength)))
	}
	return errs
}

func validateUpdate(updated, old *appsv1beta1.CloneSet, qualifies inplace.Options) field.ErrorList {
	path := field.NewPath("spec")
	var errs field.ErrorList
	if !equality.Semantic.DeepEqual(updated.Spec.Selector, old.Spec.Selector) {
		// CS-032
		errs = append(errs, field.Forbidden(path, "updates to cloneset spec for fields other than "+mutableFields+" are forbidden; selector was changed"))
	}
	rolling := updated.Spec.UpdateStrategy.RollingUpdate
	if rolling == nil || rolling.PodUpdatePolicy != appsv1beta1.InPlaceOnlyCloneSetPodUpdatePolicy ||
		updated.Spec.Template.DecodeError() != nil || updated.Spec.Template.Equal(old.Spec.Template) {
		return errs
	}
	// CS-033: exactly what the engine would refuse later (IPU-030 ff).
	_, blockers, err := inplace.Compare(old.Spec.Template.Raw(), updated.Spec.Template.Raw(), qualifies)
	if err != nil {
		return append(errs, field.Forbidden(path, fmt.Sprintf("under InPlaceOnly the template may change only if the change can be applied in place: %v", err)))
	}
	for _, blocker := range blockers {
		errs = append(errs, field.Forbidden(path,
			fmt.Sprintf("under InPlaceOnly the template may not be changed at %s: %s", blocker.Path, blocker.Rule)))
	}
	return errs
}

func validate(w *Written) field.ErrorList {
	spec, path := &w.set.Spec, field.NewPath("spec")
	errs := notNegative(spec.Replicas, path.Child("replicas")) // CS-020
	errs = append(errs, validateTemplate(spec, path)...)
	errs = append(errs, validateClaims(w.set.Name, spec, path)...)
	errs = append(errs, validateScale(&spec.ScaleStrategy, path.Child("scaleStrategy"))...)
	errs = append(errs, w.validateStrategy(path.Child("updateStrategy"))...)
	errs = append(errs, notNegative(&spec.MinReadySeconds, path.Child("minReadySeconds"))...)          // CS-035, CS-347
	errs = append(errs, notNegative(spec.RevisionHistoryLimit, path.Child("revisionHistoryLimit"))...) // CS-035, CS-347
	if deadline, at := spec.ProgressDeadlineSeconds, path.Child("progressDeadlineSeconds"); deadline != nil {
		errs = append(errs, notNegative(deadline, at)...) // CS-030
		if *deadline >= 0 && *deadline != math.MaxInt32 && *deadline <= spec.MinReadySeconds {
			errs = append(errs, field.Invalid(at, *deadline,
				fmt.Sprintf("must be greater than minReadySeconds (%d): no pod could be available in time", spec.MinReadySeconds)))
		}
	}
	return errs
}

// validateTemplate checks the selector and what a CloneSet demands of its template beyond a valid pod template (CS-021, CS-023).
func validateTemplate(spec *appsv1beta1.CloneSetSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	at, template := path.Child("template"), &spec.Template
	decodeErr := template.DecodeError()
	switch {
	case decodeErr != nil:
		errs = append(errs, field.Invalid(at, "(not shown)", decodeErr.Error()))
	case template.IsZero():
		errs = append(errs, field.Required(at, "it says what the pods are like"))
	}
	pod := at.Child("spec")
	if policy := template.Spec.RestartPolicy; policy != "" && policy != corev1.RestartPolicyAlways {
		errs = append(errs, field.NotSupported(pod.Child("restartPolicy"), policy, []corev1.RestartPolicy{corev1.RestartPolicyAlways}))
	}
	if template.Spec.ActiveDeadlineSeconds != nil {
		errs = append(errs, field.Forbidden(pod.Child("activeDeadlineSeconds"),
			"activeDeadlineSeconds in CloneSet is not supported: its pods do not end; remove it"))
	}
	errs = append(errs, validateImages(template.Spec.InitContainers, pod.Child("initContainers"))...)
	errs = append(errs, validateImages(template.Spec.Containers, pod.Child("containers"))...)

	at = path.Child("selector")
	if spec.Selector == nil {
		return append(errs, field.Required(at, "it says by labels which pods are those of the CloneSet, and must match those of the template"))
	}
	if len(spec.Selector.MatchLabels)+len(spec.Selector.MatchExpressions) == 0 {
		return append(errs, field.Invalid(at, spec.Selector,
			"an empty selector is invalid for a CloneSet: it would match every pod; name at least one label of the template"))
	}
	malformed := metavalidation.ValidateLabelSelector(spec.Selector, metavalidation.LabelSelectorValidationOptions{}, at)
	selector, err := metav1.LabelSelectorAsSelector(spec.Selector)
	if err != nil && len(malformed) == 0 {
		malformed = field.ErrorList{field.Invalid(at, spec.Selector, err.Error())}
	}
	if len(malformed) > 0 {
		return append(errs, malformed...)
	}
	if decodeErr == nil && !selector.Matches(labels.Set(template.Labels)) {
		errs = append(errs, field.Invalid(path.Child("template", "metadata", "labels"), template.Labels,
			"selector does not match template labels: they must have what spec.selector asks for"))
	}
	return errs
}

// validateImages checks that kubelet can read the images' names; the API server lets any text through, and the pods would never
// start. A missing one is the API server's to refuse.
func validateImages(containers []corev1.Container, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range containers {
		image := containers[i].Image
		if image == "" {
			continue
		}
		if _, err := reference.ParseNormalizedNamed(image); err != nil {
			errs = append(errs, field.Invalid(path.Index(i).Child("image"), image, "is no image reference: "+err.Error()))
		}
	}
	return errs
}

// validateClaims checks the names of claim templates (CS-022, CS-035). The API server checks that they are valid volume names.
func validateClaims(set string, spec *appsv1beta1.CloneSetSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	path = path.Child("volumeClaimTemplates")
	if err := spec.VolumeClaimTemplates.DecodeError(); err != nil {
		return append(errs, field.Invalid(path, "(not shown)", err.Error()))
	}
	seen := map[string]bool{}
	for _, volume := range spec.Template.Spec.Volumes {
		seen[volume.Name] = true
	}
	for i := range spec.VolumeClaimTemplates {
		name, at := spec.VolumeClaimTemplates[i].Name, path.Index(i).Child("metadata", "name")
		switch {
		case name == "":
			errs = append(errs, field.Required(at, "a claim template is known by its name"))
		case seen[name]:
			errs = append(errs, field.Duplicate(at, name))
		case len(name)+len("-")+len(set) > maxNameLength:
			errs = append(errs, field.Invalid(at, name,
				fmt.Sprintf("must be no more than %d characters, so that claims can be named after it and the CloneSet",
					max(maxNameLength-len("-")-len(set), 0))))
		}
		seen[name] = true
	}
	return errs
}

func validateScale(scale *appsv1beta1.CloneSetScaleStrategy, path *field.Path) field.ErrorList {
	errs := validateAmount(scale.MaxUnavailable, path.Child("maxUnavailable")) // CS-035
	seen := map[string]bool{}
	for i, name := range scale.PodsToDelete {
		if seen[name] {
			// CS-029
			errs = append(errs, field.Invalid(path.Child("podsToDelete").Index(i), name, "pod is named more than once: name it once"))
		}
		seen[name] = true
	}
	return errs
}

// validateStrategy checks type and policy in the fields of the version written, and the rest, which differs only in its place.
func (w *Written) validateStrategy(path *field.Path) field.ErrorList {
	strategy, rolling := &w.set.Spec.UpdateStrategy, w.set.Spec.UpdateStrategy.RollingUpdate
	var errs field.ErrorList
	if w.alpha != nil {
		switch kind := w.alpha.Spec.UpdateStrategy.Type; kind {
		case "", appsv1alpha1.RecreateCloneSetUpdateStrategyType, appsv1alpha1.InPlaceIfPossibleCloneSetUpdateStrategyType,
			appsv1alpha1.InPlaceOnlyCloneSetUpdateStrategyType, appsv1alpha1.OnDeleteCloneSetUpdateStrategyType: // CS-343
		default:
			errs = append(errs, field.Invalid(path.Child("type"), kind, "must be ReCreate, InPlaceIfPossible, InPlaceOnly or OnDelete"))
		}
	} else {
		switch kind := strategy.Type; kind {
		case "", appsv1beta1.RollingUpdateCloneSetUpdateStrategyType, appsv1beta1.OnDeleteCloneSetUpdateStrategyType:
		default:
			errs = append(errs, field.Invalid(path.Child("type"), kind, "must be RollingUpdate or OnDelete"))
		}
		path = path.Child("rollingUpdate")
		if rolling != nil {
			switch policy := rolling.PodUpdatePolicy; policy {
			case "", appsv1beta1.ReCreateCloneSetPodUpdatePolicy, appsv1beta1.InPlaceIfPossibleCloneSetPodUpdatePolicy,
				appsv1beta1.InPlaceOnlyCloneSetPodUpdatePolicy:
			default:
				errs = append(errs, field.Invalid(path.Child("podUpdatePolicy"), policy,
					"must be ReCreate, InPlaceIfPossible or InPlaceOnly"))
			}
		}
	}
	if rolling == nil {
		return errs
	}
	errs = append(errs, validateAmount(rolling.Partition, path.Child("partition"))...) // CS-025
	pace := append(validateAmount(rolling.MaxUnavailable, path.Child("maxUnavailable")),
		validateAmount(rolling.MaxSurge, path.Child("maxSurge"))...)
	errs = append(errs, pace...)
	if len(pace) == 0 {
		errs = append(errs, validatePace(w.set.Spec.Replicas, rolling, path)...)
	}
	errs = append(errs, validatePriority(rolling.PriorityStrategy, path.Child("priorityStrategy"))...)
	errs = append(errs, validateScatter(rolling.ScatterStrategy, path.Child("scatterStrategy"))...)
	inPlace := rolling.InPlaceUpdateStrategy
	if w.alpha != nil {
		// Annotations that conversion made into fields have no rules in v1alpha1 (CS-031).
		inPlace = w.alpha.Spec.UpdateStrategy.InPlaceUpdateStrategy
	}
	return append(errs, validateInPlace(inPlace, path.Child("inPlaceUpdateStrategy"))...)
}

// validatePace checks that an update can move at all (CS-026, CS-341) and that surge has a use (CS-027).
func validatePace(replicas *int32, rolling *appsv1beta1.RollingUpdateCloneSetStrategy, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	total := 1
	if replicas != nil {
		total = int(*replicas)
	}
	unavailable, surge := intstr.FromString("20%"), intstr.FromInt32(0)
	if rolling.MaxUnavailable != nil {
		unavailable = *rolling.MaxUnavailable
	}
	if rolling.MaxSurge != nil {
		surge = *rolling.MaxSurge
	}
	// Both were checked: no errors. Whether surge is above 0 does not hang on the number of replicas.
	u, _ := rollout.Scaled(unavailable, total, true)
	s, _ := rollout.Scaled(surge, total, true)
	if total > 0 && u < 1 && s < 1 {
		errs = append(errs, field.Invalid(path.Child("maxUnavailable"), unavailable.String(),
			"must not be 0 while maxSurge is 0 too: no pod could ever be updated"))
	}
	if any, _ := rollout.Scaled(surge, 100, true); any > 0 && rolling.PodUpdatePolicy == appsv1beta1.InPlaceOnlyCloneSetPodUpdatePolicy {
		errs = append(errs, field.Invalid(path.Child("maxSurge"), surge.String(),
			"must be 0 under InPlaceOnly, which never creates pods for an update"))
	}
	return errs
}

// validateAmount checks a number or a percentage (CS-025, CS-035).
func validateAmount(value *intstr.IntOrString, path *field.Path) field.ErrorList {
	if value == nil {
		return nil
	}
	if _, err := rollout.Scaled(*value, 100, true); err != nil {
		return field.ErrorList{field.Invalid(path, value.String(), `must be an integer not below 0 or a percentage such as "20%"`)}
	}
	return nil
}

func validatePriority(priority *pub.UpdatePriorityStrategy, path *field.Path) field.ErrorList { // CS-028
	if priority == nil {
		return nil
	}
	var errs field.ErrorList
	if len(priority.WeightPriority) > 0 && len(priority.OrderPriority) > 0 {
		errs = append(errs, field.Invalid(path, "(both)", "only one of weightPriority and orderPriority may be set"))
	}
	errs = append(errs, fewTerms(len(priority.WeightPriority), path.Child("weightPriority"))...)
	errs = append(errs, fewTerms(len(priority.OrderPriority), path.Child("orderPriority"))...)
	for i := range priority.WeightPriority {
		term, at := &priority.WeightPriority[i], path.Child("weightPriority").Index(i)
		if term.Weight < 0 || term.Weight > 100 {
			errs = append(errs, field.Invalid(at.Child("weight"), term.Weight, "must be 0 to 100"))
		}
		selector := at.Child("matchSelector")
		if len(term.MatchSelector.MatchLabels)+len(term.MatchSelector.MatchExpressions) == 0 {
			errs = append(errs, field.Required(selector, "an empty selector would match every pod"))
			continue
		}
		errs = append(errs, metavalidation.ValidateLabelSelector(&term.MatchSelector, metavalidation.LabelSelectorValidationOptions{},
			selector)...)
	}
	for i, term := range priority.OrderPriority {
		if term.OrderedKey == "" {
			errs = append(errs, field.Required(path.Child("orderPriority").Index(i).Child("orderedKey"),
				"it is the label whose value orders the pods"))
		}
	}
	return errs
}

// mostTerms is how many terms an order of update may have: each is applied to all pods in each pass, while other CloneSets wait.
const mostTerms = 200

func fewTerms(n int, path *field.Path) field.ErrorList {
	if n <= mostTerms {
		return nil
	}
	return field.ErrorList{field.TooMany(path, n, mostTerms)}
}

func validateScatter(terms []pub.UpdateScatterTerm, path *field.Path) field.ErrorList { // CS-028
	errs := fewTerms(len(terms), path)
	seen := map[pub.UpdateScatterTerm]bool{}
	for i, term := range terms {
		if term.Key == "" {
			errs = append(errs, field.Required(path.Index(i).Child("key"), "it is the label by which pods are spread over the update"))
		}
		if seen[term] {
			errs = append(errs, field.Duplicate(path.Index(i), term.Key+"="+term.Value))
		}
		seen[term] = true
	}
	return errs
}

func validateInPlace(strategy *pub.InPlaceUpdateStrategy, path *field.Path) field.ErrorList { // CS-031, CS-035, IPU-022
	if strategy == nil {
		return nil
	}
	errs := notNegative(&strategy.GracePeriodSeconds, path.Child("gracePeriodSeconds"))
	errs = append(errs, notNegative(strategy.ImagePreDownloadTimeoutSeconds, path.Child("imagePreDownloadTimeoutSeconds"))...)
	errs = append(errs, notNegative(strategy.ImagePreDownloadMinUpdatedReadyPods, path.Child("imagePreDownloadMinUpdatedReadyPods"))...)
	if value := strategy.ImagePreDownloadParallelism; value != nil {
		number := intstr.Parse(value.String())
		if number.Type != intstr.Int || number.IntVal < 0 || strings.HasPrefix(value.StrVal, "+") {
			errs = append(errs, field.Invalid(path.Child("imagePreDownloadParallelism"), value.String(),
				"must be an integer not below 0; percentages are not possible"))
		}
	}
	return errs
}

func notNegative(value *int32, path *field.Path) field.ErrorList {
	if value == nil || *value >= 0 {
		return nil
	}
	return field.ErrorList{field.Invalid(path, *value, "must be greater than or equal to 0")}
}

// looked is how many names of podsToDelete are looked up while their writer waits.
const looked = 50

// PodsToDeleteWarnings tells of names newly put into podsToDelete that name no pod to be deleted (CS-344), of the first of a long
// list. lookup returns the pod, or nil if there is none.
func PodsToDeleteWarnings(updated, old *appsv1beta1.CloneSet, lookup func(name string) *corev1.Pod) []string {
	known := map[string]bool{}
	if old != nil {
		for _, name := range old.Spec.ScaleStrategy.PodsToDelete {
			known[name] = true
		}
	}
	var warnings []string
	asked := 0
	for i, name := range updated.Spec.ScaleStrategy.PodsToDelete {
		if known[name] {
			continue
		}
		if asked++; asked > looked {
			return append(warnings, fmt.Sprintf("spec.scaleStrategy.podsToDelete: only the first %d names that are new were looked up",
				looked))
		}
		reason := ""
		pod := lookup(name)
		switch {
		case pod == nil:
			reason = "there is no such pod"
		case !metav1.IsControlledBy(pod, updated):
			reason = "the pod does not belong to this CloneSet"
		case pod.DeletionTimestamp != nil:
			reason = "the pod is already being deleted"
		}
		if reason != "" {
			warnings = append(warnings, fmt.Sprintf("spec.scaleStrategy.podsToDelete[%d]: %q is ignored: %s", i, name, reason))
		}
	}
	return warnings
}
