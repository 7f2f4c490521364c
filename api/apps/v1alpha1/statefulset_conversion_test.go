package v1alpha1

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/randfill"

	"github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/api/template"
	"github.com/afloat-project/afloat/internal/racetest"
)

// workloads makes StatefulSets and DaemonSets with random values in all fields.
func workloads(seed int64) *randfill.Filler {
	pick := func(c randfill.Continue, values ...string) string { return values[c.Intn(len(values))] }
	return randfill.NewWithSeed(seed).NilChance(0.4).NumElements(0, 3).Funcs(
		func(*metav1.TypeMeta, randfill.Continue) {},
		func(o *metav1.ObjectMeta, c randfill.Continue) {
			c.FillNoCustom(o)
			o.ManagedFields = nil
		},
		func(o *template.PodTemplate, c randfill.Continue) {
			_ = o.UnmarshalJSON([]byte(pick(c, "null", `"broken"`, `{"spec":{"containers":[{"name":"a","future":12345678901234567890}]},"x":1.50}`)))
		},
		func(o *template.VolumeClaimTemplates, c randfill.Continue) {
			_ = o.UnmarshalJSON([]byte(pick(c, "null", `[{"metadata":{"name":"d"},"future":{"a":1.0}}]`, `{"no":"list"}`)))
		},
		func(o *intstr.IntOrString, c randfill.Continue) {
			*o = []intstr.IntOrString{intstr.FromInt32(5), intstr.FromString("5-7"), intstr.FromString("5"), intstr.FromInt32(-1)}[c.Intn(4)]
		},
	)
}

func checkSame(t *testing.T, what string, want, got any) {
	t.Helper()
	text := func(object any) string {
		data, err := json.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	if diff := cmp.Diff(text(want), text(got)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// ASTS-320, ASTS-322: both round trips lose nothing of metadata and spec, and of the status what both versions have. Inputs stay as they
// are. The annotation is there if, and only if, a field needs it, and only in v1alpha1.
func TestConversionOfStatefulSetsLosesNothing(t *testing.T) {
	racetest.SkipAlone(t)
	const rounds = 1000
	for seed := range int64(rounds) {
		f := workloads(seed)
		alpha, beta := &StatefulSet{}, &v1beta1.StatefulSet{}
		f.Fill(alpha)
		f.Fill(beta)

		before := alpha.DeepCopy()
		checkSame(t, "v1alpha1 -> v1beta1 -> v1alpha1", alpha, StatefulSetFromV1beta1(alpha.ToV1beta1()))
		checkSame(t, "the input of ToV1beta1", before, alpha)

		unchanged := beta.DeepCopy()
		there := StatefulSetFromV1beta1(beta)
		converted := there.DeepCopy()
		back := there.ToV1beta1()
		checkSame(t, "the input of StatefulSetFromV1beta1", unchanged, beta)
		checkSame(t, "the input of ToV1beta1", converted, there)
		beta.Status = v1beta1.StatefulSetStatus{StatefulSetProgress: beta.Status.StatefulSetProgress}
		checkSame(t, "v1beta1 -> v1alpha1 -> v1beta1", beta, back)

		options := encode(beta.Spec.StatefulSetOptions)
		text, annotated := there.Annotations[pub.V1beta1OnlyFields]
		if _, left := back.Annotations[pub.V1beta1OnlyFields]; left || annotated != (string(options) != "{}") || annotated && text != string(options) {
			t.Errorf("annotation %q in v1alpha1, %v in v1beta1", text, left)
		}
		if _, err := there.Options(); err != nil {
			t.Errorf("what conversion writes is not understood: %v", err)
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// ASTS-321, ASTS-322: each field that only v1beta1 has stands in the annotation under its name. Who changes the annotation changes the field,
// and who removes it removes them all. An annotation of that name in v1beta1 means nothing.
func TestFieldsOfV1beta1AreInAnAnnotation(t *testing.T) {
	const fields = `"reserveOrdinals":[1,"4-5"],"ordinals":{"start":2},"lifecycle":{"preDelete":{"finalizersHandler":["a/b"]}},` +
		`"scaleStrategy":{"maxUnavailable":"20%"},"persistentVolumeClaimRetentionPolicy":{"whenDeleted":"Delete","whenScaled":"Retain"},` +
		`"volumeClaimUpdateStrategy":{"type":"OnPodRollingUpdate"}`
	beta := fromJSON[v1beta1.StatefulSet](t,
		`{"metadata":{"annotations":{"apps.kruise.io/v1beta1-only-fields":"{\"ordinals\":{\"start\":9}}"}},"spec":{"replicas":3,`+fields+`}}`)
	alpha := StatefulSetFromV1beta1(beta)
	if diff := cmp.Diff("{"+fields+"}", alpha.Annotations[pub.V1beta1OnlyFields]); diff != "" {
		t.Error(diff)
	}
	back := alpha.ToV1beta1()
	if diff := cmp.Diff(beta.Spec, back.Spec); diff != "" || len(back.Annotations) > 0 {
		t.Error(back.Annotations, diff)
	}
	alpha.Annotations[pub.V1beta1OnlyFields] = strings.Replace(alpha.Annotations[pub.V1beta1OnlyFields], `"start":2`, `"start":3`, 1)
	if got := alpha.ToV1beta1().Spec; got.Ordinals.Start != 3 || len(got.ReserveOrdinals) != 2 {
		t.Errorf("changed: %+v", got)
	}
	delete(alpha.Annotations, pub.V1beta1OnlyFields)
	if got := string(encode(alpha.ToV1beta1().Spec.StatefulSetOptions)); got != "{}" {
		t.Errorf("removed: %s", got)
	}
}

// ASTS-322 (part): an annotation that is not understood, which only a user can have written, does no harm in conversion, and the webhooks are told of it.
func TestAnAnnotationThatIsNotUnderstood(t *testing.T) {
	for text, kept := range map[string]string{"": "{}", "garbage": "{}", "[]": "{}", "null": "{}", `{"ordinals":{"start":"x"},"reserveOrdinals":[1]}`: "{}",
		`{"reserveOrdinal":[1],"ordinals":{"start":1}}`: `{"ordinals":{"start":1}}`} {
		alpha := &StatefulSet{}
		alpha.Annotations = map[string]string{pub.V1beta1OnlyFields: text}
		if got := string(encode(alpha.ToV1beta1().Spec.StatefulSetOptions)); got != kept {
			t.Errorf("%q: %s", text, got)
		}
		if _, err := alpha.Options(); (err == nil) != (text == "null") {
			t.Errorf("%q: %v", text, err)
		}
	}
	if _, err := (&StatefulSet{}).Options(); err != nil {
		t.Errorf("without the annotation: %v", err)
	}
}
