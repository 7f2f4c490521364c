package v1beta1

import "github.com/afloat-project/afloat/api/template"

// SubsetTemplate is the template of the workloads of a UnitedDeployment: one of four kinds.
// ---
// It is the typed view and the document it was read from, so that fields of newer versions of the kinds reach the workloads. Read and
// change it through the embedded view.
//
// +kubebuilder:object:generate=false
type SubsetTemplate struct {
	SubsetTemplateSpec `json:",inline"`
	document           template.Document `json:"-"`
}

// MarshalJSON returns the document with what was changed in the typed view since it was read.
func (t SubsetTemplate) MarshalJSON() ([]byte, error) {
	return template.Write(t.document, &t.SubsetTemplateSpec)
}

// UnmarshalJSON keeps data and decodes the typed view. It returns no error for any JSON value; see DecodeError. null is no template.
func (t *SubsetTemplate) UnmarshalJSON(data []byte) error {
	*t = SubsetTemplate{}
	if string(data) != "null" {
		t.document = template.Read(data, &t.SubsetTemplateSpec)
	}
	return nil
}

// DecodeError says why the document does not fit the types; nil if it does. The typed view is zero then.
func (t *SubsetTemplate) DecodeError() error { return t.document.Err() }

// IsZero says whether there is no template at all, and no document that is something else.
func (t SubsetTemplate) IsZero() bool {
	return t.SubsetTemplateSpec == SubsetTemplateSpec{} && t.document.IsZero()
}

// Equal says whether both templates encode to the same JSON value; cmp uses it.
func (t SubsetTemplate) Equal(other SubsetTemplate) bool { return template.EqualEncoding(t, other) }

// DeepCopyInto copies t into out; the document is immutable and shared.
func (t *SubsetTemplate) DeepCopyInto(out *SubsetTemplate) {
	out.document = t.document
	t.SubsetTemplateSpec.DeepCopyInto(&out.SubsetTemplateSpec)
}

// DeepCopy returns a copy of t.
func (t *SubsetTemplate) DeepCopy() *SubsetTemplate {
	if t == nil {
		return nil
	}
	out := new(SubsetTemplate)
	t.DeepCopyInto(out)
	return out
}
