package broadcastjob

import (
	"math"
	"time"

	"github.com/go-openapi/jsonpointer"
	"gomodules.xyz/jsonpatch/v2"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/podtemplate"
)

// Document is a JSON object as it appears in an admission request.
type Document = podtemplate.Document

// DefaultRequest holds what is needed to fill in the fields that a user left out of a BroadcastJob.
type DefaultRequest struct {
	podtemplate.Request
	// New is the document to be completed. It is not modified. Old is the stored document, and nil on create.
	New, Old Document
	// Now is the time of the request.
	Now time.Time
}

// Default returns the JSON patch that completes a BroadcastJob (BJ-011 to BJ-015). It only adds what is
// missing, so unknown fields stay as they are. If the API server returns an error, the other defaults are
// returned with it.
//
// It also records when a user resumes a job that is paused because of failed pods (BJ-094), because the
// controller may not see each version of a job.
func Default(r DefaultRequest) ([]jsonpatch.Operation, error) {
	spec, ok := r.New["spec"].(Document)
	if !ok {
		return nil, nil // the schema or validation rejects it
	}

	var d podtemplate.Defaults
	d.Add(spec, "/spec", "parallelism", math.MaxInt32)
	d.Object(spec, "/spec", "completionPolicy", func(d *podtemplate.Defaults, o Document, pointer string) {
		d.Add(o, pointer, "type", appsv1beta1.CompletionAlways)
	})
	var policy any
	d.Object(spec, "/spec", "failurePolicy", func(d *podtemplate.Defaults, o Document, pointer string) {
		policy = d.Add(o, pointer, "type", appsv1beta1.FailurePolicyFailFast)
	})
	old, _ := r.Old["spec"].(Document)
	if old["paused"] == true && spec["paused"] != true && policy == string(appsv1beta1.FailurePolicyPause) {
		d.Operations = append(d.Operations, resumed(r.New, r.Now))
	}
	err := d.Templates(spec, old, r.Request)
	return d.Operations, err
}

// resumed returns the operation that records the time in the annotations of the job.
func resumed(job Document, now time.Time) jsonpatch.Operation {
	at := now.UTC().Format(time.RFC3339)
	metadata, _ := job["metadata"].(Document)
	if annotations, ok := metadata["annotations"].(Document); ok && annotations != nil {
		return jsonpatch.NewOperation("add",
			"/metadata/annotations/"+jsonpointer.Escape(pub.BroadcastJobResumed), at)
	}
	return jsonpatch.NewOperation("add", "/metadata/annotations", Document{pub.BroadcastJobResumed: at})
}
