package template

import corev1 "k8s.io/api/core/v1"

// EphemeralContainers is a list of ephemeral containers: the typed view and the document it was read from. It follows the rules of
// PodTemplate.
type EphemeralContainers struct {
	// Containers is the typed view.
	Containers []corev1.EphemeralContainer
	document   Document
}

// FromEphemeralContainers returns a list made in Go, without a document.
func FromEphemeralContainers(containers ...corev1.EphemeralContainer) EphemeralContainers {
	return EphemeralContainers{Containers: containers}
}

// Raw returns a copy of the JSON document as it was read, or the typed view encoded if the list was made in Go.
func (l EphemeralContainers) Raw() []byte { return raw(l.document, &l.Containers) }

// DecodeError says why the document does not fit the types; nil if it does. The typed view is empty then.
func (l EphemeralContainers) DecodeError() error { return l.document.err }

// MarshalJSON returns the document with what was changed in the typed view since it was read.
func (l EphemeralContainers) MarshalJSON() ([]byte, error) { return Write(l.document, &l.Containers) }

// UnmarshalJSON keeps data and decodes the typed view. It returns no error for any JSON value; see DecodeError. null is an empty list.
func (l *EphemeralContainers) UnmarshalJSON(data []byte) error {
	*l = EphemeralContainers{}
	if string(data) != "null" {
		l.document = Read(data, &l.Containers)
	}
	return nil
}

// Equal says whether both lists encode to the same JSON value.
func (l EphemeralContainers) Equal(other EphemeralContainers) bool { return EqualEncoding(l, other) }

// DeepCopyInto copies l into out; the document is immutable and shared.
func (l *EphemeralContainers) DeepCopyInto(out *EphemeralContainers) {
	out.document, out.Containers = l.document, nil
	for i := range l.Containers {
		out.Containers = append(out.Containers, *l.Containers[i].DeepCopy())
	}
}

// DeepCopy returns a copy of l.
func (l *EphemeralContainers) DeepCopy() *EphemeralContainers {
	if l == nil {
		return nil
	}
	out := new(EphemeralContainers)
	l.DeepCopyInto(out)
	return out
}
