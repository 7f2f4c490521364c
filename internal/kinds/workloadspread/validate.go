package workloadspread

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/fieldcheck"
	"github.com/afloat-project/afloat/internal/engine/subset"
	"github.com/afloat-project/afloat/internal/engine/wording"
	"github.com/afloat-project/afloat/internal/engine/workloadkind"
)

// UnschedulableWindow is the default of how long a subset is passed over (WS-174, WS-199).
const UnschedulableWindow = 300 * time.Second

// mostSubsets limits the number of subsets, since the status has each of them for each version of the pods, and
// each is tried on every pod that is in none.
const mostSubsets = 200

// mostName limits the length of the names of subsets, which become labels of metrics.
const mostName = 63

// SubsetLabel returns the label of a subset in metrics: its name, cut if an earlier release admitted a longer one.
func SubsetLabel(name string) string {
	return strings.ToValidUTF8(name[:min(len(name), mostName)], "")
}

// Environment is what a WorkloadSpread is validated against.
type Environment struct {
	// Others are the WorkloadSpreads of the namespace. The validated one may be among them.
	Others []appsv1beta1.WorkloadSpread
	// Listed are the kinds that users list. ListError is why they cannot be read (WS-027).
	Listed    AllowList
	ListError error
	// Window is how long a subset is passed over.
	Window time.Duration
}

// Validate returns everything that is wrong with a WorkloadSpread; old is nil on creation. The API server
// validates node selectors and tolerations, and the target's template with the patches applied; see Selectors
// and Patched (WS-031 to WS-045).
func Validate(spread, old *appsv1beta1.WorkloadSpread, env Environment) field.ErrorList {
	spec := field.NewPath("spec")
	errs := validateTarget(spread, old, env, spec.Child("targetRef"))
	if old == nil {
		old = &appsv1beta1.WorkloadSpread{}
	}
	was := ptr.Deref(old.Spec.TargetFilter, appsv1beta1.TargetFilter{}) // what is stored may become shorter step by step
	errs = append(errs, validatePaths(spread.Spec.TargetFilter, len(was.ReplicasPathList),
		spec.Child("targetFilter", "replicasPathList"))...)
	if filter := spread.Spec.TargetFilter; filter != nil && filter.Selector != nil {
		if _, err := metav1.LabelSelectorAsSelector(filter.Selector); err != nil {
			errs = append(errs, field.Invalid(spec.Child("targetFilter"), filter.Selector,
				"selector: "+err.Error()))
		}
		stored := 0
		if was.Selector != nil {
			stored = fieldcheck.SelectorTerms(was.Selector)
		}
		if n := fieldcheck.SelectorTerms(filter.Selector); n > max(fieldcheck.MostSelectorTerms, stored) {
			errs = append(errs, field.TooMany(spec.Child("targetFilter", "selector"), n, fieldcheck.MostSelectorTerms))
		}
	}

	if n := len(spread.Spec.Subsets); n > max(mostSubsets, len(old.Spec.Subsets)) {
		return append(errs, field.TooMany(spec.Child("subsets"), n, mostSubsets))
	}

	most := fieldcheck.MostSelectorTerms
	for i := range old.Spec.Subsets {
		most = max(most, requirements(&old.Spec.Subsets[i]))
	}
	for i := range spread.Spec.Subsets {
		if n := requirements(&spread.Spec.Subsets[i]); n > most {
			errs = append(errs, field.TooMany(spec.Child("subsets").Index(i).Child("requiredNodeSelector"), n,
				fieldcheck.MostSelectorTerms))
		}
	}

	return slices.Concat(errs, validateSubsets(spread, spec.Child("subsets")),
		validateStrategy(&spread.Spec, env.Window, spec.Child("scheduleStrategy")))
}

// requirements returns how many requirements a subset has of its nodes, which are read for each new pod.
func requirements(subset *appsv1beta1.WorkloadSpreadSubset) int {
	if subset.RequiredNodeSelector == nil {
		return 0
	}
	return len(subset.RequiredNodeSelector.MatchExpressions) + len(subset.RequiredNodeSelector.MatchFields)
}

// mostPaths and mostPath limit the number of paths to replicas and the length of each, since they are followed for
// each new pod, and stand in errors.
const mostPaths, mostPath = 100, 500

func validatePaths(filter *appsv1beta1.TargetFilter, stored int, path *field.Path) field.ErrorList {
	if filter == nil {
		return nil
	}
	if n := len(filter.ReplicasPathList); n > max(mostPaths, stored) {
		return field.ErrorList{field.TooMany(path, n, mostPaths)}
	}

	var errs field.ErrorList
	for i, text := range filter.ReplicasPathList {
		if len(text) > mostPath {
			errs = append(errs, field.TooLong(path.Index(i), "", mostPath))
		}
	}
	return errs
}

func validateTarget(
	spread, old *appsv1beta1.WorkloadSpread, env Environment, path *field.Path,
) field.ErrorList {
	ref := spread.Spec.TargetReference
	if ref == nil {
		return field.ErrorList{field.Required(path, "it must name the one workload whose pods are spread")}
	}

	var errs field.ErrorList
	if ref.APIVersion == "" || ref.Kind == "" || ref.Name == "" {
		errs = append(errs, field.Invalid(path, ref, "apiVersion, kind and name must not be empty"))
	}
	if _, err := schema.ParseGroupVersion(ref.APIVersion); err != nil {
		return append(errs, field.Invalid(path, ref,
			fmt.Sprintf("apiVersion %q must be a group and a version, such as apps/v1: %v",
				ref.APIVersion, err)))
	}

	target := TargetOf(spread)
	if ref.APIVersion != "" && ref.Kind != "" {
		if err := supported(target.GroupKind, env, ref, path); err != nil {
			errs = append(errs, err)
		}
	}

	for i := range env.Others {
		other := &env.Others[i]
		if other.Name != spread.Name && other.Namespace == spread.Namespace &&
			other.DeletionTimestamp == nil && TargetOf(other) == target {
			errs = append(errs, field.Invalid(path, ref, fmt.Sprintf(
				"WorkloadSpread %s spreads this workload already, and a workload can have one: put the subsets into that one, or delete it",
				other.Name)))
		}
	}

	if old != nil && old.Spec.TargetReference != nil && TargetOf(old) != target {
		errs = append(errs, field.Invalid(path, ref, fmt.Sprintf(
			"the group, kind and name of the workload cannot be changed from %s %s: make another WorkloadSpread",
			old.Spec.TargetReference.Kind, old.Spec.TargetReference.Name)))
	}

	return errs
}

// supported rejects kinds that are neither supported nor listed.
func supported(
	kind schema.GroupKind, env Environment, ref *appsv1beta1.TargetReference, path *field.Path,
) *field.Error {
	if BuiltIn(kind) {
		return nil
	}

	for _, known := range builtIn {
		if kind.Kind != known.Kind {
			continue
		}
		groups := known.Group
		if known == workloadkind.StatefulSet {
			groups += " or " + workloadkind.AdvancedStatefulSet.Group
		}
		return field.Invalid(path, ref,
			fmt.Sprintf("the group of a %s must be %s, not %q", kind.Kind, groups, kind.Group))
	}

	if env.ListError != nil {
		return field.InternalError(path,
			fmt.Errorf("whether kind %s is listed cannot be told: %w", kind, env.ListError))
	}
	if _, ok := env.Listed.Workload(kind); !ok {
		return field.Invalid(path, ref, fmt.Sprintf(
			"kind %s of group %q is not supported, and not listed: supported are CloneSet, Deployment, ReplicaSet, StatefulSet and Job; other kinds are listed by an administrator in key %s of ConfigMap %s in the namespace of the manager",
			kind.Kind, kind.Group, AllowListKey, ConfigMapName))
	}

	return nil
}

func validateSubsets(spread *appsv1beta1.WorkloadSpread, path *field.Path) field.ErrorList {
	subsets := spread.Spec.Subsets
	if len(subsets) == 0 {
		return field.ErrorList{field.Required(path, "at least one subset is needed: a group of nodes")}
	}

	var errs field.ErrorList
	names := sets.New[string]()
	for i := range subsets {
		at := path.Index(i)
		switch name := subsets[i].Name; {
		case name == "":
			errs = append(errs, field.Invalid(at.Child("name"), name, "a subset must have a name"))
		case names.Has(name):
			errs = append(errs, field.Invalid(at.Child("name"), name, "another subset has this name"))
		case len(name) > mostName:
			errs = append(errs, field.TooLong(at.Child("name"), "", mostName))
		}
		names.Insert(subsets[i].Name)

		if patch := subsets[i].Patch.Raw; len(patch) > 0 {
			if err := tryPatch(patch); err != nil {
				errs = append(errs, field.Invalid(at.Child("patch"), string(patch), err.Error()))
			}
		}
	}

	ordinals := TargetOf(spread).Kind == workloadkind.StatefulSet.Kind
	return append(errs, validateQuotas(subsets, ordinals, path)...)
}

// validateQuotas validates maxReplicas.
func validateQuotas(
	subsets []appsv1beta1.WorkloadSpreadSubset, ordinals bool, path *field.Path,
) field.ErrorList {
	var errs field.ErrorList
	var first *intstr.IntOrString
	sum, complete, mixed := int32(0), true, false
	for i := range subsets {
		most, at := subsets[i].MaxReplicas, path.Index(i).Child("maxReplicas")
		if most == nil {
			continue
		}
		if first == nil {
			first = most
		} else if most.Type != first.Type && !mixed {
			mixed = true
			errs = append(errs, field.Invalid(at, most.String(),
				"all subsets must have integers, or all percentages; an earlier one has the other"))
		}

		if most.Type == intstr.Int {
			if most.IntVal < 0 {
				errs = append(errs, field.Invalid(at, most.IntVal, "must not be negative"))
			}
			continue
		}

		if ordinals {
			errs = append(errs, field.Invalid(at, most.StrVal,
				"a StatefulSet cannot be spread by percentages, since its ordinals would move: give a number of pods"))
		}

		percent, err := Percent(most.StrVal)
		if err != nil {
			complete = false
			errs = append(errs, field.Invalid(at, most.StrVal, err.Error()))
			continue
		}
		before := sum
		if sum += percent; sum > 100 && before <= 100 {
			errs = append(errs, field.Invalid(at, most.StrVal,
				"the percentages are more than 100 % together up to here"))
		}
	}

	if last := subsets[len(subsets)-1].MaxReplicas; complete && !mixed && last != nil &&
		last.Type == intstr.String && sum < 100 {
		var value any
		if subsets[0].MaxReplicas != nil {
			value = subsets[0].MaxReplicas.String()
		}
		errs = append(errs, field.Invalid(path.Index(0).Child("maxReplicas"), value,
			"the percentages are less than 100 % together, so some pods have no place: raise them, or leave maxReplicas out of the last subset"))
	}

	return errs
}

func validateStrategy(
	spec *appsv1beta1.WorkloadSpreadSpec, window time.Duration, path *field.Path,
) field.ErrorList {
	strategy := &spec.ScheduleStrategy
	var errs field.ErrorList
	switch strategy.Type {
	case "", appsv1beta1.FixedWorkloadSpreadScheduleStrategyType,
		appsv1beta1.AdaptiveWorkloadSpreadScheduleStrategyType:
	default:
		errs = append(errs, field.Invalid(path.Child("type"), strategy.Type, "must be Fixed or Adaptive"))
	}

	adaptive, n := strategy.Adaptive, len(spec.Subsets)
	if adaptive == nil {
		return errs
	}

	if strategy.Type != appsv1beta1.AdaptiveWorkloadSpreadScheduleStrategyType {
		errs = append(errs, field.Invalid(path.Child("type"), strategy.Type,
			"must be Adaptive where adaptive is given: set it, or remove adaptive"))
	}
	if n > 1 && spec.Subsets[n-1].MaxReplicas != nil {
		errs = append(errs, field.Invalid(path.Child("adaptive"), adaptive.RescheduleCriticalSeconds,
			"the last subset takes what the others cannot, and must have no maxReplicas"))
	}

	most := int64(math.MaxInt32)
	if n > 1 {
		most = max(int64(window/time.Second)-5, 0) / int64(n-1)
	}
	if seconds := adaptive.RescheduleCriticalSeconds; seconds != nil &&
		(*seconds < 0 || int64(*seconds) > most) {
		errs = append(errs, field.Invalid(path.Child("adaptive", "rescheduleCriticalSeconds"), *seconds,
			fmt.Sprintf("must be from 0 to %d with %s", most, wording.Count(n, "subset"))))
	}

	return errs
}

// anyPod has one item in each list that patches merge, so that a patch item without its merge key is found.
const anyPod = `{"spec":{"containers":[{"name":"any","env":[{"name":"any"}],"volumeMounts":[{"name":"any","mountPath":"any"}]}],"initContainers":[{"name":"any"}],"volumes":[{"name":"any"}]}}`

// tryPatch applies a patch to anyPod, since the real pods are not known.
func tryPatch(patch []byte) error {
	_, err := applyPatch([]byte(anyPod), patch)
	return err
}

// applyPatch applies a strategic merge patch to a pod, and fails if the result is not a pod.
func applyPatch(pod, patch []byte) ([]byte, error) {
	if _, err := subset.Object(patch); err != nil {
		return nil, errors.New("must be a JSON object that is a strategic merge patch of a pod")
	}
	patched, err := mergedText(pod, patch)
	if err != nil {
		return nil, fmt.Errorf("it cannot be applied to the pod: %w", err)
	}
	if err := json.Unmarshal(patched, &corev1.Pod{}); err != nil {
		return nil, fmt.Errorf("what it makes is no pod: %w", err)
	}
	return patched, nil
}

// Selectors returns a pod template with the node selectors and tolerations of all subsets, for the API server
// to validate, or nil if there are none. translate converts the path of a field in the template to that in
// the WorkloadSpread (WS-035).
func Selectors(spread *appsv1beta1.WorkloadSpread) (template map[string]any, translate func(string) string) {
	var required, preferred, tolerations []any
	places := map[string]string{}
	const affinity = "spec.template.spec.affinity.nodeAffinity."
	for i := range spread.Spec.Subsets {
		s, at := &spread.Spec.Subsets[i], fmt.Sprintf("spec.subsets[%d].", i)
		if s.RequiredNodeSelector != nil {
			places[fmt.Sprintf("%srequiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[%d]",
				affinity, len(required))] = at + "requiredNodeSelector"
			required = append(required, s.RequiredNodeSelector)
		}
		for j := range s.PreferredNodeSelector {
			places[fmt.Sprintf("%spreferredDuringSchedulingIgnoredDuringExecution[%d]", affinity,
				len(preferred))] = fmt.Sprintf("%spreferredNodeSelector[%d]", at, j)
			preferred = append(preferred, s.PreferredNodeSelector[j])
		}
		for j := range s.Tolerations {
			places[fmt.Sprintf("spec.template.spec.tolerations[%d]", len(tolerations))] =
				fmt.Sprintf("%stolerations[%d]", at, j)
			tolerations = append(tolerations, s.Tolerations[j])
		}
	}

	if len(places) == 0 {
		return nil, nil
	}
	node := map[string]any{}
	if len(required) > 0 {
		node["requiredDuringSchedulingIgnoredDuringExecution"] = map[string]any{"nodeSelectorTerms": required}
	}
	if len(preferred) > 0 {
		node["preferredDuringSchedulingIgnoredDuringExecution"] = preferred
	}
	template = map[string]any{"metadata": map[string]any{"labels": map[string]any{"app": "any"}},
		"spec": map[string]any{
			"containers":  []any{map[string]any{"name": "any", "image": "any"}},
			"affinity":    map[string]any{"nodeAffinity": node},
			"tolerations": tolerations,
		}}

	return template, func(path string) string {
		for from, to := range places {
			if len(path) >= len(from) && path[:len(from)] == from &&
				(len(path) == len(from) || path[len(from)] == '.' || path[len(from)] == '[') {
				return to + path[len(from):]
			}
		}
		return "spec.subsets"
	}
}

// Patched returns the pod template of a workload with a volume for each claim template, and with the patch
// applied. Neither workload nor patch need be valid (WS-046, WS-047).
func Patched(workload map[string]any, patch []byte) (map[string]any, error) {
	spec, _ := workload["spec"].(map[string]any)
	template, _ := spec["template"].(map[string]any)
	if template == nil {
		return nil, errors.New("the workload has no template")
	}

	template = withClaims(template, spec["volumeClaimTemplates"])
	if len(patch) == 0 {
		return template, nil
	}

	text, err := json.Marshal(template)
	if err != nil {
		return nil, fmt.Errorf("encoding the template: %w", err)
	}
	patched, err := applyPatch(text, patch)
	if err != nil {
		return nil, err
	}
	var result map[string]any
	if err := json.Unmarshal(patched, &result); err != nil {
		return nil, fmt.Errorf("reading the patched template: %w", err)
	}

	return result, nil
}

// withClaims adds a volume for each claim template to the template, replacing volumes of the same name.
func withClaims(template map[string]any, claimTemplates any) map[string]any {
	claims, _ := claimTemplates.([]any)
	spec, ok := template["spec"].(map[string]any)
	if !ok || len(claims) == 0 {
		return template
	}

	names := sets.New[string]()
	var volumes []any
	for _, item := range claims {
		claim, _ := item.(map[string]any)
		metadata, _ := claim["metadata"].(map[string]any)
		if name, _ := metadata["name"].(string); name != "" && !names.Has(name) {
			names.Insert(name)
			volumes = append(volumes,
				map[string]any{"name": name, "persistentVolumeClaim": map[string]any{"claimName": name}})
		}
	}

	given, _ := spec["volumes"].([]any)
	for _, item := range given {
		volume, _ := item.(map[string]any)
		if name, _ := volume["name"].(string); !names.Has(name) {
			volumes = append(volumes, item)
		}
	}

	template, spec = maps.Clone(template), maps.Clone(spec)
	template["spec"], spec["volumes"] = spec, volumes
	return template
}
