package statefulset

import (
	"bytes"
	"encoding/json"
	"maps"
	"strings"

	"github.com/go-openapi/jsonpointer"
	"gomodules.xyz/jsonpatch/v2"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/inplace"
	"github.com/afloat-project/afloat/internal/engine/podtemplate"
)

// Document is a JSON object as it appears in an admission request.
type Document = podtemplate.Document

// Gates are the feature gates that affect what may be written.
type Gates struct {
	// AutoDeletePVC is StatefulSetAutoDeletePVC, AutoResizePVC is StatefulSetAutoResizePVCGate, and
	// StartOrdinal is StatefulSetStartOrdinal.
	AutoDeletePVC, AutoResizePVC, StartOrdinal bool
	// InPlace is what may change under InPlaceOnly (ASTS-051, ASTS-052).
	InPlace inplace.Options
}

// DefaultRequest holds what is needed to fill in the fields that a user left out of a StatefulSet.
type DefaultRequest struct {
	podtemplate.Request
	Gates
	// Version is the API version of the document, v1alpha1 or v1beta1.
	Version string
	// New is the document to be completed. It is not modified.
	New Document
	// Old is the stored document. It is nil on create.
	Old Document
}

// Default returns the JSON patch that completes a StatefulSet (ASTS-014 to ASTS-021, ASTS-023). It only adds
// what is missing, so unknown fields stay as they are. If the API server returns an error, the other defaults
// are returned with it.
func Default(r DefaultRequest) ([]jsonpatch.Operation, error) {
	spec, ok := r.New["spec"].(Document)
	if !ok {
		return nil, nil // the schema or validation rejects it
	}

	var d podtemplate.Defaults
	d.Add(spec, "/spec", "replicas", 1)
	d.Add(spec, "/spec", "revisionHistoryLimit", 10)
	d.Add(spec, "/spec", "podManagementPolicy", appsv1beta1.OrderedReadyPodManagement)
	d.Object(spec, "/spec", "updateStrategy", func(d *podtemplate.Defaults, o Document, pointer string) {
		if d.Add(o, pointer, "type", "RollingUpdate") == "RollingUpdate" {
			d.Object(o, pointer, "rollingUpdate", defaultRolling)
		}
	})
	if r.Version == appsv1alpha1.GroupVersion.Version {
		r.annotation(&d)
	} else {
		r.options(&d, spec, "/spec")
	}
	old, _ := r.Old["spec"].(Document)
	err := d.Templates(spec, old, r.Request)
	return d.Operations, err
}

func defaultRolling(d *podtemplate.Defaults, o Document, pointer string) {
	d.Add(o, pointer, "partition", 0)
	d.Add(o, pointer, "maxUnavailable", 1)
	d.Add(o, pointer, "podUpdatePolicy", appsv1beta1.ReCreateStatefulSetPodUpdatePolicy)
	d.Add(o, pointer, "minReadySeconds", 0)
}

// options completes the fields that only v1beta1 has.
func (r *DefaultRequest) options(d *podtemplate.Defaults, options Document, pointer string) {
	if r.AutoDeletePVC {
		d.Object(options, pointer, "persistentVolumeClaimRetentionPolicy",
			func(d *podtemplate.Defaults, o Document, pointer string) {
				d.Add(o, pointer, "whenDeleted", appsv1beta1.RetainStatefulSetClaims)
				d.Add(o, pointer, "whenScaled", appsv1beta1.RetainStatefulSetClaims)
			})
	}
	if r.AutoResizePVC {
		d.Object(options, pointer, "volumeClaimUpdateStrategy",
			func(d *podtemplate.Defaults, o Document, pointer string) {
				d.Add(o, pointer, "type", appsv1beta1.OnPVCDeleteStatefulSetClaimUpdate)
			})
	}
}

// annotation completes the same fields in the annotation that holds them in v1alpha1. If the annotation
// cannot be parsed, validation reports it.
func (r *DefaultRequest) annotation(d *podtemplate.Defaults) {
	meta, _ := r.New["metadata"].(Document)
	annotations, _ := meta["annotations"].(Document)
	options := Document{}
	if text, ok := annotations[pub.V1beta1OnlyFields].(string); ok {
		decoder := json.NewDecoder(bytes.NewReader([]byte(text)))
		decoder.UseNumber()
		if decoder.Decode(&options) != nil || options == nil {
			return
		}
	}

	var inner podtemplate.Defaults
	r.options(&inner, options, "")
	if len(inner.Operations) == 0 {
		return
	}

	for _, op := range inner.Operations {
		set(options, strings.Split(op.Path, "/")[1:], op.Value)
	}

	text, err := json.Marshal(options)
	switch {
	case err != nil: // impossible, because it was parsed from JSON
	case annotations == nil:
		d.Operations = append(d.Operations,
			jsonpatch.NewOperation("add", "/metadata/annotations",
				Document{pub.V1beta1OnlyFields: string(text)}))
	default:
		d.Operations = append(d.Operations,
			jsonpatch.NewOperation("add", "/metadata/annotations/"+jsonpointer.Escape(pub.V1beta1OnlyFields),
				string(text)))
	}
}

// set sets the value at a path. The objects on the path must exist.
func set(object Document, path []string, value any) {
	for ; len(path) > 1; path = path[1:] {
		object, _ = object[path[0]].(Document)
	}
	if made, ok := value.(Document); ok {
		value = maps.Clone(made)
	}
	object[path[0]] = value
}
