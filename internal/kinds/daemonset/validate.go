package daemonset

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/fieldcheck"
	"github.com/afloat-project/afloat/internal/engine/rollout"
)

const kind = "DaemonSet"

// Written is a DaemonSet in the API version in which its author wrote it. The fields that are validated are
// the same in both versions.
type Written struct {
	spec *appsv1beta1.DaemonSetTemplate
	// types are the values of rollingUpdateType in that version, and mutable are the fields of its spec that
	// an update may change.
	types   []appsv1beta1.RollingUpdateType
	mutable string
	// annotation is the error from parsing the annotation that holds the fields of v1beta1.
	annotation error
}

// Fields of spec that an update may change, and values of rollingUpdateType, by version.
var (
	alphaMutable = "'template', 'updateStrategy', 'lifecycle', 'burstReplicas', 'minReadySeconds' and 'revisionHistoryLimit'"
	betaMutable  = "'template', 'updateStrategy', 'scaleStrategy', 'lifecycle', 'burstReplicas', 'minReadySeconds' and 'revisionHistoryLimit'"
	betaTypes    = []appsv1beta1.RollingUpdateType{appsv1beta1.StandardRollingUpdateType,
		appsv1beta1.InPlaceIfPossibleRollingUpdateType}
	alphaTypes = append(slices.Clip(betaTypes), appsv1alpha1.SurgingRollingUpdateType)
)

// WrittenInV1beta1 wraps a DaemonSet written in v1beta1.
func WrittenInV1beta1(set *appsv1beta1.DaemonSet) *Written {
	return &Written{spec: &set.Spec.DaemonSetTemplate, types: betaTypes, mutable: betaMutable}
}

// WrittenInV1alpha1 wraps a DaemonSet written in v1alpha1.
func WrittenInV1alpha1(set *appsv1alpha1.DaemonSet) *Written {
	_, err := set.Options()
	return &Written{spec: &set.Spec.DaemonSetTemplate, types: alphaTypes, mutable: alphaMutable,
		annotation: err}
}

// Validate checks a DaemonSet that is created, or updated if old is not nil (ADS-022 to ADS-032), and returns
// all errors. The API server's errors about the pod template are added by internal/admission. Names are
// checked by the API server (ADS-021).
//
// An update is not rejected for errors that the stored object already has. Objects that an older release
// admitted can still be corrected step by step, and deleted.
func Validate(updated, old *Written) field.ErrorList {
	errs := updated.validate()
	if old == nil {
		return errs
	}
	errs = fieldcheck.Fresh(errs, old.validate())
	if !equality.Semantic.DeepEqual(updated.spec.Selector, old.spec.Selector) {
		errs = append(errs, field.Forbidden(field.NewPath("spec"),
			"updates to daemonset spec for fields other than "+updated.mutable+
				" are forbidden; selector was changed"))
	}
	return errs
}

func (w *Written) validate() field.ErrorList {
	spec, path := w.spec, field.NewPath("spec")
	errs := fieldcheck.Template(kind, &spec.Template, spec.Selector, path)
	errs = append(errs, fieldcheck.NodeRequirements(&spec.Template.Spec, path.Child("template", "spec"))...)
	errs = append(errs, fieldcheck.NotNegative(&spec.MinReadySeconds, path.Child("minReadySeconds"))...)
	errs = append(errs, fieldcheck.NotNegative(spec.RevisionHistoryLimit,
		path.Child("revisionHistoryLimit"))...)
	if at := path.Child("burstReplicas"); spec.BurstReplicas != nil {
		malformed := fieldcheck.Amount(spec.BurstReplicas, at)
		if errs = append(errs, malformed...); len(malformed) == 0 && isZero(spec.BurstReplicas) {
			errs = append(errs, field.Invalid(at, spec.BurstReplicas.String(),
				"must be more than 0: no pod could ever be created"))
		}
	}
	if spec.Lifecycle != nil && spec.Lifecycle.InPlaceUpdate != nil {
		errs = append(errs, field.Forbidden(path.Child("lifecycle", "inPlaceUpdate"),
			"there is no hook around updates of a "+kind))
	}

	errs = append(errs, w.strategy(path.Child("updateStrategy"))...)
	if w.annotation != nil {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "annotations").Key(pub.V1beta1OnlyFields),
			"(not shown)", w.annotation.Error()))
	}

	return errs
}

// strategy checks how pods are updated. Under OnDelete, rollingUpdate is not used and may be anything.
func (w *Written) strategy(path *field.Path) field.ErrorList {
	strategy := &w.spec.UpdateStrategy
	switch strategy.Type {
	case appsv1beta1.OnDeleteDaemonSetStrategyType:
		return nil
	case appsv1beta1.RollingUpdateDaemonSetStrategyType:
	default:
		return field.ErrorList{field.NotSupported(path.Child("type"), strategy.Type,
			[]appsv1beta1.DaemonSetUpdateStrategyType{
				appsv1beta1.RollingUpdateDaemonSetStrategyType, appsv1beta1.OnDeleteDaemonSetStrategyType})}
	}

	rolling, path := strategy.RollingUpdate, path.Child("rollingUpdate")
	if rolling == nil {
		return field.ErrorList{field.Required(path, "type RollingUpdate needs it")}
	}

	errs := w.limits(rolling, path)
	if rolling.Type != "" && !slices.Contains(w.types, rolling.Type) {
		errs = append(errs, field.NotSupported(path.Child("rollingUpdateType"), rolling.Type, w.types))
	}
	errs = append(errs, validatePart(rolling.Partition, path.Child("partition"))...)
	if rolling.Selector != nil {
		errs = append(errs, metavalidation.ValidateLabelSelector(rolling.Selector,
			metavalidation.LabelSelectorValidationOptions{}, path.Child("selector"))...)
		// It is evaluated at each event of a node, for which the events of all other nodes wait.
		if n := fieldcheck.SelectorTerms(rolling.Selector); n > fieldcheck.MostSelectorTerms {
			errs = append(errs, field.TooMany(path.Child("selector"), n, fieldcheck.MostSelectorTerms))
		}
	}

	return errs
}

// limits checks maxUnavailable and maxSurge. Exactly one of them must be other than zero.
func (w *Written) limits(rolling *appsv1beta1.RollingUpdateDaemonSet, path *field.Path) field.ErrorList {
	unavailable, surge := path.Child("maxUnavailable"), path.Child("maxSurge")
	errs := append(validatePart(rolling.MaxUnavailable, unavailable),
		validatePart(rolling.MaxSurge, surge)...)
	if len(errs) > 0 {
		return errs
	}

	down, up := !isZero(rolling.MaxUnavailable), !isZero(rolling.MaxSurge)
	switch surging := rolling.Type == appsv1alpha1.SurgingRollingUpdateType; {
	case surging && down:
		return field.ErrorList{field.Invalid(unavailable, rolling.MaxUnavailable.String(),
			"must be 0 with rollingUpdateType Surging")}
	case surging && rolling.MaxSurge == nil:
		return nil // it is defaulted to 1
	case up && rolling.Type == appsv1beta1.InPlaceIfPossibleRollingUpdateType:
		return field.ErrorList{field.Required(surge,
			"must be 0 with rollingUpdateType InPlaceIfPossible: a pod that is changed has no other beside it")}
	case down && up:
		return field.ErrorList{field.Invalid(surge, rolling.MaxSurge.String(),
			"must be 0 if maxUnavailable is not: pods are updated one way or the other")}
	case !down && !up:
		return field.ErrorList{field.Required(unavailable,
			"must be more than 0 if maxSurge is 0: no pod could ever be updated")}
	}

	return nil
}

// validatePart checks a number of nodes or a percentage of all nodes.
func validatePart(value *intstr.IntOrString, path *field.Path) field.ErrorList {
	errs := fieldcheck.Amount(value, path)
	if value == nil || len(errs) > 0 {
		return errs
	}
	if percent, ok := rollout.Percentage(value.StrVal); ok && value.Type == intstr.String && percent > 100 {
		return field.ErrorList{field.Invalid(path, value.String(), "must not be more than 100%")}
	}
	return nil
}

// isZero reports whether a well-formed number or percentage is absent or zero.
func isZero(value *intstr.IntOrString) bool {
	if value == nil {
		return true
	}
	number, err := rollout.Scaled(*value, 1, true)
	return err == nil && number == 0
}

// Warnings returns what may not work as the author expects (ADS-031).
func (w *Written) Warnings() []string {
	strategy := &w.spec.UpdateStrategy
	if strategy.Type == appsv1beta1.OnDeleteDaemonSetStrategyType || strategy.RollingUpdate == nil ||
		isZero(strategy.RollingUpdate.MaxSurge) {
		return nil
	}

	pod := &w.spec.Template.Spec
	for _, list := range [][]corev1.Container{pod.InitContainers, pod.Containers} {
		for i := range list {
			if slices.ContainsFunc(list[i].Ports,
				func(p corev1.ContainerPort) bool { return pod.HostNetwork || p.HostPort != 0 }) {
				return []string{"spec.updateStrategy.rollingUpdate.maxSurge: container " + list[i].Name +
					" uses a port of the node, which the old pod and the new one cannot have at the same time: the update may stand still"}
			}
		}
	}

	return nil
}
