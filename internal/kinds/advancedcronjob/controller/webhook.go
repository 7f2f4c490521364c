package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"

	jsonpatchapply "github.com/evanphx/json-patch/v5"
	"gomodules.xyz/jsonpatch/v2"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/component-base/featuregate"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/podtemplate"
	"github.com/afloat-project/afloat/internal/framework"
	"github.com/afloat-project/afloat/internal/kinds/advancedcronjob"
	"github.com/afloat-project/afloat/internal/kinds/broadcastjob"
	"github.com/afloat-project/afloat/internal/platform/features"
)

// cronJobWebhooks admits AdvancedCronJobs of both versions, each in its v1beta1 form.
type cronJobWebhooks struct {
	framework.Templates
	// off lists the disabled gates without which no ImageListPullJob is carried out.
	off []string
}

// checkBroadcastJob validates a template of BroadcastJobs.
func checkBroadcastJob(job *appsv1beta1.BroadcastJob) field.ErrorList {
	return broadcastjob.Validate(broadcastjob.WrittenInV1beta1(job), nil)
}

// AdvancedCronJobs returns the webhooks of the kind.
func AdvancedCronJobs(e *framework.Environment) framework.Webhooks {
	w := &cronJobWebhooks{Templates: framework.NewTemplates(e)}
	for _, gate := range []featuregate.Feature{features.KruiseDaemon, features.ImagePullJobGate} {
		if !e.Gates.Enabled(gate) {
			w.off = append(w.off, string(gate))
		}
	}
	return framework.Webhooks{Mutate: w.mutate, Validate: w.validate}
}

// podTemplates are the fields of an AdvancedCronJob whose templates have a pod template.
var podTemplates = []string{"jobTemplate", "broadcastJobTemplate"}

// mutate adds defaults.
func (w *cronJobWebhooks) mutate(ctx context.Context, request admission.Request) admission.Response {
	updated, old, err := cronJobs(&request)
	if err != nil {
		return framework.Undecodable(&request, err)
	}

	operations, failed := advancedcronjob.Default(updated.document, old.document,
		func(key string) podtemplate.Request {
			var stored framework.Document
			if old.document != nil {
				stored = old.child(key)
			}
			return w.Defaulting(ctx, request.Namespace, updated.child(key), stored)
		})
	if updated.version == framework.V1alpha1 && len(operations) > 0 {
		if operations, err = updated.inAlpha(request.Object.Raw, operations); err != nil {
			return framework.Undecodable(&request, err)
		}
	}

	return framework.Defaulted(operations, failed, old.document)
}

// validate validates AdvancedCronJobs.
func (w *cronJobWebhooks) validate(ctx context.Context, request admission.Request) admission.Response {
	updated, old, err := cronJobs(&request)
	if err != nil {
		return framework.Undecodable(&request, err)
	}
	if cause := unfitForAlpha(&updated, &old); cause != nil {
		return framework.Invalid(&request, framework.Causes(field.ErrorList{cause}))
	}

	if old.document != nil && updated.unreadable == old.unreadable &&
		framework.SameJSON(updated.document["spec"], old.document["spec"]) {
		return admission.Allowed("") // metadata only, such as the last finalizer
	}

	given, err := updated.decode()
	if err != nil {
		return framework.Undecodable(&request, err)
	}

	var stored *appsv1beta1.AdvancedCronJob
	if old.document != nil {
		if stored, err = old.decode(); err != nil {
			stored = nil // the stored object cannot be read, so everything counts as new
		}
	}

	errs := advancedcronjob.Validate(given, stored, checkBroadcastJob)
	if updated.unreadable != "" {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "annotations").Key(pub.ImageListTemplate),
			field.OmitValueType{}, updated.unreadable))
	}

	causes := framework.Causes(errs)
	var warnings []string
	for _, key := range podTemplates {
		if _, ok := updated.child(key)["spec"].(framework.Document); !ok {
			continue
		}

		var before framework.Document
		if old.document != nil {
			before = old.child(key)
		}

		found, warned := w.ValidateTemplate(ctx, request.Namespace, updated.child(key), before)
		at := "spec.template." + key + "."
		for _, cause := range found {
			cause.Field = at + cause.Field
			causes = append(causes, cause)
		}

		for _, warning := range warned {
			warnings = append(warnings, at+warning)
		}
	}

	if len(causes) > 0 {
		return framework.Invalid(&request, causes).WithWarnings(warnings...)
	}

	return admission.Allowed("").WithWarnings(append(warnings,
		advancedcronjob.Warnings(given, stored, w.off)...)...)
}

// cronJob is an AdvancedCronJob in its v1beta1 form.
type cronJob struct {
	document framework.Document
	// version is the version in which it was written. unreadable is why the annotation of v1alpha1 cannot be
	// read.
	version, unreadable string
}

// cronJobs returns the AdvancedCronJobs of a request; the document of the stored one is nil on create.
func cronJobs(request *admission.Request) (updated, old cronJob, err error) {
	updatedDoc, oldDoc, err := framework.Documents(request)
	if err != nil {
		return updated, old, err
	}
	if updated, err = cronJobOf(updatedDoc, request); err == nil && oldDoc != nil {
		old, err = cronJobOf(oldDoc, request)
	}
	return updated, old, err
}

func cronJobOf(given framework.Document, request *admission.Request) (cronJob, error) {
	c := cronJob{document: given, version: framework.WrittenVersion(given, request)}
	switch c.version {
	case framework.V1alpha1:
		var err error
		if c.document, err = cronJobInBeta(given); err != nil {
			c.unreadable = err.Error()
		}
	case framework.V1beta1:
	default:
		return c, fmt.Errorf("version %q of AdvancedCronJob is not known", c.version)
	}

	return c, nil
}

func (c *cronJob) decode() (*appsv1beta1.AdvancedCronJob, error) {
	raw, err := json.Marshal(c.document)
	if err != nil {
		return nil, err
	}
	object := &appsv1beta1.AdvancedCronJob{}
	_, err = framework.Decode(raw, object)
	return object, err
}

// annotationBytes returns the size of the annotations that the object has in v1alpha1.
func (c *cronJob) annotationBytes() (size int) {
	if c.child(listTemplate) == nil {
		return 0 // the API server counts them itself
	}
	_, _, annotations := withAnnotations(cronJobInAlpha(c.document))
	for key, value := range annotations {
		text, _ := value.(string)
		size += len(key) + len(text)
	}
	return size
}

// unfitForAlpha rejects an object that v1alpha1 has no room for: the API server would fail every list of that
// version that contains the object, also across namespaces. A stored object may stay, and become smaller.
func unfitForAlpha(updated, old *cronJob) *field.Error {
	size := updated.annotationBytes()
	if size <= apivalidation.TotalAnnotationSizeLimitB || size <= old.annotationBytes() {
		return nil
	}
	return field.Invalid(field.NewPath("spec", "template", listTemplate), field.OmitValueType{},
		fmt.Sprintf(
			"version v1alpha1 shows it in an annotation, with which there are %d bytes of annotations: at most %d are allowed",
			size, apivalidation.TotalAnnotationSizeLimitB,
		))
}

// child returns the child template at the key, which is like an object with metadata and spec.
func (c *cronJob) child(key string) framework.Document {
	spec, _ := c.document["spec"].(framework.Document)
	template, _ := spec["template"].(framework.Document)
	child, _ := template[key].(framework.Document)
	return child
}

// inAlpha turns operations on the v1beta1 form into a patch of the v1alpha1 object as it was written.
func (c *cronJob) inAlpha(written []byte, operations []jsonpatch.Operation) ([]jsonpatch.Operation, error) {
	text, err := json.Marshal(operations)
	if err != nil {
		return nil, err
	}

	patch, err := jsonpatchapply.DecodePatch(text)
	if err != nil {
		return nil, err
	}

	raw, err := json.Marshal(c.document)
	if err != nil {
		return nil, err
	}
	if raw, err = patch.Apply(raw); err != nil {
		return nil, err
	}

	object, err := framework.DecodeDocument(raw)
	if err != nil {
		return nil, err
	}
	if raw, err = json.Marshal(cronJobInAlpha(object)); err != nil {
		return nil, err
	}

	return framework.PatchBetween(written, raw)
}

// AdvancedCronJobConversion converts AdvancedCronJobs (ACJ-110, ACJ-111). Both versions have the same fields
// except for one, which moves, so documents are converted directly, with all fields that our types do not
// know.
func AdvancedCronJobConversion() framework.Conversion {
	converting := func(convert func(framework.Document) framework.Document) framework.Converter {
		return func(raw []byte, kind schema.GroupVersionKind) ([]byte, error) {
			object, err := framework.DecodeDocument(raw)
			if err != nil {
				return nil, err
			}
			object = convert(object)
			object["apiVersion"] = kind.GroupVersion().String()
			return json.Marshal(object)
		}
	}
	return framework.Conversion{
		{framework.V1beta1, framework.V1alpha1}: converting(cronJobInAlpha),
		{framework.V1alpha1, framework.V1beta1}: converting(func(object framework.Document) framework.Document {
			object, _ = cronJobInBeta(object)
			return object
		}),
	}
}

const listTemplate = "imageListPullJobTemplate"

// cronJobInBeta returns the v1beta1 form of a document of v1alpha1. It does not change the document. An
// annotation that cannot be read is dropped, and the error is returned with the result.
func cronJobInBeta(given framework.Document) (framework.Document, error) {
	object, metadata, annotations := withAnnotations(given)
	text, ok := annotations[pub.ImageListTemplate]
	if !ok {
		return object, nil
	}

	delete(annotations, pub.ImageListTemplate)
	if len(annotations) == 0 {
		delete(metadata, "annotations")
	}

	written, _ := text.(string)
	list, err := framework.DecodeDocument([]byte(written))
	if err == nil && list == nil {
		err = errors.New("it is null")
	}
	if err != nil {
		return object, fmt.Errorf("it must be a template of ImageListPullJobs as a JSON object: %w", err)
	}

	spec := cloned(object, "spec")
	cloned(spec, "template")[listTemplate] = list
	return object, nil
}

// cronJobInAlpha returns the v1alpha1 form of a document of v1beta1. It does not change the document.
func cronJobInAlpha(given framework.Document) framework.Document {
	object, metadata, annotations := withAnnotations(given)
	delete(annotations, pub.ImageListTemplate)
	if spec, ok := object["spec"].(framework.Document); ok {
		if template, ok := spec["template"].(framework.Document); ok && template[listTemplate] != nil {
			if text, err := json.Marshal(template[listTemplate]); err == nil {
				annotations[pub.ImageListTemplate] = string(text)
			}
			delete(cloned(cloned(object, "spec"), "template"), listTemplate)
		}
	}

	if len(annotations) == 0 {
		delete(metadata, "annotations")
	}

	return object
}

// withAnnotations returns a copy of a document whose metadata and annotations may be changed.
func withAnnotations(given framework.Document) (object, metadata, annotations framework.Document) {
	object = maps.Clone(given)
	if object == nil {
		object = framework.Document{}
	}
	metadata = cloned(object, "metadata")
	return object, metadata, cloned(metadata, "annotations")
}

// cloned replaces the object at the key by a copy, or by an empty object if there is none, and returns it.
func cloned(parent framework.Document, key string) framework.Document {
	inner, _ := parent[key].(framework.Document)
	if inner = maps.Clone(inner); inner == nil {
		inner = framework.Document{}
	}
	parent[key] = inner
	return inner
}
