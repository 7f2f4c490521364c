package template

import batchv1 "k8s.io/api/batch/v1"

// JobTemplate is the template of a Job of batch/v1: the typed view and the document it was read from. It follows the rules of PodTemplate.
type JobTemplate struct {
	batchv1.JobTemplateSpec
	document Document
}

// FromJobTemplateSpec returns a template made in Go, without a document.
func FromJobTemplateSpec(spec batchv1.JobTemplateSpec) JobTemplate {
	return JobTemplate{JobTemplateSpec: spec}
}

// Raw returns a copy of the JSON document as it was read, or the typed view encoded if the template was made in Go.
func (t JobTemplate) Raw() []byte { return raw(t.document, &t.JobTemplateSpec) }

// DecodeError says why the document does not fit the types; nil if it does. The typed view is zero then.
func (t JobTemplate) DecodeError() error { return t.document.err }

// MarshalJSON returns the document with what was changed in the typed view since it was read.
func (t JobTemplate) MarshalJSON() ([]byte, error) { return Write(t.document, &t.JobTemplateSpec) }

// UnmarshalJSON keeps data and decodes the typed view. It returns no error for any JSON value; see DecodeError. null is no template.
func (t *JobTemplate) UnmarshalJSON(data []byte) error {
	*t = JobTemplate{}
	if string(data) != "null" {
		t.document = Read(data, &t.JobTemplateSpec)
	}
	return nil
}

// Equal says whether both templates encode to the same JSON value.
func (t JobTemplate) Equal(other JobTemplate) bool { return EqualEncoding(t, other) }

// DeepCopyInto copies t into out; the document is immutable and shared.
func (t *JobTemplate) DeepCopyInto(out *JobTemplate) {
	out.document = t.document
	t.JobTemplateSpec.DeepCopyInto(&out.JobTemplateSpec)
}

// DeepCopy returns a copy of t.
func (t *JobTemplate) DeepCopy() *JobTemplate {
	if t == nil {
		return nil
	}
	out := new(JobTemplate)
	t.DeepCopyInto(out)
	return out
}
