package statefulset

import (
	"fmt"
	"math"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/fieldcheck"
	"github.com/afloat-project/afloat/internal/engine/rollout"
)

const (
	kind = "StatefulSet"
	// mostReserved is how many entries reserveOrdinals may have: each pass reads all of them.
	mostReserved = 10_000
	// longestMinReady is the highest minReadySeconds.
	longestMinReady = 300
	// maxNameLength leaves room for the hash in the label of the revision. Then there is room for any ordinal
	// in the name of a pod, too, which is a label and a host name.
	maxNameLength = 63 - len("-") - 10
	// longestOrdinal is how many digits an ordinal may have.
	longestOrdinal = 10
)

// mutableFields are the members of spec that an update may change.
const mutableFields = "'replicas', 'template', 'updateStrategy', 'scaleStrategy', 'reserveOrdinals', 'ordinals', 'lifecycle', " +
	"'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy', 'volumeClaimTemplates' and 'volumeClaimUpdateStrategy'"

// Written is a StatefulSet in the version in which its author wrote it. Errors name the fields of that
// version.
type Written struct {
	set   *appsv1beta1.StatefulSet
	alpha *appsv1alpha1.StatefulSet
}

// WrittenInV1beta1 wraps a StatefulSet written in v1beta1.
func WrittenInV1beta1(set *appsv1beta1.StatefulSet) *Written { return &Written{set: set} }

// WrittenInV1alpha1 wraps a StatefulSet written in v1alpha1.
func WrittenInV1alpha1(set *appsv1alpha1.StatefulSet) *Written {
	return &Written{set: set.ToV1beta1(), alpha: set}
}

// Validate checks a StatefulSet to be created, or with an old one, to be updated (ASTS-030 to ASTS-056). What
// the API server has to say on the pod template comes on top, see internal/admission. All errors are
// returned. Storage classes are looked up only if sizes of claims change.
//
// An update is not refused for what the stored object has got already: objects that an older release let in
// can still be scaled, mended step by step, and deleted.
func Validate(updated, old *Written, gates Gates, classes Classes) field.ErrorList {
	errs := updated.validate(gates)
	if old == nil {
		return append(errs, validateName(updated.set.Name, updated.set.GenerateName)...)
	}
	errs = fieldcheck.Fresh(errs, old.validate(gates))
	return append(errs, validateUpdate(&updated.set.Spec, &old.set.Spec, gates, classes)...)
}

func validateName(name, prefix string) field.ErrorList { // ASTS-030
	path := field.NewPath("metadata", "name")
	if name == "" {
		if prefix == "" {
			return nil // the API server refuses it
		}
		path = field.NewPath("metadata", "generateName")
		name = prefix + "xxxxx"
	}
	var errs field.ErrorList
	for _, message := range validation.NameIsDNSLabel(name, false) {
		errs = append(errs, field.Invalid(path, name, message))
	}

	if len(name) > maxNameLength {
		errs = append(errs, field.Invalid(path, name, fmt.Sprintf(
			"must be no more than %d characters, because pods carry a label with the name and a hash; no pod could be created",
			maxNameLength)))
	}

	return errs
}

// optionsPath is where the author wrote what only v1beta1 has.
func (w *Written) optionsPath() *field.Path {
	if w.alpha != nil {
		return field.NewPath("metadata", "annotations").Key(pub.V1beta1OnlyFields)
	}
	return field.NewPath("spec")
}

func (w *Written) validate(gates Gates) field.ErrorList {
	spec, path := &w.set.Spec, field.NewPath("spec")
	errs := fieldcheck.NotNegative(spec.Replicas, path.Child("replicas"))
	errs = append(errs, fieldcheck.NotNegative(spec.RevisionHistoryLimit,
		path.Child("revisionHistoryLimit"))...)
	errs = append(errs, fieldcheck.Template(kind, &spec.Template, spec.Selector, path)...)
	errs = append(errs, fieldcheck.Claims(spec.VolumeClaimTemplates, nil,
		253-len("--")-len(w.set.Name)-longestOrdinal, path.Child("volumeClaimTemplates"))...)
	switch at, policy := path.Child("podManagementPolicy"), spec.PodManagementPolicy; policy {
	case "":
		errs = append(errs, field.Required(at, "must be OrderedReady or Parallel"))
	case appsv1beta1.OrderedReadyPodManagement, appsv1beta1.ParallelPodManagement:
	default:
		errs = append(errs, field.Invalid(at, policy, "must be OrderedReady or Parallel"))
	}
	errs = append(errs, validateStrategy(spec, path.Child("updateStrategy"))...)
	if w.alpha != nil {
		if _, err := w.alpha.Options(); err != nil {
			return append(errs, field.Invalid(w.optionsPath(), "(not shown)", err.Error()))
		}
	}

	return append(errs, validateOptions(spec, gates, path, w.optionsPath())...)
}

// validateOptions checks what only v1beta1 has. These fields are at a path of their own.
func validateOptions(
	spec *appsv1beta1.StatefulSetSpec, gates Gates, specPath, path *field.Path,
) field.ErrorList {
	var errs field.ErrorList
	if scale := spec.ScaleStrategy; scale != nil {
		errs = append(errs, validateMaxUnavailable(scale.MaxUnavailable, spec.PodManagementPolicy,
			path.Child("scaleStrategy", "maxUnavailable"))...)
	}
	if spec.Ordinals != nil {
		errs = append(errs, fieldcheck.NotNegative(&spec.Ordinals.Start, path.Child("ordinals", "start"))...)
	}
	at := path.Child("reserveOrdinals")
	if n := len(spec.ReserveOrdinals); n > mostReserved {
		errs = append(errs, field.TooMany(at, n, mostReserved))
	}
	slots, malformed := slotsOf(spec, gates.StartOrdinal, at)
	errs = append(errs, malformed...)
	if spec.Replicas != nil && len(malformed) == 0 && slots.Len() < int(*spec.Replicas) {
		errs = append(errs, field.Invalid(specPath.Child("replicas"), *spec.Replicas, fmt.Sprintf(
			"there are only %d ordinals that are not reserved from the start up to %d", slots.Len(),
			math.MaxInt32)))
	}
	if policy := spec.PersistentVolumeClaimRetentionPolicy; policy != nil {
		at := path.Child("persistentVolumeClaimRetentionPolicy")
		for _, member := range []struct {
			name  string
			value appsv1beta1.StatefulSetClaimRetention
		}{{"whenDeleted", policy.WhenDeleted}, {"whenScaled", policy.WhenScaled}} {
			if member.value != appsv1beta1.RetainStatefulSetClaims &&
				member.value != appsv1beta1.DeleteStatefulSetClaims {
				errs = append(errs, field.NotSupported(at.Child(member.name), member.value,
					[]appsv1beta1.StatefulSetClaimRetention{appsv1beta1.RetainStatefulSetClaims,
						appsv1beta1.DeleteStatefulSetClaims}))
			}
		}
	}

	switch strategy := spec.VolumeClaimUpdateStrategy.Type; strategy {
	case "", appsv1beta1.OnPVCDeleteStatefulSetClaimUpdate,
		appsv1beta1.OnPodRollingUpdateStatefulSetClaimUpdate:
	default:
		errs = append(errs, field.NotSupported(path.Child("volumeClaimUpdateStrategy", "type"), strategy,
			[]appsv1beta1.StatefulSetClaimUpdateStrategyType{appsv1beta1.OnPVCDeleteStatefulSetClaimUpdate,
				appsv1beta1.OnPodRollingUpdateStatefulSetClaimUpdate}))
	}

	return errs
}

func validateStrategy(spec *appsv1beta1.StatefulSetSpec, path *field.Path) field.ErrorList {
	strategy, rolling := &spec.UpdateStrategy, spec.UpdateStrategy.RollingUpdate
	var errs field.ErrorList
	switch strategy.Type {
	case appsv1beta1.RollingUpdateStatefulSetStrategyType, appsv1beta1.OnDeleteStatefulSetStrategyType:
	default:
		errs = append(errs, field.Invalid(path.Child("type"), strategy.Type,
			"must be RollingUpdate or OnDelete"))
	}
	if rolling == nil {
		return errs
	}

	used := strategy.Type != appsv1beta1.OnDeleteStatefulSetStrategyType
	path = path.Child("rollingUpdate")
	errs = append(errs, fieldcheck.NotNegative(rolling.Partition, path.Child("partition"))...)
	if seconds := rolling.MinReadySeconds; seconds != nil && (*seconds < 0 || *seconds > longestMinReady) {
		errs = append(errs, field.Invalid(path.Child("minReadySeconds"), *seconds,
			fmt.Sprintf("must be 0 to %d", longestMinReady)))
	}
	if rolling.MaxUnavailable == nil && used {
		errs = append(errs, field.Required(path.Child("maxUnavailable"),
			"it is the number of pods that may be unavailable"))
	}
	errs = append(errs, validateMaxUnavailable(rolling.MaxUnavailable, spec.PodManagementPolicy,
		path.Child("maxUnavailable"))...)
	switch policy := rolling.PodUpdatePolicy; policy {
	case appsv1beta1.ReCreateStatefulSetPodUpdatePolicy,
		appsv1beta1.InPlaceIfPossibleStatefulSetPodUpdatePolicy,
		appsv1beta1.InPlaceOnlyStatefulSetPodUpdatePolicy:
	default:
		if used || policy != "" {
			errs = append(errs, field.Invalid(path.Child("podUpdatePolicy"), policy,
				"must be ReCreate, InPlaceIfPossible or InPlaceOnly"))
		}
	}
	if unordered := rolling.UnorderedUpdate; unordered != nil {
		at := path.Child("unorderedUpdate")
		if spec.PodManagementPolicy != appsv1beta1.ParallelPodManagement {
			errs = append(errs, field.Required(at,
				"only with podManagementPolicy Parallel: leave it out, or use that policy"))
		}
		errs = append(errs, fieldcheck.Priority(unordered.PriorityStrategy, at.Child("priorityStrategy"))...)
	}

	return append(errs, fieldcheck.InPlace(rolling.InPlaceUpdateStrategy,
		path.Child("inPlaceUpdateStrategy"))...)
}

// validateMaxUnavailable checks a number of pods, or a percentage, that must leave one pod to work on.
func validateMaxUnavailable(value *intstr.IntOrString, policy appsv1beta1.StatefulSetPodManagementPolicy,
	path *field.Path) field.ErrorList {
	if value == nil {
		return nil
	}
	if errs := fieldcheck.Amount(value, path); len(errs) > 0 {
		return errs
	}

	var errs field.ErrorList
	if pods, _ := rollout.Scaled(*value, 1, true); pods < 1 { // checked: no error
		errs = append(errs, field.Invalid(path, value.String(),
			"must be more than 0: nothing could ever be done"))
	} else if policy != appsv1beta1.ParallelPodManagement && *value != intstr.FromInt32(1) {
		errs = append(errs, field.Invalid(path, value.String(),
			"only with podManagementPolicy Parallel anything but 1 is possible"))
	}

	return errs
}

func validateUpdate(updated, old *appsv1beta1.StatefulSetSpec, gates Gates, classes Classes) field.ErrorList {
	path := field.NewPath("spec")
	var changed []string
	if !equality.Semantic.DeepEqual(updated.Selector, old.Selector) {
		changed = append(changed, "selector")
	}
	if updated.ServiceName != old.ServiceName {
		changed = append(changed, "serviceName")
	}
	// Without webhooks the default may be missing.
	if updated.PodManagementPolicy != old.PodManagementPolicy &&
		(old.PodManagementPolicy != "" ||
			updated.PodManagementPolicy != appsv1beta1.OrderedReadyPodManagement) {
		changed = append(changed, "podManagementPolicy")
	}
	var errs field.ErrorList
	if len(changed) > 0 {
		errs = append(errs, field.Forbidden(path,
			"updates to statefulset spec for fields other than "+mutableFields+" are forbidden; "+
				strings.Join(changed, " and ")+" was changed"))
	}
	if rolling := updated.UpdateStrategy.RollingUpdate; rolling != nil &&
		updated.UpdateStrategy.Type != appsv1beta1.OnDeleteStatefulSetStrategyType &&
		rolling.PodUpdatePolicy == appsv1beta1.InPlaceOnlyStatefulSetPodUpdatePolicy {
		errs = append(errs, fieldcheck.InPlaceOnly(&updated.Template, &old.Template, gates.InPlace, path)...)
		errs = append(errs, validateAddedClaims(updated, old, path.Child("volumeClaimTemplates"))...)
	}

	return append(errs, validateClaimChanges(updated, old, gates, classes,
		path.Child("volumeClaimTemplates"))...)
}
