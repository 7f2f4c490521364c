package uniteddeployment

import (
	"encoding/json"
	"fmt"
	"strings"

	jsonpatchapply "github.com/evanphx/json-patch/v5"
	"gomodules.xyz/jsonpatch/v2"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/template"
	"github.com/afloat-project/afloat/internal/engine/fieldcheck"
	"github.com/afloat-project/afloat/internal/engine/inplace"
	"github.com/afloat-project/afloat/internal/kinds/cloneset"
	"github.com/afloat-project/afloat/internal/kinds/statefulset"
)

// unused is said of what the controller overwrites.
const unused = "will not be used: the controller sets it for each subset; remove it"

// Rules are those by which the kinds of workloads judge.
type Rules struct {
	StatefulSet statefulset.Gates
	Classes     statefulset.Classes
	// CloneSet is what may change under InPlaceOnly.
	CloneSet inplace.Options
}

// used is the template of a UnitedDeployment, and where it stands.
type used struct {
	*Template
	path *field.Path
}

func usedBy(united *appsv1beta1.UnitedDeployment) (*used, error) {
	template, err := TemplateOf(&united.Spec.Template)
	if err != nil {
		return nil, err
	}
	return &used{template, field.NewPath("spec", "template", string(template.Kind))}, nil
}

// validateTemplate judges the template (UD-023 to UD-028), but for the rules of the API server on pods.
func validateTemplate(united *appsv1beta1.UnitedDeployment, rules Rules, path *field.Path) field.ErrorList {
	child, err := usedBy(united)
	if given := &united.Spec.Template.SubsetTemplateSpec; err != nil &&
		*given == (appsv1beta1.SubsetTemplateSpec{}) &&
		united.Spec.Template.DecodeError() == nil {
		return field.ErrorList{field.Required(path, err.Error())}
	}
	if err != nil {
		return field.ErrorList{field.Invalid(path, field.OmitValueType{}, err.Error())}
	}

	var errs field.ErrorList
	spec, strategy := within(child.Document, "spec"), within(child.Document, "spec", "updateStrategy")
	ordinals := child.Kind == StatefulSet || child.Kind == AdvancedStatefulSet
	if child.Kind != CloneSet {
		if spec["replicas"] != nil {
			errs = append(errs, field.Invalid(child.path.Child("spec", "replicas"), spec["replicas"], unused))
		}
	}
	given := labels.Set(child.Labels())
	if child.Kind == CloneSet && united.Spec.Selector != nil {
		given = labels.Merge(given, united.Spec.Selector.MatchLabels) // which the controller adds
	}
	if matcher, err := metav1.LabelSelectorAsSelector(united.Spec.Selector); united.Spec.Selector != nil &&
		err == nil && !matcher.Matches(given) {
		errs = append(errs, field.Invalid(child.path.Child("metadata", "labels"), given.String(),
			"selector does not match the labels of the workloads: they must have what spec.selector asks for"))
	}
	rolling := within(strategy, "rollingUpdate")
	if ordinals && strategy["type"] == "RollingUpdate" && rolling["partition"] != nil {
		errs = append(errs, field.Invalid(child.path.Child("spec", "updateStrategy",
			"rollingUpdate", "partition"), rolling["partition"], unused))
	}
	if child.Kind == AdvancedStatefulSet && strings.Contains(united.Name, ".") {
		errs = append(errs, field.Invalid(child.path, field.OmitValueType{},
			"names of these StatefulSets are DNS labels, and begin with that of the UnitedDeployment, which has a dot"))
	}

	return append(errs, child.judge(united, rules)...)
}

// judge applies the rules of the child's kind.
func (c *used) judge(united *appsv1beta1.UnitedDeployment, rules Rules) field.ErrorList {
	var errs field.ErrorList
	switch c.Kind {
	case StatefulSet:
		errs = judgeStatefulSet(&united.Spec.Template.StatefulSetTemplate.Spec, field.NewPath("spec"))
		errs = append(errs, c.judgePods("StatefulSet", united)...)
	case Deployment:
		errs = judgeDeployment(&united.Spec.Template.DeploymentTemplate.Spec, field.NewPath("spec"))
		errs = append(errs, c.judgePods("Deployment", united)...)
	case AdvancedStatefulSet:
		set, err := c.advanced(united, rules)
		if err != nil {
			return field.ErrorList{field.Invalid(c.path, field.OmitValueType{}, err.Error())}
		}
		errs = statefulset.Validate(set, nil, rules.StatefulSet, rules.Classes)
	case CloneSet:
		set, err := c.cloneSet(united)
		if err != nil {
			return field.ErrorList{field.Invalid(c.path, field.OmitValueType{}, err.Error())}
		}
		errs = cloneset.Validate(set, nil, rules.CloneSet)
	}

	return c.placed(errs)
}

// placed moves errors of a child to its template. Those of its name and its selector are those of the
// UnitedDeployment, which are judged apart.
func (c *used) placed(errs field.ErrorList) field.ErrorList {
	var placed field.ErrorList
	for _, err := range errs {
		if strings.HasPrefix(err.Field, "metadata.") || err.Field == "spec.selector" ||
			strings.HasPrefix(err.Field, "spec.selector.") {
			continue
		}
		err.Field = c.path.String() + "." + err.Field
		placed = append(placed, err)
	}
	return placed
}

// judgePods judges the pod template and the claim templates of a kind of Kubernetes.
func (c *used) judgePods(kind string, united *appsv1beta1.UnitedDeployment) field.ErrorList {
	path, spec := field.NewPath("spec"), within(c.Document, "spec")
	var pods template.PodTemplate
	var claims template.VolumeClaimTemplates
	reread(spec["template"], &pods)
	reread(spec["volumeClaimTemplates"], &claims)
	errs := fieldcheck.Template(kind, &pods, united.Spec.Selector, path)
	return append(errs, fieldcheck.Claims(claims, nil, 253-maxName-len("--")-10,
		path.Child("volumeClaimTemplates"))...)
}

// reread decodes a value of a document into a type that takes anything.
func reread(value any, into json.Unmarshaler) {
	if text, err := json.Marshal(value); err == nil {
		_ = into.UnmarshalJSON(text) //nolint:errcheck // it has its own DecodeError
	}
}

// advanced is the child as its own webhooks see it.
func (c *used) advanced(united *appsv1beta1.UnitedDeployment, rules Rules) (*statefulset.Written, error) {
	object := c.object(united, "partition")
	operations, err := statefulset.Default(statefulset.DefaultRequest{Gates: rules.StatefulSet,
		Version: appsv1beta1.GroupVersion.Version, New: object})
	if err != nil {
		return nil, err
	}
	set := &appsv1beta1.StatefulSet{}
	err = complete(object, operations, set)
	return statefulset.WrittenInV1beta1(set), err
}

// cloneSet is the child as its own webhooks see it.
func (c *used) cloneSet(united *appsv1beta1.UnitedDeployment) (*cloneset.Written, error) {
	object := c.object(united, "partition")
	operations, err := cloneset.Default(cloneset.DefaultRequest{Version: appsv1beta1.GroupVersion.Version,
		New: object})
	if err != nil {
		return nil, err
	}
	set := &appsv1beta1.CloneSet{}
	err = complete(object, operations, set)
	return cloneset.WrittenInV1beta1(set), err
}

// object is the child with the selector and the longest name that it may get, without replicas, and without
// what is overwritten below rollingUpdate.
func (c *used) object(united *appsv1beta1.UnitedDeployment, overwritten string) Document {
	spec := cloned(c.Document, "spec")
	delete(spec, "replicas")
	spec["selector"] = united.Spec.Selector
	if within(spec, "updateStrategy", "rollingUpdate") != nil {
		strategy := cloned(spec, "updateStrategy")
		rolling := cloned(strategy, "rollingUpdate")
		delete(rolling, overwritten)
		strategy["rollingUpdate"], spec["updateStrategy"] = rolling, strategy
	}
	name := ""
	for i := range united.Spec.Topology.Subsets {
		if longer := NameOf(united.Name, "", c.Kind,
			united.Spec.Topology.Subsets[i].Name, 0); len(longer) > len(name) {
			name = longer
		}
	}

	return Document{"metadata": Document{"name": name}, "spec": spec}
}

// cloned is a copy of the object at the key; empty if there is none.
func cloned(parent Document, key string) Document {
	inner := Document{}
	for key, value := range within(parent, key) {
		inner[key] = value
	}
	return inner
}

// complete decodes an object with its defaults.
func complete(object Document, operations []jsonpatch.Operation, into any) error {
	raw, err := json.Marshal(object)
	if err != nil {
		return fmt.Errorf("encoding the template: %w", err)
	}

	text, err := json.Marshal(operations)
	if err != nil {
		return fmt.Errorf("encoding defaults of the template: %w", err)
	}
	if len(operations) > 0 {
		patch, err := jsonpatchapply.DecodePatch(text)
		if err != nil {
			return fmt.Errorf("reading defaults of the template: %w", err)
		}
		if raw, err = patch.Apply(raw); err != nil {
			return fmt.Errorf("completing the template: %w", err)
		}
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return fmt.Errorf("reading the template: %w", err)
	}

	return nil
}

// judgeStatefulSet judges a spec of Kubernetes' StatefulSets, but for its templates. Empty policies are those
// of the API server.
func judgeStatefulSet(spec *appsv1.StatefulSetSpec, path *field.Path) field.ErrorList {
	errs := oneOf(spec.PodManagementPolicy, path.Child("podManagementPolicy"),
		appsv1.OrderedReadyPodManagement, appsv1.ParallelPodManagement)
	at := path.Child("updateStrategy")
	errs = append(errs, oneOf(spec.UpdateStrategy.Type, at.Child("type"),
		appsv1.RollingUpdateStatefulSetStrategyType, appsv1.OnDeleteStatefulSetStrategyType)...)
	if rolling := spec.UpdateStrategy.RollingUpdate; rolling != nil {
		if spec.UpdateStrategy.Type == appsv1.OnDeleteStatefulSetStrategyType {
			errs = append(errs, field.Invalid(at.Child("rollingUpdate"), field.OmitValueType{},
				"only with type RollingUpdate"))
		}
		errs = append(errs, fieldcheck.Amount(rolling.MaxUnavailable,
			at.Child("rollingUpdate", "maxUnavailable"))...)
	}
	if policy := spec.PersistentVolumeClaimRetentionPolicy; policy != nil {
		at := path.Child("persistentVolumeClaimRetentionPolicy")
		errs = append(errs, oneOf(policy.WhenDeleted, at.Child("whenDeleted"),
			appsv1.RetainPersistentVolumeClaimRetentionPolicyType,
			appsv1.DeletePersistentVolumeClaimRetentionPolicyType)...)
		errs = append(errs, oneOf(policy.WhenScaled, at.Child("whenScaled"),
			appsv1.RetainPersistentVolumeClaimRetentionPolicyType,
			appsv1.DeletePersistentVolumeClaimRetentionPolicyType)...)
	}
	if spec.Ordinals != nil {
		errs = append(errs, fieldcheck.NotNegative(&spec.Ordinals.Start, path.Child("ordinals", "start"))...)
	}

	return append(errs, fieldcheck.NotNegative(&spec.MinReadySeconds, path.Child("minReadySeconds"))...)
}

// defaultDeadline is the progressDeadlineSeconds that the API server gives a Deployment without one.
const defaultDeadline = 600

// judgeDeployment judges a spec of Deployments, but for its template.
func judgeDeployment(spec *appsv1.DeploymentSpec, path *field.Path) field.ErrorList {
	at := path.Child("strategy")
	errs := oneOf(spec.Strategy.Type, at.Child("type"), appsv1.RollingUpdateDeploymentStrategyType,
		appsv1.RecreateDeploymentStrategyType)
	if rolling := spec.Strategy.RollingUpdate; rolling != nil {
		at := at.Child("rollingUpdate")
		if spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType {
			errs = append(errs, field.Forbidden(at, "only with type RollingUpdate"))
		}
		pace := append(fieldcheck.Amount(rolling.MaxUnavailable, at.Child("maxUnavailable")),
			fieldcheck.Amount(rolling.MaxSurge, at.Child("maxSurge"))...)
		errs = append(errs, pace...)
		if len(pace) == 0 && isZero(rolling.MaxUnavailable) && isZero(rolling.MaxSurge) {
			errs = append(errs, field.Invalid(at.Child("maxUnavailable"), rolling.MaxUnavailable.String(),
				"must not be 0 while maxSurge is 0"))
		}
	}
	errs = append(errs, fieldcheck.NotNegative(&spec.MinReadySeconds, path.Child("minReadySeconds"))...)
	errs = append(errs, fieldcheck.NotNegative(spec.RevisionHistoryLimit,
		path.Child("revisionHistoryLimit"))...)
	at = path.Child("progressDeadlineSeconds")
	if deadline := spec.ProgressDeadlineSeconds; deadline == nil && spec.MinReadySeconds >= defaultDeadline {
		errs = append(errs, field.Required(at,
			fmt.Sprintf("must be greater than minReadySeconds, and is %d where it is left out",
				defaultDeadline)))
	} else if deadline != nil {
		errs = append(errs, fieldcheck.NotNegative(deadline, at)...)
		if *deadline >= 0 && *deadline <= spec.MinReadySeconds {
			errs = append(errs, field.Invalid(at, *deadline, "must be greater than minReadySeconds"))
		}
	}

	return errs
}

func isZero(value *intstr.IntOrString) bool {
	return value != nil && (value.Type == intstr.Int && value.IntVal == 0 ||
		value.Type == intstr.String && value.StrVal == "0%")
}

// oneOf judges a field that has few values, or is left out.
func oneOf[T ~string](value T, path *field.Path, values ...T) field.ErrorList {
	for _, possible := range values {
		if value == possible || value == "" {
			return nil
		}
	}
	return field.ErrorList{field.NotSupported(path, value, values)}
}

// validateTemplateUpdate judges what an update changes in a template that stays that of its kind (UD-048 to
// UD-051).
func validateTemplateUpdate(
	updated, old *appsv1beta1.UnitedDeployment, rules Rules, path *field.Path,
) field.ErrorList {
	child, err := usedBy(updated)
	before, wrong := usedBy(old)
	if err != nil || wrong != nil || child.Kind != before.Kind {
		return nil
	}

	switch child.Kind {
	case StatefulSet:
		changed := frozen(&updated.Spec.Template.StatefulSetTemplate.Spec,
			&old.Spec.Template.StatefulSetTemplate.Spec)
		if len(changed) > 0 {
			return field.ErrorList{field.Forbidden(path.Child(string(StatefulSet), "spec"),
				"updates of fields other than 'template', 'updateStrategy', 'persistentVolumeClaimRetentionPolicy', 'minReadySeconds' and 'ordinals' are forbidden; "+strings.Join(changed,
					" and ")+" was changed")}
		}
	case AdvancedStatefulSet:
		now, err := child.advanced(updated, rules)
		was, wrong := before.advanced(old, rules)
		if err == nil && wrong == nil {
			return child.placed(fieldcheck.Fresh(statefulset.Validate(now, was, rules.StatefulSet,
				rules.Classes), statefulset.Validate(now, nil, rules.StatefulSet, rules.Classes)))
		}
	case CloneSet:
		now, err := child.cloneSet(updated)
		was, wrong := before.cloneSet(old)
		if err == nil && wrong == nil {
			return child.placed(fieldcheck.Fresh(cloneset.Validate(now, was, rules.CloneSet),
				cloneset.Validate(now, nil, rules.CloneSet)))
		}
	}

	return nil
}

// frozen names the fields of a StatefulSet that differ, and cannot be changed. Selector and replicas are not
// used.
func frozen(updated, old *appsv1.StatefulSetSpec) (changed []string) {
	modes := func(claims []corev1.PersistentVolumeClaim) []corev1.PersistentVolumeClaim {
		var out []corev1.PersistentVolumeClaim
		for i := range claims {
			claim := corev1.PersistentVolumeClaim{ObjectMeta: claims[i].ObjectMeta,
				Spec: *claims[i].Spec.DeepCopy()}
			if claim.Spec.VolumeMode == nil { // the API server's default
				mode := corev1.PersistentVolumeFilesystem
				claim.Spec.VolumeMode = &mode
			}
			out = append(out, claim)
		}
		return out
	}

	for _, member := range []struct {
		name         string
		now, earlier any
	}{{"serviceName", updated.ServiceName, old.ServiceName},
		{"podManagementPolicy", updated.PodManagementPolicy, old.PodManagementPolicy},
		{"volumeClaimTemplates", modes(updated.VolumeClaimTemplates), modes(old.VolumeClaimTemplates)},
		{"revisionHistoryLimit", updated.RevisionHistoryLimit, old.RevisionHistoryLimit}} {
		if !equality.Semantic.DeepEqual(member.now, member.earlier) {
			changed = append(changed, member.name)
		}
	}

	return changed
}
