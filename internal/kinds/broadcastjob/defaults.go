package broadcastjob

import (
	"math"
	"time"

	"gomodules.xyz/jsonpatch/v2"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/podtemplate"
)

// Document is a JSON object as an admission request holds it.
type Document = podtemplate.Document

// DefaultRequest is what is needed to fill in what a user left out of a BroadcastJob.
type DefaultRequest struct {
	podtemplate.Request
	// New is the document to be completed. It is not modified. Old is the stored one, nil on create.
	New, Old Document
	// Now is the time of the request.
	Now time.Time
}

// Default returns the JSON patch that completes a BroadcastJob (BJ-011 to BJ-015). It only ever adds what is
// missing, so fields that nobody here knows stay as they are. An error of the API server comes with the other
// defaults.
//
// It also notes when a user lets a job go on that pauses for failed pods (BJ-094): the controller may not see
// each version of a job.
func Default(r DefaultRequest) ([]jsonpatch.Operation, error) {
	spec, ok := r.New["spec"].(Document)
	if !ok {
		return nil, nil // the schema or validation refuses it
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

// resumed notes the time in the annotations of the job.
func resumed(job Document, now time.Time) jsonpatch.Operation {
	at := now.UTC().Format(time.RFC3339)
	metadata, _ := job["metadata"].(Document)
	if annotations, ok := metadata["annotations"].(Document); ok && annotations != nil {
		return jsonpatch.NewOperation("add",
			"/metadata/annotations/"+podtemplate.Escape(pub.BroadcastJobResumed), at)
	}
	return jsonpatch.NewOperation("add", "/metadata/annotations", Document{pub.BroadcastJobResumed: at})
}
