package advancedcronjob

import (
	"github.com/go-openapi/jsonpointer"
	"gomodules.xyz/jsonpatch/v2"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/podtemplate"
	"github.com/afloat-project/afloat/internal/kinds/imagepull"
)

// Document is a JSON object as it appears in an admission request.
type Document = podtemplate.Document

// successfulLimit and failedLimit are the default history limits.
const successfulLimit, failedLimit = 3, 1

// Default returns the JSON patch that completes an AdvancedCronJob of v1beta1 (ACJ-011 to ACJ-013). old is
// the stored object, nil on create. pods returns how to complete the pod template at the given key. Default
// only adds what is missing. If the API server returns an error, the other defaults are returned with it.
func Default(object, old Document, pods func(key string) podtemplate.Request) ([]jsonpatch.Operation, error) {
	var d podtemplate.Defaults
	metadata, _ := object["metadata"].(Document)
	if annotations, _ := metadata["annotations"].(Document); annotations[pub.ImageListTemplate] != nil {
		// The annotation has a meaning only in v1alpha1, and is never stored.
		d.Operations = append(d.Operations,
			jsonpatch.NewOperation("remove",
				"/metadata/annotations/"+jsonpointer.Escape(pub.ImageListTemplate), nil))
	}
	spec, ok := object["spec"].(Document)
	if !ok {
		return d.Operations, nil // validation rejects it
	}

	template, _ := spec["template"].(Document)
	_, pulls := template["imageListPullJobTemplate"].(Document)
	policy := appsv1beta1.ConcurrencyAllow
	if pulls {
		policy = appsv1beta1.ConcurrencyReplace
	}

	d.Add(spec, "/spec", "paused", false)
	d.Add(spec, "/spec", "successfulJobsHistoryLimit", successfulLimit)
	d.Add(spec, "/spec", "failedJobsHistoryLimit", failedLimit)
	d.Add(spec, "/spec", "concurrencyPolicy", string(policy))
	if pulls {
		const key = "imageListPullJobTemplate"
		d.Operations = append(d.Operations,
			below(key, imagepull.DefaultJob(within(template, key), false, false))...)
	}

	var failed error
	for _, key := range []string{"jobTemplate", "broadcastJobTemplate"} {
		job, ok := within(template, key)["spec"].(Document)
		if !ok {
			continue
		}
		var inner podtemplate.Defaults
		if err := inner.Templates(job, within(old, "spec", "template", key, "spec"), pods(key)); err != nil {
			failed = err
		}
		d.Operations = append(d.Operations, below(key, inner.Operations)...)
	}

	return d.Operations, failed
}

// within returns the object at a path, or nil if there is none.
func within(object Document, path ...string) Document {
	for _, key := range path {
		object, _ = object[key].(Document)
	}
	return object
}

// below moves operations on a child to the template at the given key.
func below(key string, operations []jsonpatch.Operation) []jsonpatch.Operation {
	for i := range operations {
		operations[i].Path = "/spec/template/" + key + operations[i].Path
	}
	return operations
}
