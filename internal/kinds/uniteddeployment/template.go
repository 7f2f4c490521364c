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

// The templates of the four kinds by their keys (UD-002).
const (
	statefulSetTemplate         = "statefulSetTemplate"
	advancedStatefulSetTemplate = "advancedStatefulSetTemplate"
	cloneSetTemplate            = "cloneSetTemplate"
	deploymentTemplate          = "deploymentTemplate"
)

var templateKeys = []string{statefulSetTemplate, advancedStatefulSetTemplate, cloneSetTemplate, deploymentTemplate}

const (
	// longestStatefulSet is how long the name of a StatefulSet can be: its pods have a label with the name and a hash.
	longestStatefulSet = 63 - len("-") - 10
	// generated is what is appended to the prefix of a workload's name, and longestPrefix what is kept of one.
	generated, longestPrefix = 5, 58
	// unused is said of what the controller overwrites.
	unused = "will not be used: the controller sets it for each subset; remove it"
)

// Rules are those by which the kinds of workloads judge.
type Rules struct {
	StatefulSet statefulset.Gates
	Classes     statefulset.Classes
	// CloneSet is what may change under InPlaceOnly.
	CloneSet inplace.Options
}

// Child is the template of a UnitedDeployment that is used.
type Child struct {
	// Key is that in spec.template, Path the path of its template.
	Key  string
	Path *field.Path
	// Document is like an object of the kind, with metadata and spec.
	Document Document
}

// ChildOf is the one template of a UnitedDeployment. given is how many there are; it is nil unless there is one.
func ChildOf(united *appsv1beta1.UnitedDeployment) (child *Child, given int) {
	text, err := json.Marshal(united.Spec.Template)
	var all Document
	if err != nil || json.Unmarshal(text, &all) != nil {
		return nil, 0
	}
	for _, key := range templateKeys {
		if all[key] == nil {
			continue
		}
		given++
		document, _ := all[key].(Document)
		child = &Child{Key: key, Path: field.NewPath("spec", "template", key), Document: document}
	}
	if given != 1 || child.Document == nil {
		return nil, given
	}
	return child, given
}

// validateTemplate judges the template (UD-023 to UD-028), but for the rules of the API server on pods.
func validateTemplate(united *appsv1beta1.UnitedDeployment, rules Rules, path *field.Path) field.ErrorList {
	if err := united.Spec.Template.DecodeError(); err != nil {
		return field.ErrorList{field.Invalid(path, field.OmitValueType{}, err.Error())}
	}
	child, given := ChildOf(united)
	switch {
	case given == 0:
		return field.ErrorList{field.Required(path, "one of "+strings.Join(templateKeys, ", ")+" must say what the workloads are like")}
	case child == nil:
		return field.ErrorList{field.Invalid(path, given, "exactly one of "+strings.Join(templateKeys, ", ")+" may be set")}
	}
	var errs field.ErrorList
	spec, strategy := within(child.Document, "spec"), within(child.Document, "spec", "updateStrategy")
	ordinals := child.Key == statefulSetTemplate || child.Key == advancedStatefulSetTemplate
	if child.Key != cloneSetTemplate {
		if spec["replicas"] != nil { // UD-025
			errs = append(errs, field.Invalid(child.Path.Child("spec", "replicas"), spec["replicas"], unused))
		}
		matcher, err := metav1.LabelSelectorAsSelector(united.Spec.Selector)
		given := labelsOf(child.Document)
		if united.Spec.Selector != nil && err == nil && !matcher.Matches(given) { // UD-024
			errs = append(errs, field.Invalid(child.Path.Child("metadata", "labels"), given.String(),
				"selector does not match the labels of the workloads: they must have what spec.selector asks for"))
		}
	}
	rolling := within(strategy, "rollingUpdate")
	if ordinals && strategy["type"] == "RollingUpdate" && rolling["partition"] != nil { // UD-026
		errs = append(errs, field.Invalid(child.Path.Child("spec", "updateStrategy", "rollingUpdate", "partition"), rolling["partition"],
			unused))
	}
	if ordinals {
		for i := range united.Spec.Topology.Subsets {
			s := &united.Spec.Topology.Subsets[i]
			if name := longestChild(united, s); len(name) > longestStatefulSet {
				errs = append(errs, field.Invalid(field.NewPath("spec", "topology", "subsets").Index(i).Child("name"), s.Name, fmt.Sprintf(
					"the StatefulSet would be named %s, which has %d characters: %d is the most, because pods carry a label with the name and a hash", name, len(name), longestStatefulSet)))
			}
		}
	}
	return append(errs, child.judge(united, rules)...)
}

func labelsOf(document Document) labels.Set {
	set := labels.Set{}
	for key, value := range within(document, "metadata", "labels") {
		set[key], _ = value.(string)
	}
	return set
}

// longestChild is a name that the workload of the subset may get (UD-064).
func longestChild(united *appsv1beta1.UnitedDeployment, s *appsv1beta1.Subset) string {
	name := united.Name
	if name == "" {
		name = united.GenerateName + strings.Repeat("x", generated)
	}
	prefix := name + "-" + s.Name + "-"
	return prefix[:min(len(prefix), longestPrefix)] + strings.Repeat("x", generated)
}

// judge applies the rules of the child's kind.
func (c *Child) judge(united *appsv1beta1.UnitedDeployment, rules Rules) field.ErrorList {
	var errs field.ErrorList
	switch c.Key {
	case statefulSetTemplate:
		errs = judgeStatefulSet(&united.Spec.Template.StatefulSetTemplate.Spec, field.NewPath("spec"))
		errs = append(errs, c.judgePods("StatefulSet", united)...)
	case deploymentTemplate:
		errs = judgeDeployment(&united.Spec.Template.DeploymentTemplate.Spec, field.NewPath("spec"))
		errs = append(errs, c.judgePods("Deployment", united)...)
	case advancedStatefulSetTemplate:
		set, err := c.advanced(united, rules)
		if err != nil {
			return field.ErrorList{field.Invalid(c.Path, field.OmitValueType{}, err.Error())}
		}
		errs = statefulset.Validate(set, nil, rules.StatefulSet, rules.Classes)
	case cloneSetTemplate:
		set, err := c.cloneSet(united)
		if err != nil {
			return field.ErrorList{field.Invalid(c.Path, field.OmitValueType{}, err.Error())}
		}
		errs = cloneset.Validate(set, nil, rules.CloneSet)
	}
	return c.placed(errs)
}

// placed moves errors of a child to its template. Those of its name and its selector are those of the UnitedDeployment, which are judged
// apart.
func (c *Child) placed(errs field.ErrorList) field.ErrorList {
	var placed field.ErrorList
	for _, err := range errs {
		if strings.HasPrefix(err.Field, "metadata.") || err.Field == "spec.selector" || strings.HasPrefix(err.Field, "spec.selector.") {
			continue
		}
		err.Field = c.Path.String() + "." + err.Field
		placed = append(placed, err)
	}
	return placed
}

// judgePods judges the pod template and the claim templates of a kind of Kubernetes.
func (c *Child) judgePods(kind string, united *appsv1beta1.UnitedDeployment) field.ErrorList {
	path, spec := field.NewPath("spec"), within(c.Document, "spec")
	var pods template.PodTemplate
	var claims template.VolumeClaimTemplates
	reread(spec["template"], &pods)
	reread(spec["volumeClaimTemplates"], &claims)
	errs := fieldcheck.Template(kind, &pods, united.Spec.Selector, path)
	return append(errs, fieldcheck.Claims(claims, nil, 253-longestPrefix-generated-len("--")-10, path.Child("volumeClaimTemplates"))...)
}

// reread decodes a value of a document into a type that takes anything.
func reread(value any, into json.Unmarshaler) {
	if text, err := json.Marshal(value); err == nil {
		_ = into.UnmarshalJSON(text) //nolint:errcheck // it has its own DecodeError
	}
}

// advanced is the child as its own webhooks see it.
func (c *Child) advanced(united *appsv1beta1.UnitedDeployment, rules Rules) (*statefulset.Written, error) {
	object := c.object(united, "partition")
	operations, err := statefulset.Default(statefulset.DefaultRequest{Gates: rules.StatefulSet, Version: appsv1beta1.GroupVersion.Version,
		New: object})
	if err != nil {
		return nil, err
	}
	set := &appsv1beta1.StatefulSet{}
	err = complete(object, operations, set)
	return statefulset.WrittenInV1beta1(set), err
}

// cloneSet is the child as its own webhooks see it.
func (c *Child) cloneSet(united *appsv1beta1.UnitedDeployment) (*cloneset.Written, error) {
	object := c.object(united, "partition")
	operations, err := cloneset.Default(cloneset.DefaultRequest{Version: appsv1beta1.GroupVersion.Version, New: object})
	if err != nil {
		return nil, err
	}
	set := &appsv1beta1.CloneSet{}
	err = complete(object, operations, set)
	return cloneset.WrittenInV1beta1(set), err
}

// object is the child with the selector and the longest name that it may get, without replicas, and without what is overwritten below
// rollingUpdate.
func (c *Child) object(united *appsv1beta1.UnitedDeployment, overwritten string) Document {
	spec := cloned(c.Document, "spec")
	delete(spec, "replicas")
	spec["selector"] = united.Spec.Selector
	if within(spec, "updateStrategy", "rollingUpdate") != nil {
		strategy := cloned(spec, "updateStrategy")
		rolling := cloned(strategy, "rollingUpdate")
		delete(rolling, overwritten)
		strategy["rollingUpdate"], spec["updateStrategy"] = rolling, strategy
	}
	name := longestChild(united, &appsv1beta1.Subset{})
	for i := range united.Spec.Topology.Subsets {
		if longer := longestChild(united, &united.Spec.Topology.Subsets[i]); len(longer) > len(name) {
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

// judgeStatefulSet judges a spec of Kubernetes' StatefulSets, but for its templates (UD-027). Empty policies are those of the API server.
func judgeStatefulSet(spec *appsv1.StatefulSetSpec, path *field.Path) field.ErrorList {
	errs := oneOf(spec.PodManagementPolicy, path.Child("podManagementPolicy"), appsv1.OrderedReadyPodManagement, appsv1.ParallelPodManagement)
	at := path.Child("updateStrategy")
	errs = append(errs, oneOf(spec.UpdateStrategy.Type, at.Child("type"), appsv1.RollingUpdateStatefulSetStrategyType,
		appsv1.OnDeleteStatefulSetStrategyType)...)
	if rolling := spec.UpdateStrategy.RollingUpdate; rolling != nil {
		if spec.UpdateStrategy.Type == appsv1.OnDeleteStatefulSetStrategyType {
			errs = append(errs, field.Invalid(at.Child("rollingUpdate"), field.OmitValueType{}, "only with type RollingUpdate"))
		}
		errs = append(errs, fieldcheck.Amount(rolling.MaxUnavailable, at.Child("rollingUpdate", "maxUnavailable"))...)
	}
	if policy := spec.PersistentVolumeClaimRetentionPolicy; policy != nil {
		at := path.Child("persistentVolumeClaimRetentionPolicy")
		errs = append(errs, oneOf(policy.WhenDeleted, at.Child("whenDeleted"), appsv1.RetainPersistentVolumeClaimRetentionPolicyType,
			appsv1.DeletePersistentVolumeClaimRetentionPolicyType)...)
		errs = append(errs, oneOf(policy.WhenScaled, at.Child("whenScaled"), appsv1.RetainPersistentVolumeClaimRetentionPolicyType,
			appsv1.DeletePersistentVolumeClaimRetentionPolicyType)...)
	}
	if spec.Ordinals != nil {
		errs = append(errs, fieldcheck.NotNegative(&spec.Ordinals.Start, path.Child("ordinals", "start"))...)
	}
	return append(errs, fieldcheck.NotNegative(&spec.MinReadySeconds, path.Child("minReadySeconds"))...)
}

// judgeDeployment judges a spec of Deployments, but for its template (UD-028).
func judgeDeployment(spec *appsv1.DeploymentSpec, path *field.Path) field.ErrorList {
	at := path.Child("strategy")
	errs := oneOf(spec.Strategy.Type, at.Child("type"), appsv1.RollingUpdateDeploymentStrategyType, appsv1.RecreateDeploymentStrategyType)
	if rolling := spec.Strategy.RollingUpdate; rolling != nil {
		at := at.Child("rollingUpdate")
		if spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType {
			errs = append(errs, field.Forbidden(at, "only with type RollingUpdate"))
		}
		pace := append(fieldcheck.Amount(rolling.MaxUnavailable, at.Child("maxUnavailable")),
			fieldcheck.Amount(rolling.MaxSurge, at.Child("maxSurge"))...)
		errs = append(errs, pace...)
		if len(pace) == 0 && isZero(rolling.MaxUnavailable) && isZero(rolling.MaxSurge) {
			errs = append(errs, field.Invalid(at.Child("maxUnavailable"), rolling.MaxUnavailable.String(), "must not be 0 while maxSurge is 0"))
		}
	}
	errs = append(errs, fieldcheck.NotNegative(&spec.MinReadySeconds, path.Child("minReadySeconds"))...)
	errs = append(errs, fieldcheck.NotNegative(spec.RevisionHistoryLimit, path.Child("revisionHistoryLimit"))...)
	if deadline := spec.ProgressDeadlineSeconds; deadline != nil {
		at := path.Child("progressDeadlineSeconds")
		errs = append(errs, fieldcheck.NotNegative(deadline, at)...)
		if *deadline >= 0 && *deadline <= spec.MinReadySeconds {
			errs = append(errs, field.Invalid(at, *deadline, "must be greater than minReadySeconds"))
		}
	}
	return errs
}

func isZero(value *intstr.IntOrString) bool {
	return value != nil && (value.Type == intstr.Int && value.IntVal == 0 || value.Type == intstr.String && value.StrVal == "0%")
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

// validateTemplateUpdate judges what an update changes in a template that stays that of its kind (UD-048 to UD-051).
func validateTemplateUpdate(updated, old *appsv1beta1.UnitedDeployment, rules Rules, path *field.Path) field.ErrorList {
	child, _ := ChildOf(updated)
	before, _ := ChildOf(old)
	if child == nil || before == nil || child.Key != before.Key || updated.Spec.Template.DecodeError() != nil ||
		old.Spec.Template.DecodeError() != nil {
		return nil
	}
	switch child.Key {
	case statefulSetTemplate:
		changed := frozen(&updated.Spec.Template.StatefulSetTemplate.Spec, &old.Spec.Template.StatefulSetTemplate.Spec)
		if len(changed) > 0 {
			return field.ErrorList{field.Forbidden(path.Child(statefulSetTemplate, "spec"), "updates of fields other than 'template', 'updateStrategy', 'persistentVolumeClaimRetentionPolicy', 'minReadySeconds' and 'ordinals' are forbidden; "+strings.Join(changed, " and ")+" was changed")}
		}
	case advancedStatefulSetTemplate:
		now, err := child.advanced(updated, rules)
		was, wrong := before.advanced(old, rules)
		if err == nil && wrong == nil {
			return child.placed(fieldcheck.Fresh(statefulset.Validate(now, was, rules.StatefulSet, rules.Classes),
				statefulset.Validate(now, nil, rules.StatefulSet, rules.Classes)))
		}
	case cloneSetTemplate:
		now, err := child.cloneSet(updated)
		was, wrong := before.cloneSet(old)
		if err == nil && wrong == nil {
			return child.placed(fieldcheck.Fresh(cloneset.Validate(now, was, rules.CloneSet), cloneset.Validate(now, nil, rules.CloneSet)))
		}
	}
	return nil
}

// frozen names the fields of a StatefulSet that differ, and cannot be changed (UD-048). Selector and replicas are not used.
func frozen(updated, old *appsv1.StatefulSetSpec) (changed []string) {
	modes := func(claims []corev1.PersistentVolumeClaim) []corev1.PersistentVolumeClaim {
		var out []corev1.PersistentVolumeClaim
		for i := range claims {
			claim := corev1.PersistentVolumeClaim{ObjectMeta: claims[i].ObjectMeta, Spec: *claims[i].Spec.DeepCopy()}
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
	}{{"serviceName", updated.ServiceName, old.ServiceName}, {"podManagementPolicy", updated.PodManagementPolicy, old.PodManagementPolicy},
		{"volumeClaimTemplates", modes(updated.VolumeClaimTemplates), modes(old.VolumeClaimTemplates)},
		{"revisionHistoryLimit", updated.RevisionHistoryLimit, old.RevisionHistoryLimit}} {
		if !equality.Semantic.DeepEqual(member.now, member.earlier) {
			changed = append(changed, member.name)
		}
	}
	return changed
}
