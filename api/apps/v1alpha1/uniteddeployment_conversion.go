package v1alpha1

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/afloat-project/afloat/api/apps/v1beta1"
)

// Conversion of UnitedDeployments (UD-150 to UD-153). The versions differ in two things: parts of the status are maps in v1alpha1, and
// v1alpha1 takes CloneSets in the form of its own version, too (UD-161), which is never shown again.

// ToV1beta1 returns the UnitedDeployment in the v1beta1 form. It does not modify in.
func (in *UnitedDeployment) ToV1beta1() *v1beta1.UnitedDeployment {
	in = in.DeepCopy()
	out := &v1beta1.UnitedDeployment{ObjectMeta: in.ObjectMeta,
		Spec:   v1beta1.UnitedDeploymentSpec{UnitedDeploymentScheme: in.Spec.UnitedDeploymentScheme},
		Status: v1beta1.UnitedDeploymentStatus{UnitedDeploymentCounters: in.Status.UnitedDeploymentCounters}}
	if !in.Spec.Template.IsZero() {
		decode(ModernSubsetTemplate(encode(in.Spec.Template)), &out.Spec.Template)
	}
	each := func(values map[string]int32, field func(*v1beta1.UnitedDeploymentSubsetStatus) *int32) {
		for _, name := range slices.Sorted(maps.Keys(values)) {
			named := func(s v1beta1.UnitedDeploymentSubsetStatus) bool { return s.Name == name }
			at := slices.IndexFunc(out.Status.SubsetStatuses, named)
			if at < 0 {
				at = len(out.Status.SubsetStatuses)
				out.Status.SubsetStatuses = append(out.Status.SubsetStatuses, v1beta1.UnitedDeploymentSubsetStatus{Name: name})
			}
			*field(&out.Status.SubsetStatuses[at]) = values[name]
		}
	}
	each(in.Status.SubsetReplicas, func(s *v1beta1.UnitedDeploymentSubsetStatus) *int32 { return &s.Replicas })
	if update := in.Status.UpdateStatus; update != nil {
		out.Status.UpdatedRevision = update.UpdatedRevision
		each(update.CurrentPartitions, func(s *v1beta1.UnitedDeploymentSubsetStatus) *int32 { return &s.Partition })
	}
	return out
}

// UnitedDeploymentFromV1beta1 returns the UnitedDeployment in the v1alpha1 form. It does not modify in.
func UnitedDeploymentFromV1beta1(in *v1beta1.UnitedDeployment) *UnitedDeployment {
	in = in.DeepCopy()
	out := &UnitedDeployment{ObjectMeta: in.ObjectMeta,
		Spec:   UnitedDeploymentSpec{UnitedDeploymentScheme: in.Spec.UnitedDeploymentScheme},
		Status: UnitedDeploymentStatus{UnitedDeploymentCounters: in.Status.UnitedDeploymentCounters}}
	if !in.Spec.Template.IsZero() {
		decode(encode(in.Spec.Template), &out.Spec.Template)
	}
	statuses := in.Status.SubsetStatuses
	if len(statuses) == 0 && in.Status.UpdatedRevision == "" {
		return out
	}
	out.Status.UpdateStatus = &UpdateStatus{UpdatedRevision: in.Status.UpdatedRevision}
	for i := len(statuses) - 1; i >= 0; i-- { // of several with one name, the first holds when they come back
		name := statuses[i].Name
		if name == "" {
			continue
		}
		if out.Status.SubsetReplicas == nil {
			out.Status.SubsetReplicas, out.Status.UpdateStatus.CurrentPartitions = map[string]int32{}, map[string]int32{}
		}
		out.Status.SubsetReplicas[name] = statuses[i].Replicas
		out.Status.UpdateStatus.CurrentPartitions[name] = statuses[i].Partition
	}
	return out
}

// MovedInUnitedDeployments are the fields of updateStrategy that CloneSets have below rollingUpdate since v1beta1 (UD-161).
var MovedInUnitedDeployments = []string{"partition", "maxUnavailable", "maxSurge", "paused", "priorityStrategy", "scatterStrategy",
	"inPlaceUpdateStrategy"}

type members = map[string]json.RawMessage

// ModernSubsetTemplate returns the document of a template with what CloneSets have in other places since v1beta1 moved there, as conversion
// of CloneSets does (UD-161). What stands in the new place wins. A document without such places is returned as it is, and so is one that is
// not of the form of a template.
//
// A schema default makes enablePVCReuse false where nobody wrote it. So it is taken for unsaid in a CloneSet of the old form, where claims
// are reused unless disablePVCReuse is true.
func ModernSubsetTemplate(document []byte) []byte {
	var template, cloneSet, spec, strategy, scale, rolling members
	if !decode(document, &template) || !decode(template["cloneSetTemplate"], &cloneSet) || !decode(cloneSet["spec"], &spec) {
		return document
	}
	decode(spec["updateStrategy"], &strategy)
	decode(spec["scaleStrategy"], &scale)
	decode(strategy["rollingUpdate"], &rolling)
	var kind CloneSetUpdateStrategyType
	decode(strategy["type"], &kind)
	modern, policy := betaType(kind)

	old := kind != "" && string(modern) != string(kind)
	disable, said := scale["disablePVCReuse"]
	old = old || said
	for _, key := range MovedInUnitedDeployments {
		_, flat := strategy[key]
		old = old || flat
	}
	if !old {
		return document
	}
	delete(scale, "disablePVCReuse")
	put(&scale, "enablePVCReuse", encode(string(scale["enablePVCReuse"]) == "true" || string(disable) != "true"))
	put(&spec, "scaleStrategy", encode(scale))
	if len(strategy) > 0 {
		put(&strategy, "type", encode(modern))
		if policy != "" {
			move(&rolling, "podUpdatePolicy", encode(policy))
		}
		for _, key := range MovedInUnitedDeployments {
			move(&rolling, key, strategy[key])
			delete(strategy, key)
		}
		if len(rolling) > 0 {
			strategy["rollingUpdate"] = encode(rolling)
		}
		spec["updateStrategy"] = encode(strategy)
	}
	cloneSet["spec"] = encode(spec)
	template["cloneSetTemplate"] = encode(cloneSet)
	return encode(template)
}

// move puts a value in its new place, unless there is none, or the place has one.
func move(to *members, key string, value json.RawMessage) {
	if there, ok := (*to)[key]; len(value) > 0 && string(value) != "null" && (!ok || string(there) == "null" || string(there) == `""`) {
		put(to, key, value)
	}
}

func put(to *members, key string, value json.RawMessage) {
	if *to == nil {
		*to = members{}
	}
	(*to)[key] = value
}
