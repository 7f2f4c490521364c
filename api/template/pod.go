package template

import corev1 "k8s.io/api/core/v1"

// PodTemplate is a pod template: the typed view of core/v1 and the document it was read from.
//
// Read and change it through the embedded view. To replace a template as a whole assign a new one made by FromPodTemplateSpec: an
// assignment to the embedded view alone keeps the unknown fields of the document. Compare two by Equal; cmp does so by itself.
type PodTemplate struct {
	corev1.PodTemplateSpec
	document Document
}

// FromPodTemplateSpec returns a template made in Go, without a document.
func FromPodTemplateSpec(spec corev1.PodTemplateSpec) PodTemplate {
	return PodTemplate{PodTemplateSpec: spec}
}

// Raw returns a copy of the JSON document as it was read, or the typed view encoded if the template was made in Go. MarshalJSON
// gives the present document, changes of the typed view included.
func (t PodTemplate) Raw() []byte { return raw(t.document, &t.PodTemplateSpec) }

// DecodeError says why the document does not fit the types; nil if it does. The typed view is zero then.
func (t PodTemplate) DecodeError() error { return t.document.err }

// MarshalJSON returns the document with what was changed in the typed view since it was read.
func (t PodTemplate) MarshalJSON() ([]byte, error) { return Write(t.document, &t.PodTemplateSpec) }

// UnmarshalJSON keeps data and decodes the typed view. It returns no error for any JSON value; see DecodeError. null is no template.
func (t *PodTemplate) UnmarshalJSON(data []byte) error {
	*t = PodTemplate{}
	if string(data) != "null" {
		t.document = Read(data, &t.PodTemplateSpec)
	}
	return nil
}

// IsZero says whether there is no template at all.
func (t PodTemplate) IsZero() bool {
	return t.document.text == "" && equalView(&t.PodTemplateSpec, &corev1.PodTemplateSpec{})
}

// Equal says whether both templates encode to the same JSON value.
func (t PodTemplate) Equal(other PodTemplate) bool { return EqualEncoding(t, other) }

// DeepCopyInto copies t into out; the document is immutable and shared.
func (t *PodTemplate) DeepCopyInto(out *PodTemplate) {
	out.document = t.document
	t.PodTemplateSpec.DeepCopyInto(&out.PodTemplateSpec)
}

// DeepCopy returns a copy of t.
func (t *PodTemplate) DeepCopy() *PodTemplate {
	if t == nil {
		return nil
	}
	out := new(PodTemplate)
	t.DeepCopyInto(out)
	return out
}
