package persistentpodstate

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/workloadkind"
	"github.com/afloat-project/afloat/internal/kinds/workloadspread"
)

// mostKeys and mostAnnotations limit what one object may record of each pod, because the status holds it for
// all pods.
const mostKeys, mostAnnotations = 32, 16

// Environment is what a validation needs besides the object.
type Environment struct {
	// Others are the PersistentPodStates of the namespace.
	Others []*appsv1beta1.PersistentPodState
	// Listed are the kinds that an administrator lists; ListError is why they are unknown.
	Listed    workloadspread.AllowList
	ListError error
}

// Validate validates a PersistentPodState; old is the stored one, nil on create (PPS-020 to PPS-027).
func Validate(state, old *appsv1beta1.PersistentPodState, env Environment) field.ErrorList {
	return append(validateTarget(state, old, env, field.NewPath("spec", "targetRef")), validateSpec(state)...)
}

// validateSpec validates everything except the target.
func validateSpec(state *appsv1beta1.PersistentPodState) (errs field.ErrorList) {
	spec := field.NewPath("spec")
	if state.Spec.RequiredPersistentTopology == nil && len(state.Spec.PreferredPersistentTopology) == 0 {
		errs = append(errs, field.Invalid(spec, field.OmitValueType{},
			"requiredPersistentTopology or preferredPersistentTopology must name labels of nodes: else pods have no place to come back to"))
	}

	keys := 0
	if required := state.Spec.RequiredPersistentTopology; required != nil {
		keys += len(required.Keys)
		errs = append(errs, validateKeys(required.Keys, spec.Child("requiredPersistentTopology", "keys"))...)
	}

	for i := range state.Spec.PreferredPersistentTopology {
		term, at := &state.Spec.PreferredPersistentTopology[i],
			spec.Child("preferredPersistentTopology").Index(i)
		if term.Weight < leastWeight || term.Weight > mostWeight {
			errs = append(errs, field.Invalid(at.Child("weight"), term.Weight, "must be from 1 to 100"))
		}
		keys += len(term.Preference.Keys)
		errs = append(errs, validateKeys(term.Preference.Keys, at.Child("preference", "keys"))...)
	}

	if keys > mostKeys {
		errs = append(errs, field.TooMany(spec, keys, mostKeys))
	}

	annotations := spec.Child("persistentPodAnnotations")
	for i, annotation := range state.Spec.PersistentPodAnnotations {
		errs = append(errs, validateKey(annotation.Key, annotations.Index(i).Child("key"))...)
	}

	if found := len(state.Spec.PersistentPodAnnotations); found > mostAnnotations {
		errs = append(errs, field.TooMany(annotations, found, mostAnnotations))
	}

	policies := []appsv1beta1.PersistentPodStateRetentionPolicyType{
		appsv1beta1.RetainWhenScaled, appsv1beta1.RetainWhenDeleted,
	}
	if policy := state.Spec.PersistentPodStateRetentionPolicy; policy != "" &&
		!slices.Contains(policies, policy) {
		errs = append(errs,
			field.NotSupported(spec.Child("persistentPodStateRetentionPolicy"), policy, policies))
	}

	return errs
}

func validateTarget(
	state, old *appsv1beta1.PersistentPodState, env Environment, path *field.Path,
) (errs field.ErrorList) {
	ref, target := state.Spec.TargetRef, TargetOf(state)
	if old != nil && TargetOf(old) != target {
		return append(errs, field.Forbidden(path, fmt.Sprintf(
			"the group, kind and name of the workload cannot be changed from %s %s: make another PersistentPodState",
			old.Spec.TargetRef.Kind, old.Spec.TargetRef.Name,
		)))
	}

	if ref.APIVersion == "" || ref.Kind == "" || ref.Name == "" {
		return append(errs, field.Invalid(path, ref, "apiVersion, kind and name must not be empty"))
	}

	if _, err := schema.ParseGroupVersion(ref.APIVersion); err != nil {
		return append(errs, field.Invalid(path, ref,
			fmt.Sprintf("apiVersion %q must be a group and a version, such as apps/v1: %v",
				ref.APIVersion, err)))
	}

	if err := supported(target.GroupKind, env, ref, path); err != nil {
		errs = append(errs, err)
	}

	others := slices.DeleteFunc(slices.Clone(env.Others), func(o *appsv1beta1.PersistentPodState) bool {
		return o.Name == state.Name || o.Namespace != state.Namespace
	})
	if other := Of(target, others); other != nil {
		errs = append(errs, field.Invalid(path, ref,
			fmt.Sprintf("PersistentPodState %s is of this workload already, and a workload can have one",
				other.Name)))
	}

	return errs
}

// supported rejects kinds that are neither supported nor listed.
func supported(
	kind schema.GroupKind, env Environment, ref appsv1beta1.PersistentPodStateTarget, path *field.Path,
) *field.Error {
	if BuiltIn(kind) {
		return nil
	}

	if kind.Kind == workloadkind.StatefulSet.Kind {
		return field.Invalid(path, ref,
			fmt.Sprintf("the group of a StatefulSet must be apps or apps.kruise.io, not %q", kind.Group))
	}

	if env.ListError != nil {
		return field.InternalError(path,
			fmt.Errorf("whether kind %s is listed cannot be told: %w", kind, env.ListError))
	}

	if _, ok := env.Listed.Workload(kind); !ok {
		return field.Invalid(path, ref,
			fmt.Sprintf("kind %s of group %q is not supported, and not listed: supported is StatefulSet; other kinds are listed by an "+
				"administrator in key %s of ConfigMap %s in the namespace of the manager",
				kind.Kind, kind.Group, AllowListKey, workloadspread.ConfigMapName))
	}

	return nil
}

func validateKeys(keys []string, path *field.Path) (errs field.ErrorList) {
	if len(keys) == 0 {
		return field.ErrorList{field.Invalid(path, keys, "must name at least one label of nodes")}
	}
	for i, key := range keys[:min(len(keys), mostKeys)] {
		errs = append(errs, validateKey(key, path.Index(i))...)
	}
	return errs
}

func validateKey(key string, path *field.Path) (errs field.ErrorList) {
	for _, fault := range validation.IsQualifiedName(key) {
		errs = append(errs, field.Invalid(path, key, fault))
	}
	return errs
}
