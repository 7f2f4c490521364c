package v1alpha1

import (
	"bytes"
	"cmp"
	"errors"

	"k8s.io/apimachinery/pkg/util/intstr"
	kjson "sigs.k8s.io/json"

	"github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
)

// Conversion of DaemonSets (ADS-210 to ADS-215). Both directions are total. Shared fields are the same in both versions; of the others,
// partitionedScaling is an annotation of its own in v1alpha1, and the rest stands in a second one. Both have an effect in v1alpha1 alone.

// DaemonSetOptions are the fields of the spec that only v1beta1 has.
//
// +kubebuilder:object:generate=false
type DaemonSetOptions struct {
	// ScaleStrategy says on which nodes pods are created.
	ScaleStrategy *v1beta1.DaemonSetScaleStrategy `json:"scaleStrategy,omitempty"`
}

// ToV1beta1 returns the DaemonSet in the v1beta1 form. It does not modify in.
func (in *DaemonSet) ToV1beta1() *v1beta1.DaemonSet {
	in = in.DeepCopy()
	options, _ := in.Options()
	out := &v1beta1.DaemonSet{ObjectMeta: in.ObjectMeta,
		Spec:   v1beta1.DaemonSetSpec{DaemonSetTemplate: in.Spec.DaemonSetTemplate, ScaleStrategy: options.ScaleStrategy},
		Status: v1beta1.DaemonSetStatus{DaemonSetProgress: in.Status.DaemonSetProgress, UpdateRevision: in.Status.DaemonSetHash}}
	delete(out.Annotations, pub.V1beta1OnlyFields)
	delete(out.Annotations, pub.ProgressiveCreatePod)
	if rolling := out.Spec.UpdateStrategy.RollingUpdate; rolling != nil && rolling.Type == SurgingRollingUpdateType { // ADS-211
		rolling.Type = v1beta1.StandardRollingUpdateType
		rolling.MaxSurge = cmp.Or(rolling.MaxSurge, new(intstr.FromInt32(1)))
		rolling.MaxUnavailable = cmp.Or(rolling.MaxUnavailable, new(intstr.FromInt32(0)))
	}
	return out
}

// DaemonSetFromV1beta1 returns the DaemonSet in the v1alpha1 form. It does not modify in.
func DaemonSetFromV1beta1(in *v1beta1.DaemonSet) *DaemonSet {
	in = in.DeepCopy()
	out := &DaemonSet{ObjectMeta: in.ObjectMeta, Spec: DaemonSetSpec{in.Spec.DaemonSetTemplate},
		Status: DaemonSetStatus{DaemonSetProgress: in.Status.DaemonSetProgress, DaemonSetHash: in.Status.UpdateRevision}}
	delete(out.Annotations, pub.V1beta1OnlyFields)
	delete(out.Annotations, pub.ProgressiveCreatePod)
	options := DaemonSetOptions{in.Spec.ScaleStrategy}
	if scale := options.ScaleStrategy; scale != nil && scale.PartitionedScaling {
		setKey(&out.Annotations, pub.ProgressiveCreatePod, "true")
		if scale.PartitionedScaling = false; *scale == (v1beta1.DaemonSetScaleStrategy{}) {
			options.ScaleStrategy = nil
		}
	}
	if fields := encode(options); !bytes.Equal(fields, []byte("{}")) {
		setKey(&out.Annotations, pub.V1beta1OnlyFields, string(fields))
	}
	return out
}

// Options returns the fields that stand in the annotations; those of the JSON only if it can be read. The error says what of it is not
// understood, which conversion drops: the webhooks refuse it.
func (in *DaemonSet) Options() (options DaemonSetOptions, err error) {
	if text, ok := in.Annotations[pub.V1beta1OnlyFields]; ok {
		var unknown []error
		if unknown, err = kjson.UnmarshalStrict([]byte(text), &options); err != nil {
			options = DaemonSetOptions{}
		}
		err = errors.Join(append(unknown, err)...)
	}
	if in.Annotations[pub.ProgressiveCreatePod] == "true" { // ADS-213
		options.ScaleStrategy = cmp.Or(options.ScaleStrategy, &v1beta1.DaemonSetScaleStrategy{})
		options.ScaleStrategy.PartitionedScaling = true
	}
	return options, err
}
