package cloneset

import (
	"gomodules.xyz/jsonpatch/v2"

	"github.com/afloat-project/afloat/internal/engine/podtemplate"
)

// Document is a JSON object as it appears in an admission request.
type Document = podtemplate.Document

// DefaultRequest holds what is needed to fill in the fields that a user left out of a CloneSet.
type DefaultRequest struct {
	podtemplate.Request
	// Version is the API version of the document, v1alpha1 or v1beta1.
	Version string
	// New is the document to be completed. It is not modified.
	New Document
	// Old is the stored document. It is nil on create.
	Old Document
}

// Default returns the JSON patch that completes a CloneSet (CS-010 to CS-015). It only adds what is missing,
// so unknown fields stay as they are. If the API server returns an error, the other defaults are returned
// with it.
func Default(r DefaultRequest) ([]jsonpatch.Operation, error) {
	spec, ok := r.New["spec"].(Document)
	if !ok {
		return nil, nil // the schema or validation rejects it
	}

	var d podtemplate.Defaults
	d.Add(spec, "/spec", "replicas", 1)
	d.Add(spec, "/spec", "revisionHistoryLimit", 10)
	defaultStrategy(&d, spec, r.Version)
	old, _ := r.Old["spec"].(Document)
	err := d.Templates(spec, old, r.Request)
	return d.Operations, err
}

// defaultStrategy completes updateStrategy, which has other fields in v1alpha1 than in v1beta1.
func defaultStrategy(d *podtemplate.Defaults, spec Document, version string) {
	pace := func(d *podtemplate.Defaults, o Document, pointer string) {
		d.Add(o, pointer, "partition", 0)
		d.Add(o, pointer, "maxUnavailable", "20%")
		d.Add(o, pointer, "maxSurge", 0)
	}
	inPlace := func(d *podtemplate.Defaults, o Document, pointer string, policy any) {
		if policy == "InPlaceIfPossible" || policy == "InPlaceOnly" {
			d.Add(o, pointer, "inPlaceUpdateStrategy", Document{})
		}
	}

	if version == "v1alpha1" {
		d.Object(spec, "/spec", "updateStrategy", func(d *podtemplate.Defaults, o Document, pointer string) {
			policy := d.Add(o, pointer, "type", "ReCreate")
			pace(d, o, pointer)
			inPlace(d, o, pointer, policy)
		})
		return
	}

	rolling := func(d *podtemplate.Defaults, o Document, pointer string) {
		policy := d.Add(o, pointer, "podUpdatePolicy", "ReCreate")
		pace(d, o, pointer)
		inPlace(d, o, pointer, policy)
	}
	d.Object(spec, "/spec", "updateStrategy", func(d *podtemplate.Defaults, o Document, pointer string) {
		if d.Add(o, pointer, "type", "RollingUpdate") == "RollingUpdate" {
			d.Object(o, pointer, "rollingUpdate", rolling)
		}
	})
}
