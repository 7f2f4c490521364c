package uniteddeployment

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/go-openapi/jsonpointer"
	"gomodules.xyz/jsonpatch/v2"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/podtemplate"
)

// Document is a JSON object as contained in an admission request.
type Document = podtemplate.Document

// DefaultRequest is the input of Default.
type DefaultRequest struct {
	// Complete returns a pod template as the API server would default it. It is nil with the gate
	// TemplateNoDefaults.
	Complete func(template Document) (Document, error)
	// New is the document to be defaulted, of either version. It is not modified.
	New Document
	// Old is the stored document in the same version, or nil on creation.
	Old Document
}

// Default returns the JSON patch that defaults a UnitedDeployment (UD-010 to UD-013). It adds missing fields;
// oldForm describes the only ones that it changes. If the API server returns an error, Default returns it
// together with the other defaults.
func Default(r DefaultRequest) ([]jsonpatch.Operation, error) {
	spec, ok := r.New["spec"].(Document)
	if !ok {
		return nil, nil // the schema or validation rejects it
	}

	var d podtemplate.Defaults
	subsets := subsetsOf(spec)
	d.Add(spec, "/spec", "replicas", Replicas(nil, subsets))
	d.Add(spec, "/spec", "revisionHistoryLimit", defaultHistory)
	d.Object(spec, "/spec", "updateStrategy", func(d *podtemplate.Defaults, o Document, pointer string) {
		if d.Add(o, pointer, "type", string(appsv1beta1.ManualUnitedDeploymentUpdateStrategyType)) ==
			string(appsv1beta1.ManualUnitedDeploymentUpdateStrategyType) {
			d.Object(o, pointer, "manualUpdate", func(*podtemplate.Defaults, Document, string) {})
		}
	})
	defaultMinimums(&d, spec, subsets)
	oldForm(&d, spec, within(r.Old, "spec"))
	return d.Operations, r.templates(&d, spec)
}

// within returns the object at a path, or nil if there is none.
func within(object Document, path ...string) Document {
	for _, key := range path {
		object, _ = object[key].(Document)
	}
	return object
}

// subsetsOf returns the subsets of a spec. It returns none if they do not fit the types, since validation
// rejects them then.
func subsetsOf(spec Document) []appsv1beta1.Subset {
	var subsets []appsv1beta1.Subset
	if text, err := json.Marshal(within(spec, "topology")["subsets"]); err != nil ||
		json.Unmarshal(text, &subsets) != nil {
		return nil
	}
	return subsets
}

// defaultHistory is the default of revisionHistoryLimit.
const defaultHistory = 10

// defaultMinimums sets the missing minima if any subset has a minimum or a maximum, and none has a fixed
// number.
func defaultMinimums(d *podtemplate.Defaults, spec Document, subsets []appsv1beta1.Subset) {
	fixed := func(s appsv1beta1.Subset) bool { return s.Replicas != nil }
	if !Elastic(subsets) || slices.ContainsFunc(subsets, fixed) {
		return
	}
	given, _ := within(spec, "topology")["subsets"].([]any)
	for i, item := range given {
		if subset, ok := item.(Document); ok && subset["minReplicas"] == nil {
			d.Operations = append(d.Operations,
				jsonpatch.NewOperation("add", pointer("spec", "topology", "subsets", i, "minReplicas"), 0))
		}
	}
}

// templates defaults the pod template and the claim templates of native StatefulSets if the template is new
// or has changed.
func (r *DefaultRequest) templates(d *podtemplate.Defaults, spec Document) error {
	child := within(spec, "template", string(StatefulSet), "spec")
	if child == nil || r.Complete == nil || r.Old != nil && podtemplate.SameTemplate(r.New, r.Old) {
		return nil
	}

	var inner podtemplate.Defaults
	err := inner.Templates(child, within(r.Old, "spec", "template", string(StatefulSet), "spec"),
		podtemplate.Request{Complete: r.Complete, Plain: true})
	for _, operation := range inner.Operations {
		operation.Path = pointer("spec", "template", string(StatefulSet)) + operation.Path
		d.Operations = append(d.Operations, operation)
	}
	return err
}

// oldForm lets the fields that CloneSets had in v1alpha1 take precedence if an update leaves the new fields
// as stored. The author of such a manifest reads back an object that has the new fields only, and applying
// the manifest again results in both.
func oldForm(d *podtemplate.Defaults, spec, old Document) {
	child, stored := within(spec, "template", string(CloneSet), "spec"),
		within(old, "template", string(CloneSet), "spec")
	const enable = "enablePVCReuse"
	if scale := within(child, "scaleStrategy"); scale["disablePVCReuse"] == true && scale[enable] == true &&
		within(stored, "scaleStrategy")[enable] == true {
		d.Operations = append(d.Operations,
			jsonpatch.NewOperation("replace",
				pointer("spec", "template", string(CloneSet), "spec", "scaleStrategy", enable), false))
	}

	strategy, rolling := within(child, "updateStrategy"), within(child, "updateStrategy", "rollingUpdate")
	if rolling == nil || stored == nil ||
		!sameJSON(rolling, within(stored, "updateStrategy", "rollingUpdate")) {
		return
	}

	at := pointer("spec", "template", string(CloneSet), "spec", "updateStrategy", "rollingUpdate")
	for _, key := range appsv1alpha1.MovedInUnitedDeployments {
		if value := strategy[key]; value != nil && rolling[key] != nil && !sameJSON(value, rolling[key]) {
			d.Operations = append(d.Operations, jsonpatch.NewOperation("replace", at+"/"+key, value))
		}
	}

	switch kind := strategy["type"]; kind {
	case string(appsv1alpha1.RecreateCloneSetUpdateStrategyType),
		string(appsv1alpha1.InPlaceIfPossibleCloneSetUpdateStrategyType),
		string(appsv1alpha1.InPlaceOnlyCloneSetUpdateStrategyType):
		if rolling["podUpdatePolicy"] != nil && rolling["podUpdatePolicy"] != kind {
			d.Operations = append(d.Operations,
				jsonpatch.NewOperation("replace", at+"/podUpdatePolicy", kind))
		}
	}
}

// pointer returns the JSON pointer for a path.
func pointer(path ...any) string {
	text := ""
	for _, part := range path {
		text += "/" + jsonpointer.Escape(fmt.Sprint(part))
	}
	return text
}

func sameJSON(a, b any) bool {
	left, err := json.Marshal(a)
	if err != nil {
		return false
	}
	right, err := json.Marshal(b)
	return err == nil && string(left) == string(right)
}
