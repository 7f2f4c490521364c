package daemonset

import (
	"fmt"

	"gomodules.xyz/jsonpatch/v2"
	"k8s.io/apimachinery/pkg/util/intstr"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/podtemplate"
)

// Document is a JSON object as an admission request holds it.
type Document = podtemplate.Document

// DefaultRequest is what is needed to fill in what a user left out of a DaemonSet.
type DefaultRequest struct {
	// Version of the document, v1alpha1 or v1beta1.
	Version string
	// New is the document to be completed. It is not modified.
	New Document
}

// Default returns the JSON patch that completes a DaemonSet (ADS-012 to ADS-014). It adds what is missing, so
// fields that nobody here knows stay as they are, and replaces the deprecated type Surging. The pod template
// stays as it was written (ADS-015).
func Default(r DefaultRequest) []jsonpatch.Operation {
	spec, ok := r.New["spec"].(Document)
	if !ok {
		return nil // the schema or validation refuses it
	}

	var d podtemplate.Defaults
	d.Add(spec, "/spec", "burstReplicas", 250)
	d.Add(spec, "/spec", "revisionHistoryLimit", 10)
	d.Object(spec, "/spec", "updateStrategy", func(d *podtemplate.Defaults, o Document, pointer string) {
		if d.Add(o, pointer, "type", "RollingUpdate") == "RollingUpdate" {
			d.Object(o, pointer, "rollingUpdate", r.defaultRolling)
		}
	})
	return d.Operations
}

func (r *DefaultRequest) defaultRolling(d *podtemplate.Defaults, o Document, pointer string) {
	if r.Version == appsv1alpha1.GroupVersion.Version &&
		o["rollingUpdateType"] == string(appsv1alpha1.SurgingRollingUpdateType) {
		defaultSurging(d, o, pointer)
		return
	}
	d.Add(o, pointer, "rollingUpdateType", appsv1beta1.StandardRollingUpdateType)
	if o["maxUnavailable"] == nil && zero(o["maxSurge"]) {
		d.Add(o, pointer, "maxUnavailable", 1)
		d.Add(o, pointer, "maxSurge", 0)
	}
}

// defaultSurging writes the deprecated type Surging as what it stands for. Where maxUnavailable contradicts
// it, validation refuses it.
func defaultSurging(d *podtemplate.Defaults, o Document, pointer string) {
	if !zero(o["maxUnavailable"]) {
		return
	}
	d.Add(o, pointer, "maxUnavailable", 0)
	d.Add(o, pointer, "maxSurge", 1)
	d.Operations = append(d.Operations,
		jsonpatch.NewOperation("replace", pointer+"/rollingUpdateType",
			appsv1beta1.StandardRollingUpdateType))
}

// zero tells whether a number of nodes or a percentage in a document is absent or none.
func zero(given any) bool {
	if given == nil {
		return true
	}
	value := intstr.Parse(fmt.Sprint(given))
	return isZero(&value)
}
