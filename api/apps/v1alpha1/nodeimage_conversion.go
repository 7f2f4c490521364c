package v1alpha1

import (
	"encoding/json"
	"slices"

	"github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
)

// Conversion of NodeImages (IMG-196, IMG-197). v1alpha1 has no place for the mode of a pull secret: pub.ConversionData of the v1alpha1
// object keeps the references that have one, by image.
type secretModes map[string][]v1beta1.ReferenceObject

// ToV1beta1 returns the NodeImage in the v1beta1 form. It does not modify in.
func (in *NodeImage) ToV1beta1() *v1beta1.NodeImage {
	in = in.DeepCopy()
	out := &v1beta1.NodeImage{ObjectMeta: in.ObjectMeta, Status: in.Status}
	var modes secretModes
	if text, ok := out.Annotations[pub.ConversionData]; ok {
		delete(out.Annotations, pub.ConversionData)
		if !decode(json.RawMessage(text), &modes) {
			modes = nil
		}
	}
	if in.Spec.Images == nil {
		return out
	}
	out.Spec.Images = make(map[string]v1beta1.ImageSpec, len(in.Spec.Images))
	for name, image := range in.Spec.Images {
		held := slices.Clone(modes[name])
		var secrets []v1beta1.ReferenceObject
		for _, secret := range image.PullSecrets {
			converted := v1beta1.ReferenceObject{Namespace: secret.Namespace, Name: secret.Name}
			same := func(r v1beta1.ReferenceObject) bool { return r.Namespace == secret.Namespace && r.Name == secret.Name }
			if i := slices.IndexFunc(held, same); i >= 0 {
				converted.Mode = held[i].Mode
				held = slices.Delete(held, i, i+1)
			}
			secrets = append(secrets, converted)
		}
		out.Spec.Images[name] = v1beta1.ImageSpec{PullSecrets: secrets, Tags: image.Tags, SandboxConfig: image.SandboxConfig}
	}
	return out
}

// NodeImageFromV1beta1 returns the NodeImage in the v1alpha1 form. It does not modify in.
func NodeImageFromV1beta1(in *v1beta1.NodeImage) *NodeImage {
	in = in.DeepCopy()
	out := &NodeImage{ObjectMeta: in.ObjectMeta, Status: in.Status}
	delete(out.Annotations, pub.ConversionData)
	if in.Spec.Images == nil {
		return out
	}
	modes := secretModes{}
	out.Spec.Images = make(map[string]ImageSpec, len(in.Spec.Images))
	for name, image := range in.Spec.Images {
		var secrets []ReferenceObject
		for _, secret := range image.PullSecrets {
			secrets = append(secrets, ReferenceObject{Namespace: secret.Namespace, Name: secret.Name})
		}
		if slices.ContainsFunc(image.PullSecrets, func(r v1beta1.ReferenceObject) bool { return r.Mode != "" }) {
			modes[name] = image.PullSecrets
		}
		out.Spec.Images[name] = ImageSpec{PullSecrets: secrets, Tags: image.Tags, SandboxConfig: image.SandboxConfig}
	}
	if len(modes) > 0 {
		setKey(&out.Annotations, pub.ConversionData, string(encode(modes)))
	}
	return out
}
