package v1alpha1

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/randfill"
	"sigs.k8s.io/yaml"

	"github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/racetest"
)

// SS-270, SS-274 to SS-276: both round trips lose nothing, for any combination of label, version, namespace and selector, and inputs stay
// as they are.
func TestSidecarSetConversionLosesNothing(t *testing.T) {
	racetest.SkipAlone(t)
	for seed := range int64(400) {
		pick := func(c randfill.Continue, values ...string) string { return values[c.Intn(len(values))] }
		f := randfill.NewWithSeed(seed).NilChance(0.5).NumElements(0, 2).Funcs(
			func(o *metav1.ObjectMeta, c randfill.Continue) {
				*o = metav1.ObjectMeta{Name: "o", Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"c": "d"}}
				if version := pick(c, "", "r1", "r2"); version != "" {
					o.Labels[pub.SidecarSetCustomVersion] = version
				}
			},
			func(o *v1beta1.SidecarContainer, c randfill.Continue) {
				const document = `{"name":"a","image":"i","hologram":{"x":1},"upgradeStrategy":{},"shareVolumePolicy":{}}`
				if err := o.UnmarshalJSON([]byte(document)); err != nil {
					t.Fatal(err)
				}
			},
			func(o *v1beta1.SidecarVolumes, c randfill.Continue) {
				if err := o.UnmarshalJSON([]byte(pick(c, "null", `[{"name":"v","hologram":{}}]`, `"none"`))); err != nil {
					t.Fatal(err)
				}
			},
			func(o *metav1.LabelSelector, c randfill.Continue) {
				*o = metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: pick(c, "one", "two")}}
			},
		)
		beta := &v1beta1.SidecarSet{}
		f.Fill(beta)
		beta.TypeMeta = metav1.TypeMeta{}
		if selector := beta.Spec.NamespaceSelector; selector != nil && seed%2 == 0 {
			beta.Annotations[pub.SidecarSetV1alpha1Namespace] = selector.MatchLabels[corev1.LabelMetadataName]
		}
		before := plainJSON(t, beta)
		alpha := SidecarSetFromV1beta1(beta)
		alphaBefore := plainJSON(t, alpha)
		if diff := cmp.Diff(before, plainJSON(t, alpha.ToV1beta1())); diff != "" {
			t.Fatalf("seed %d: v1beta1 -> v1alpha1 -> v1beta1 (-in +out):\n%s", seed, diff)
		}
		if diff := cmp.Diff(before, plainJSON(t, beta)) + cmp.Diff(alphaBefore, plainJSON(t, alpha)); diff != "" {
			t.Fatalf("seed %d: the input was modified:\n%s", seed, diff)
		}

		alpha = &SidecarSet{}
		f.Fill(alpha)
		alpha.TypeMeta = metav1.TypeMeta{}
		if alpha.Spec.Namespace != "" {
			alpha.Spec.NamespaceSelector = nil // the namespace wins over it
		}
		if diff := cmp.Diff(plainJSON(t, alpha), plainJSON(t, SidecarSetFromV1beta1(alpha.ToV1beta1()))); diff != "" {
			t.Fatalf("seed %d: v1alpha1 -> v1beta1 -> v1alpha1 (-in +out):\n%s", seed, diff)
		}
	}
}

func TestSidecarSetConversion(t *testing.T) {
	const derived = `namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: ns}}`
	toBeta := map[string]struct{ alpha, beta string }{
		"SS-081, SS-271, SS-274 a namespace": {`{spec: {namespace: ns}}`,
			`{metadata: {annotations: {apps.kruise.io/sidecarset-v1alpha1-namespace: ns}}, spec: {` + derived + `}}`},
		"SS-273 it wins over a selector": {`{spec: {namespace: ns, namespaceSelector: {matchLabels: {a: b}}}}`,
			`{metadata: {annotations: {apps.kruise.io/sidecarset-v1alpha1-namespace: ns}}, spec: {` + derived + `}}`},
		"a selector, and an annotation that means nothing": {
			`{metadata: {annotations: {apps.kruise.io/sidecarset-v1alpha1-namespace: x}}, spec: {` + derived + `}}`,
			`{spec: {` + derived + `}}`},
		"SS-271 the label becomes the version": {`{metadata: {labels: {apps.kruise.io/sidecarset-custom-version: r1, a: b}}}`,
			`{metadata: {labels: {a: b}}, spec: {customVersion: r1}}`},
		"SS-275 a version that is changed, beside a label": {
			`{metadata: {labels: {apps.kruise.io/sidecarset-custom-version: r3}, annotations: {apps.kruise.io/conversion-data: '{"customVersionLabel":"r1","customVersion":"r2"}'}}}`,
			`{metadata: {labels: {apps.kruise.io/sidecarset-custom-version: r1}}, spec: {customVersion: r3}}`},
	}
	for name, test := range toBeta {
		t.Run(name, func(t *testing.T) {
			alpha, beta := &SidecarSet{}, &v1beta1.SidecarSet{}
			if err := yaml.UnmarshalStrict([]byte(test.alpha), alpha); err != nil {
				t.Fatal(err)
			}
			if err := yaml.UnmarshalStrict([]byte(test.beta), beta); err != nil {
				t.Fatal(err)
			}
			got := alpha.ToV1beta1()
			if len(got.Annotations) == 0 {
				got.Annotations = nil
			}
			if diff := cmp.Diff(plainJSON(t, beta), plainJSON(t, got)); diff != "" {
				t.Error(diff)
			}
		})
	}
	toAlpha := map[string]struct{ beta, alpha string }{
		"SS-272 a version": {`{spec: {customVersion: r1, ` + derived + `}}`,
			`{metadata: {labels: {apps.kruise.io/sidecarset-custom-version: r1}}, spec: {` + derived + `}}`},
		"SS-274 a namespace": {`{metadata: {annotations: {apps.kruise.io/sidecarset-v1alpha1-namespace: ns}}, spec: {` + derived +
			`}}`, `{spec: {namespace: ns}}`},
		"SS-274 one that was changed": {`{metadata: {annotations: {apps.kruise.io/sidecarset-v1alpha1-namespace: other}}, spec: {` +
			derived + `}}`, `{spec: {` + derived + `}}`},
	}
	for name, test := range toAlpha {
		t.Run(name, func(t *testing.T) {
			alpha, beta := &SidecarSet{}, &v1beta1.SidecarSet{}
			if err := yaml.UnmarshalStrict([]byte(test.alpha), alpha); err != nil {
				t.Fatal(err)
			}
			if err := yaml.UnmarshalStrict([]byte(test.beta), beta); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(plainJSON(t, alpha), plainJSON(t, SidecarSetFromV1beta1(beta))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// SS-273: a dropped selector is returned, for a warning.
func TestDroppedNamespaceSelector(t *testing.T) {
	for manifest, want := range map[string]bool{
		`{spec: {namespace: ns}}`:                                                                         false,
		`{spec: {namespaceSelector: {matchLabels: {a: b}}}}`:                                              false,
		`{spec: {namespace: ns, namespaceSelector: {matchLabels: {a: b}}}}`:                               true,
		`{spec: {namespace: ns, namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: ns}}}}`:    false,
		`{spec: {namespace: ns, namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: other}}}}`: true,
	} {
		set := &SidecarSet{}
		if err := yaml.UnmarshalStrict([]byte(manifest), set); err != nil {
			t.Fatal(err)
		}
		if got := set.DroppedNamespaceSelector() != nil; got != want {
			t.Errorf("%s: %v", manifest, got)
		}
	}
}
