package resourcedistribution

import (
	"crypto/sha256"
	"encoding/binary"
	"io"
	"maps"
	"slices"
	"strconv"
	"unique"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// Object is a Secret or a ConfigMap.
type Object interface {
	metav1.Object
	runtime.Object
}

// Digest is the digest of the content of a Secret or ConfigMap.
type Digest [sha256.Size]byte

// Copy is what is known of the object of a distributed kind and name in one namespace. Its size does not
// depend on that of the object, but for eight bytes for each label, annotation and finalizer, and only of
// objects that a ResourceDistribution may control: what others own is known by UID and version alone.
type Copy struct {
	UID     types.UID
	Version string
	// Owner is the UID of the ResourceDistribution that controls it, empty if none does.
	Owner types.UID
	// Content is the digest of what it contains, Type that of a Secret.
	Content Digest
	Type    corev1.SecretType
	// Immutable: the content cannot be changed. Deleting: it goes as soon as its finalizers allow.
	Immutable, Deleting bool
	// Labels and Annotations tell whether there are any.
	Labels, Annotations bool
	// Finalizers are the first of them.
	Finalizers []string

	pairs []uint64
}

// CopyOf returns what is kept of an object.
func CopyOf(object Object) *Copy {
	c := &Copy{UID: object.GetUID(), Version: object.GetResourceVersion()}
	if owner := metav1.GetControllerOfNoCopy(object); owner != nil && owner.Kind == Name {
		c.Owner = unique.Make(owner.UID).Value() // thousands have the same
	}
	c.Deleting = object.GetDeletionTimestamp() != nil
	if c.Owner == "" {
		return c
	}

	c.Finalizers = slices.Clone(object.GetFinalizers()[:min(len(object.GetFinalizers()), mostFinalizers)])
	c.Labels, c.Annotations = len(object.GetLabels()) > 0, len(object.GetAnnotations()) > 0
	c.pairs = pairs(object.GetLabels(), object.GetAnnotations(), object.GetFinalizers()...)
	c.Content = ContentOf(object)
	switch object := object.(type) {
	case *corev1.Secret:
		c.Type = unique.Make(typeOf(object)).Value()
		c.Immutable = object.Immutable != nil && *object.Immutable
	case *corev1.ConfigMap:
		c.Immutable = object.Immutable != nil && *object.Immutable
	}

	return c
}

// ContentOf digests what an object contains (RD-055): members that are absent and those that are empty are
// alike.
func ContentOf(object Object) (digest Digest) {
	sum := sha256.New()
	write := func(parts ...string) {
		for _, part := range parts {
			var length [8]byte
			binary.BigEndian.PutUint64(length[:], uint64(len(part)))
			sum.Write(length[:])
			_, _ = io.WriteString(sum, part)
		}
	}
	binaries := func(member string, data map[string][]byte) {
		write(member, strconv.Itoa(len(data)))
		for _, key := range slices.Sorted(maps.Keys(data)) {
			write(key, string(data[key]))
		}
	}
	immutable := func(value *bool) { write(strconv.FormatBool(value != nil && *value)) }
	switch object := object.(type) {
	case *corev1.Secret:
		binaries("data", merged(object))
		write(string(typeOf(object)))
		immutable(object.Immutable)
	case *corev1.ConfigMap:
		write("data", strconv.Itoa(len(object.Data)))
		for _, key := range slices.Sorted(maps.Keys(object.Data)) {
			write(key, object.Data[key])
		}
		binaries("binaryData", object.BinaryData)
		immutable(object.Immutable)
	}
	sum.Sum(digest[:0])
	return digest
}

// mostFinalizers is how many finalizers are kept by name: they are told, and anybody may write thousands.
const mostFinalizers = 4

// pairs digests labels, annotations and finalizers, each for itself, in order.
func pairs(labels, annotations map[string]string, finalizers ...string) []uint64 {
	all := make([]uint64, 0, len(labels)+len(annotations)+len(finalizers))
	for _, finalizer := range finalizers {
		all = append(all, digestOf("f/"+finalizer))
	}

	add := func(of string, values map[string]string) {
		for key, value := range values {
			all = append(all, digestOf(of+key+"="+value))
		}
	}
	add("l/", labels)
	add("a/", annotations)
	slices.Sort(all)
	return all
}

func digestOf(text string) uint64 {
	sum := sha256.Sum256([]byte(text))
	return binary.BigEndian.Uint64(sum[:])
}

// Same tells whether a copy is as it should be (RD-055).
func (r *Resource) Same(c *Copy) bool {
	if c.Content != r.Content {
		return false
	}
	for _, pair := range r.pairs {
		if _, found := slices.BinarySearch(c.pairs, pair); !found {
			return false
		}
	}
	return true
}
