package v1alpha1

import (
	"bytes"
	"errors"

	kjson "sigs.k8s.io/json"

	"github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
)

// Conversion of StatefulSets (ASTS-320 to ASTS-322). Both directions are total. Shared fields are the same in both versions. The others of
// the spec stand in an annotation of the v1alpha1 object, where users may change them; the webhooks see them in the v1beta1 form. Those of
// the status do not: who may write annotations would write the status. The controller fills them in again.

// ToV1beta1 returns the StatefulSet in the v1beta1 form. It does not modify in.
func (in *StatefulSet) ToV1beta1() *v1beta1.StatefulSet {
	in = in.DeepCopy()
	out := &v1beta1.StatefulSet{ObjectMeta: in.ObjectMeta, Spec: v1beta1.StatefulSetSpec{StatefulSetTemplate: in.Spec.StatefulSetTemplate},
		Status: v1beta1.StatefulSetStatus{StatefulSetProgress: in.Status.StatefulSetProgress}}
	out.Spec.StatefulSetOptions, _ = in.Options()
	delete(out.Annotations, pub.V1beta1OnlyFields)
	return out
}

// StatefulSetFromV1beta1 returns the StatefulSet in the v1alpha1 form. It does not modify in.
func StatefulSetFromV1beta1(in *v1beta1.StatefulSet) *StatefulSet {
	in = in.DeepCopy()
	out := &StatefulSet{ObjectMeta: in.ObjectMeta, Spec: StatefulSetSpec{in.Spec.StatefulSetTemplate},
		Status: StatefulSetStatus{in.Status.StatefulSetProgress}}
	delete(out.Annotations, pub.V1beta1OnlyFields)
	if options := encode(in.Spec.StatefulSetOptions); !bytes.Equal(options, []byte("{}")) {
		setKey(&out.Annotations, pub.V1beta1OnlyFields, string(options))
	}
	return out
}

// Options returns the fields that stand in the annotation; none if it cannot be read. The error says what of it is not understood, which
// conversion drops: the webhooks refuse it.
func (in *StatefulSet) Options() (options v1beta1.StatefulSetOptions, err error) {
	text, ok := in.Annotations[pub.V1beta1OnlyFields]
	if !ok {
		return options, nil
	}
	unknown, err := kjson.UnmarshalStrict([]byte(text), &options)
	if err != nil {
		return v1beta1.StatefulSetOptions{}, err
	}
	return options, errors.Join(unknown...)
}
