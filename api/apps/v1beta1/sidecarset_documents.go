package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/afloat-project/afloat/api/template"
)

// SidecarContainer is a container, as in a pod, with what a sidecar needs beyond. Fields that Afloat does not know are kept.
// ---
// It is the typed view and the document it was read from, so that fields of newer versions of Kubernetes reach the pods (SS-D24). Read and
// change it through the embedded view.
//
// +kubebuilder:object:generate=false
type SidecarContainer struct {
	SidecarContainerSpec `json:",inline"`
	document             template.Document `json:"-"`
}

// MarshalJSON returns the document with what was changed in the typed view since it was read.
func (c SidecarContainer) MarshalJSON() ([]byte, error) {
	return template.Write(c.document, &c.SidecarContainerSpec)
}

// UnmarshalJSON keeps data and decodes the typed view. It returns no error for any JSON value; see DecodeError.
func (c *SidecarContainer) UnmarshalJSON(data []byte) error {
	c.document = template.Read(data, &c.SidecarContainerSpec)
	return nil
}

// DecodeError says why the document does not fit the types; nil if it does. The typed view is zero then.
func (c *SidecarContainer) DecodeError() error { return c.document.Err() }

// DeepCopyInto copies c into out; the document is immutable and shared.
func (c *SidecarContainer) DeepCopyInto(out *SidecarContainer) {
	out.document = c.document
	c.SidecarContainerSpec.DeepCopyInto(&out.SidecarContainerSpec)
}

// DeepCopy returns a copy of c.
func (c *SidecarContainer) DeepCopy() *SidecarContainer {
	if c == nil {
		return nil
	}
	out := new(SidecarContainer)
	c.DeepCopyInto(out)
	return out
}

// SidecarVolumes are the volumes of a SidecarSet: the typed view and the document it was read from, like SidecarContainer.
//
// +kubebuilder:object:generate=false
type SidecarVolumes struct {
	// List is the typed view.
	List     []corev1.Volume   `json:"-"`
	document template.Document `json:"-"`
}

// MarshalJSON returns the document with what was changed in the typed view since it was read.
func (v SidecarVolumes) MarshalJSON() ([]byte, error) { return template.Write(v.document, &v.List) }

// UnmarshalJSON keeps data and decodes the typed view. It returns no error for any JSON value; see DecodeError. null is no list.
func (v *SidecarVolumes) UnmarshalJSON(data []byte) error {
	*v = SidecarVolumes{}
	if string(data) != "null" {
		v.document = template.Read(data, &v.List)
	}
	return nil
}

// DecodeError says why the document does not fit the types; nil if it does. The typed view is empty then.
func (v *SidecarVolumes) DecodeError() error { return v.document.Err() }

// IsZero says whether there are no volumes, and no document that is something else.
func (v SidecarVolumes) IsZero() bool { return len(v.List) == 0 && v.document.Err() == nil }

// Equal says whether the typed views are equal; cmp uses it.
func (v SidecarVolumes) Equal(other SidecarVolumes) bool {
	return equality.Semantic.DeepEqual(v.List, other.List)
}

// DeepCopyInto copies v into out; the document is immutable and shared.
func (v *SidecarVolumes) DeepCopyInto(out *SidecarVolumes) {
	*out = *v
	if v.List != nil {
		out.List = make([]corev1.Volume, len(v.List))
		for i := range v.List {
			v.List[i].DeepCopyInto(&out.List[i])
		}
	}
}
