package cloneset

import (
	"gomodules.xyz/jsonpatch/v2"

	"github.com/afloat-project/afloat/internal/engine/podtemplate"
)

// Document is a JSON object as an admission request holds it.
type Document = podtemplate.Document

// DefaultRequest is what is needed to fill in what a user left out of a CloneSet.
type DefaultRequest struct {
	podtemplate.Request
	// Version of the document, v1alpha1 or v1beta1.
	Version string
	// New is the document to be completed. It is not modified.
	New Document
	// Old is the stored document, nil on create.
	Old Document
}

// Default returns the JSON patch that completes a CloneSet (CS-010 to CS-015). It only ever adds what is
// missing, so fields that nobody here knows stay as they are. An error of the API server comes with the other
// defaults.
func Default(r DefaultRequest) ([]jsonpatch.Operation, error) {
	spec, ok := r.New["spec"].(Document)
	if !ok {
		return nil, nil // the schema or validation refuses it
	}
	var d podtemplate.Defaults
	d.Add(spec, "/spec", "replicas", 1)
	d.Add(spec, "/spec", "revisionHistoryLimit", 10)
	defaultStrategy(&d, spec, r.Version)
	old, _ := r.Old["spec"].(Document)
	err := d.Templates(spec, old, r.Request)
	return d.Operations, err
}

// defaultStrategy completes updateStrategy: CS-011 for v1beta1, CS-012 for v1alpha1.
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
