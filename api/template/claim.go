package template

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// ErrNotAList is the DecodeError of claim templates whose document is not a list.
var ErrNotAList = errors.New("volumeClaimTemplates must be a list")

// VolumeClaimTemplate is a claim template: the typed view of core/v1 and the document it was read from. It follows the rules of
// PodTemplate.
type VolumeClaimTemplate struct {
	corev1.PersistentVolumeClaim
	document Document
	// whole marks the only element of a list that stands for a document that is no list.
	whole bool
}

// FromPersistentVolumeClaim returns a claim template made in Go, without a document.
func FromPersistentVolumeClaim(claim corev1.PersistentVolumeClaim) VolumeClaimTemplate {
	return VolumeClaimTemplate{PersistentVolumeClaim: claim}
}

// Raw returns a copy of the JSON document as it was read, or the typed view encoded if the template was made in Go.
func (t VolumeClaimTemplate) Raw() []byte { return raw(t.document, &t.PersistentVolumeClaim) }

// DecodeError says why the document does not fit the types; nil if it does. The typed view is zero then.
func (t VolumeClaimTemplate) DecodeError() error { return t.document.err }

// MarshalJSON returns the document with what was changed in the typed view since it was read.
func (t VolumeClaimTemplate) MarshalJSON() ([]byte, error) {
	if t.whole {
		return []byte(t.document.text), nil
	}
	return Write(t.document, &t.PersistentVolumeClaim)
}

// UnmarshalJSON keeps data and decodes the typed view. It returns no error for any JSON value; see DecodeError.
func (t *VolumeClaimTemplate) UnmarshalJSON(data []byte) error {
	*t = VolumeClaimTemplate{}
	t.document = Read(data, &t.PersistentVolumeClaim)
	return nil
}

// Equal says whether both templates encode to the same JSON value.
func (t VolumeClaimTemplate) Equal(other VolumeClaimTemplate) bool {
	return t.whole == other.whole && EqualEncoding(t, other)
}

// DeepCopyInto copies t into out; the document is immutable and shared.
func (t *VolumeClaimTemplate) DeepCopyInto(out *VolumeClaimTemplate) {
	out.document, out.whole = t.document, t.whole
	t.PersistentVolumeClaim.DeepCopyInto(&out.PersistentVolumeClaim)
}

// DeepCopy returns a copy of t.
func (t *VolumeClaimTemplate) DeepCopy() *VolumeClaimTemplate {
	if t == nil {
		return nil
	}
	out := new(VolumeClaimTemplate)
	t.DeepCopyInto(out)
	return out
}

// VolumeClaimTemplates is the list of claim templates of a workload. A document that is no list decodes to one nameless element
// with DecodeError ErrNotAList, and encodes to itself again as long as that element stands alone.
type VolumeClaimTemplates []VolumeClaimTemplate

// DecodeError joins the errors of the elements, each with its index.
func (l VolumeClaimTemplates) DecodeError() error {
	var errs []error
	for i := range l {
		if err := l[i].DecodeError(); errors.Is(err, ErrNotAList) {
			errs = append(errs, err)
		} else if err != nil {
			errs = append(errs, fmt.Errorf("volumeClaimTemplates[%d]: %w", i, err))
		}
	}
	return errors.Join(errs...)
}

// MarshalJSON returns the list of the elements' documents.
func (l VolumeClaimTemplates) MarshalJSON() ([]byte, error) {
	if len(l) == 1 && l[0].whole {
		return l[0].MarshalJSON()
	}
	return json.Marshal([]VolumeClaimTemplate(l))
}

// UnmarshalJSON decodes a list of claim templates. It returns no error for any JSON value; see DecodeError. null is no list.
func (l *VolumeClaimTemplates) UnmarshalJSON(data []byte) error {
	*l = nil
	if string(data) == "null" {
		return nil
	}
	if !bytes.HasPrefix(bytes.TrimLeft(data, " \t\r\n"), []byte("[")) {
		*l = VolumeClaimTemplates{{document: Document{text: string(data), err: ErrNotAList}, whole: true}}
		return nil
	}
	var documents []json.RawMessage
	if err := json.Unmarshal(data, &documents); err != nil {
		return fmt.Errorf("reading volumeClaimTemplates: %w", err)
	}
	*l = make(VolumeClaimTemplates, len(documents))
	for i, item := range documents {
		if err := (*l)[i].UnmarshalJSON(item); err != nil {
			return err
		}
	}
	return nil
}

// DeepCopyInto copies l into out.
func (l VolumeClaimTemplates) DeepCopyInto(out *VolumeClaimTemplates) { *out = l.DeepCopy() }

// DeepCopy returns a copy of l.
func (l VolumeClaimTemplates) DeepCopy() VolumeClaimTemplates {
	if l == nil {
		return nil
	}
	out := make(VolumeClaimTemplates, len(l))
	for i := range l {
		l[i].DeepCopyInto(&out[i])
	}
	return out
}
