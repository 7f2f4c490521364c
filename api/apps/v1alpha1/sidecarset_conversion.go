package v1alpha1

import (
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
)

// Conversion of SidecarSets (SS-270 to SS-276). Both directions are total. spec.namespace is a namespaceSelector in v1beta1, and an
// annotation there remembers it (SS-271, SS-274). The custom version is a label in v1alpha1; a v1beta1 object may have that label with a
// different spec.customVersion, or without one: pub.ConversionData then keeps both (SS-275).

// sidecarRemainder is what pub.ConversionData of a v1alpha1 object holds.
type sidecarRemainder struct {
	// Label is the label of the custom version that the v1beta1 object has, and Version its spec.customVersion.
	Label   string `json:"customVersionLabel"`
	Version string `json:"customVersion"`
}

// presented returns the label of the v1alpha1 object.
func (r sidecarRemainder) presented() string {
	if r.Version != "" {
		return r.Version
	}
	return r.Label
}

// ToV1beta1 returns the SidecarSet in the v1beta1 form. It does not modify in (SS-275).
func (in *SidecarSet) ToV1beta1() *v1beta1.SidecarSet {
	in = in.DeepCopy()
	out := &v1beta1.SidecarSet{ObjectMeta: in.ObjectMeta, Spec: v1beta1.SidecarSetSpec{SidecarSetTemplate: in.Spec.SidecarSetTemplate},
		Status: in.Status}
	delete(out.Annotations, pub.SidecarSetV1alpha1Namespace)
	if in.Spec.Namespace != "" {
		out.Spec.NamespaceSelector = selectorOf(in.Spec.Namespace)
		setKey(&out.Annotations, pub.SidecarSetV1alpha1Namespace, in.Spec.Namespace)
	}
	label := out.Labels[pub.SidecarSetCustomVersion]
	out.Spec.CustomVersion = label
	delete(out.Labels, pub.SidecarSetCustomVersion)
	var held sidecarRemainder
	text, ok := out.Annotations[pub.ConversionData]
	delete(out.Annotations, pub.ConversionData)
	if ok && decode(json.RawMessage(text), &held) && held.Label != "" {
		if label == held.presented() {
			out.Spec.CustomVersion = held.Version
		}
		if label == held.presented() || held.Version != "" { // the changed label differed from the version
			setKey(&out.Labels, pub.SidecarSetCustomVersion, held.Label)
		}
	}
	return out
}

// SidecarSetFromV1beta1 returns the SidecarSet in the v1alpha1 form. It does not modify in (SS-275).
func SidecarSetFromV1beta1(in *v1beta1.SidecarSet) *SidecarSet {
	in = in.DeepCopy()
	out := &SidecarSet{ObjectMeta: in.ObjectMeta, Spec: SidecarSetSpec{SidecarSetTemplate: in.Spec.SidecarSetTemplate}, Status: in.Status}
	if namespace := in.Annotations[pub.SidecarSetV1alpha1Namespace]; namespace != "" &&
		equality.Semantic.DeepEqual(in.Spec.NamespaceSelector, selectorOf(namespace)) {
		out.Spec.Namespace, out.Spec.NamespaceSelector = namespace, nil
	}
	delete(out.Annotations, pub.SidecarSetV1alpha1Namespace)
	delete(out.Annotations, pub.ConversionData)
	held := sidecarRemainder{Label: in.Labels[pub.SidecarSetCustomVersion], Version: in.Spec.CustomVersion}
	if held.Label != "" {
		setKey(&out.Annotations, pub.ConversionData, string(encode(held)))
	}
	if shown := held.presented(); shown != "" {
		setKey(&out.Labels, pub.SidecarSetCustomVersion, shown)
	}
	return out
}

// DroppedNamespaceSelector returns the namespaceSelector that is dropped because spec.namespace wins, nil if there is none or both are
// equal (SS-273).
func (in *SidecarSet) DroppedNamespaceSelector() *metav1.LabelSelector {
	given := in.Spec.NamespaceSelector
	if in.Spec.Namespace == "" || given == nil || equality.Semantic.DeepEqual(given, selectorOf(in.Spec.Namespace)) {
		return nil
	}
	return given
}

// selectorOf selects the namespace of that name (SS-081).
func selectorOf(namespace string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}}
}
