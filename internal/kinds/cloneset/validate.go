package cloneset

import (
	"fmt"
	"math"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/fieldcheck"
	"github.com/afloat-project/afloat/internal/engine/inplace"
	"github.com/afloat-project/afloat/internal/engine/rollout"
)

// maxNameLength leaves room for "-<id>" in pod names. Revision labels have no part in it: long names are
// labelled by the short hash.
const maxNameLength = 253 - 6

// mutableFields are the members of spec that an update may change.
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

// Validate checks a CloneSet to be created, or with an old one, to be updated (CS-020 to CS-035). What the
// API server has to say on the pod template comes on top, see internal/admission. All errors are returned.
//
// An update is not refused for what the stored object has got already: objects that an older release let in
// can still be scaled, mended step by step, and deleted.
func Validate(updated, old *Written, qualifies inplace.Options) field.ErrorList {
	errs := validate(updated)
	if old == nil {
		return append(errs, validateName(updated.set.Name)...)
	}
	errs = fieldcheck.Fresh(errs, validate(old))
	return append(errs, validateUpdate(updated.set, old.set, qualifies)...)
}

func validateName(name string) field.ErrorList {
	path := field.NewPath("metadata", "name")
	var errs field.ErrorList
	if name == "" {
		return nil // to be generated
	}

	for _, message := range validation.NameIsDNSSubdomain(name, false) {
		errs = append(errs, field.Invalid(path, name, message))
	}

	if len(name) > maxNameLength {
		errs = append(errs, field.Invalid(path, name,
			fmt.Sprintf("must be no more than %d characters, so that pods can be named after it",
				maxNameLength)))
	}

	return errs
}

func validateUpdate(updated, old *appsv1beta1.CloneSet, qualifies inplace.Options) field.ErrorList {
	path := field.NewPath("spec")
	var errs field.ErrorList
	if !equality.Semantic.DeepEqual(updated.Spec.Selector, old.Spec.Selector) {
		errs = append(errs, field.Forbidden(path,
			"updates to cloneset spec for fields other than "+mutableFields+" are forbidden; selector was changed"))
	}
	rolling := updated.Spec.UpdateStrategy.RollingUpdate
	if rolling == nil || rolling.PodUpdatePolicy != appsv1beta1.InPlaceOnlyCloneSetPodUpdatePolicy {
		return errs
	}
	return append(errs, fieldcheck.InPlaceOnly(&updated.Spec.Template, &old.Spec.Template,
		qualifies, path)...)
}

func validate(w *Written) field.ErrorList {
	spec, path := &w.set.Spec, field.NewPath("spec")
	errs := fieldcheck.NotNegative(spec.Replicas, path.Child("replicas"))
	errs = append(errs, fieldcheck.Template(Kind, &spec.Template, spec.Selector, path)...)
	errs = append(errs, validateClaims(w.set.Name, spec, path)...)
	errs = append(errs, validateScale(&spec.ScaleStrategy, path.Child("scaleStrategy"))...)
	errs = append(errs, w.validateStrategy(path.Child("updateStrategy"))...)
	errs = append(errs, fieldcheck.NotNegative(&spec.MinReadySeconds, path.Child("minReadySeconds"))...)
	errs = append(errs, fieldcheck.NotNegative(spec.RevisionHistoryLimit,
		path.Child("revisionHistoryLimit"))...)
	if deadline, at := spec.ProgressDeadlineSeconds, path.Child("progressDeadlineSeconds"); deadline != nil {
		errs = append(errs, fieldcheck.NotNegative(deadline, at)...)
		if *deadline >= 0 && *deadline != math.MaxInt32 && *deadline <= spec.MinReadySeconds {
			errs = append(errs, field.Invalid(at, *deadline,
				fmt.Sprintf("must be greater than minReadySeconds (%d): no pod could be available in time",
					spec.MinReadySeconds)))
		}
	}

	return errs
}

// validateClaims checks the names of claim templates: they are those of volumes, too.
func validateClaims(set string, spec *appsv1beta1.CloneSetSpec, path *field.Path) field.ErrorList {
	var taken []string
	for _, volume := range spec.Template.Spec.Volumes {
		taken = append(taken, volume.Name)
	}
	return fieldcheck.Claims(spec.VolumeClaimTemplates, taken, maxNameLength-len("-")-len(set),
		path.Child("volumeClaimTemplates"))
}

func validateScale(scale *appsv1beta1.CloneSetScaleStrategy, path *field.Path) field.ErrorList {
	errs := fieldcheck.Amount(scale.MaxUnavailable, path.Child("maxUnavailable"))
	seen := map[string]bool{}
	for i, name := range scale.PodsToDelete {
		if seen[name] {
			errs = append(errs, field.Invalid(path.Child("podsToDelete").Index(i), name,
				"pod is named more than once: name it once"))
		}
		seen[name] = true
	}
	return errs
}

// validateStrategy checks type and policy in the fields of the version written, and the rest, which differs
// only in its place.
func (w *Written) validateStrategy(path *field.Path) field.ErrorList {
	strategy, rolling := &w.set.Spec.UpdateStrategy, w.set.Spec.UpdateStrategy.RollingUpdate
	var errs field.ErrorList
	if w.alpha != nil {
		switch kind := w.alpha.Spec.UpdateStrategy.Type; kind {
		case "", appsv1alpha1.RecreateCloneSetUpdateStrategyType,
			appsv1alpha1.InPlaceIfPossibleCloneSetUpdateStrategyType,
			appsv1alpha1.InPlaceOnlyCloneSetUpdateStrategyType,
			appsv1alpha1.OnDeleteCloneSetUpdateStrategyType:
		default:
			errs = append(errs, field.Invalid(path.Child("type"), kind,
				"must be ReCreate, InPlaceIfPossible, InPlaceOnly or OnDelete"))
		}
	} else {
		switch kind := strategy.Type; kind {
		case "", appsv1beta1.RollingUpdateCloneSetUpdateStrategyType,
			appsv1beta1.OnDeleteCloneSetUpdateStrategyType:
		default:
			errs = append(errs, field.Invalid(path.Child("type"), kind, "must be RollingUpdate or OnDelete"))
		}
		path = path.Child("rollingUpdate")
		if rolling != nil {
			switch policy := rolling.PodUpdatePolicy; policy {
			case "", appsv1beta1.ReCreateCloneSetPodUpdatePolicy,
				appsv1beta1.InPlaceIfPossibleCloneSetPodUpdatePolicy,
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

	errs = append(errs, fieldcheck.Amount(rolling.Partition, path.Child("partition"))...)
	pace := append(fieldcheck.Amount(rolling.MaxUnavailable, path.Child("maxUnavailable")),
		fieldcheck.Amount(rolling.MaxSurge, path.Child("maxSurge"))...)
	errs = append(errs, pace...)
	if len(pace) == 0 {
		errs = append(errs, validatePace(w.set.Spec.Replicas, rolling, path)...)
	}
	errs = append(errs, fieldcheck.Priority(rolling.PriorityStrategy, path.Child("priorityStrategy"))...)
	errs = append(errs, validateScatter(rolling.ScatterStrategy, path.Child("scatterStrategy"))...)
	inPlace := rolling.InPlaceUpdateStrategy
	if w.alpha != nil {
		// Annotations that conversion made into fields have no rules in v1alpha1.
		inPlace = w.alpha.Spec.UpdateStrategy.InPlaceUpdateStrategy
	}

	return append(errs, fieldcheck.InPlace(inPlace, path.Child("inPlaceUpdateStrategy"))...)
}

// validatePace checks that an update can move at all and that surge has a use.
func validatePace(
	replicas *int32, rolling *appsv1beta1.RollingUpdateCloneSetStrategy, path *field.Path,
) field.ErrorList {
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
	if any, _ := rollout.Scaled(surge, 100, true); any > 0 &&
		rolling.PodUpdatePolicy == appsv1beta1.InPlaceOnlyCloneSetPodUpdatePolicy {
		errs = append(errs, field.Invalid(path.Child("maxSurge"), surge.String(),
			"must be 0 under InPlaceOnly, which never creates pods for an update"))
	}

	return errs
}

func validateScatter(terms []pub.UpdateScatterTerm, path *field.Path) field.ErrorList { // CS-028
	errs := fieldcheck.FewTerms(len(terms), path)
	seen := map[pub.UpdateScatterTerm]bool{}
	for i, term := range terms {
		if term.Key == "" {
			errs = append(errs, field.Required(path.Index(i).Child("key"),
				"it is the label by which pods are spread over the update"))
		}
		if seen[term] {
			errs = append(errs, field.Duplicate(path.Index(i), term.Key+"="+term.Value))
		}
		seen[term] = true
	}

	return errs
}

// looked is how many names of podsToDelete are looked up while their writer waits.
const looked = 50

// PodsToDeleteWarnings tells of names newly put into podsToDelete that name no pod to be deleted (CS-344), of
// the first of a long list. lookup returns the pod, or nil if there is none.
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
			return append(warnings,
				fmt.Sprintf(
					"spec.scaleStrategy.podsToDelete: only the first %d names that are new were looked up",
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
			warnings = append(warnings,
				fmt.Sprintf("spec.scaleStrategy.podsToDelete[%d]: %q is ignored: %s", i, name, reason))
		}
	}

	return warnings
}
