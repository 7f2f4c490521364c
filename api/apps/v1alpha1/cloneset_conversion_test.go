package v1alpha1

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"
	"sigs.k8s.io/randfill"

	"github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/api/template"
	"github.com/afloat-project/afloat/internal/racetest"
)

// filler makes objects with random values in all fields, and uses the values that matter to conversion where they matter.
func filler(seed int64) *randfill.Filler {
	pick := func(c randfill.Continue, values ...string) string { return values[c.Intn(len(values))] }
	meta := func(labels, annotations *map[string]string, c randfill.Continue) {
		*labels, *annotations = map[string]string{"a": "b"}, map[string]string{"c": "d"}
		if c.Bool() {
			(*labels)[pub.CloneSetExcludePreparingDelete] = pick(c, "true", "false", "True", "")
		}
		for _, p := range preDownloads {
			if c.Bool() {
				(*annotations)[p.key] = pick(c, "5", "0", "-3", "007", "+4", "50%", "many", "", "99999999999")
			}
		}
		if c.Intn(4) == 0 {
			(*annotations)[pub.ConversionData] = pick(c, "", "garbage", "{}", "[]", `{"type":{"was":5,"as":"ReCreate"}}`, "null")
		}
	}
	return randfill.NewWithSeed(seed).NilChance(0.4).NumElements(0, 3).Funcs(
		func(o *CloneSet, c randfill.Continue) {
			c.FillNoCustom(o)
			o.Kind, o.APIVersion = "", ""
			o.ManagedFields = nil
			meta(&o.Labels, &o.Annotations, c)
		},
		func(o *v1beta1.CloneSet, c randfill.Continue) {
			c.FillNoCustom(o)
			o.Kind, o.APIVersion = "", ""
			o.ManagedFields = nil
			meta(&o.Labels, &o.Annotations, c)
		},
		func(o *template.PodTemplate, c randfill.Continue) {
			*o = template.PodTemplate{}
			if c.Bool() {
				document := pick(c, `{"spec":{"containers":[{"name":"a","future":12345678901234567890}]},"x":1.50}`, `"broken"`,
					`{"metadata":{"creationTimestamp":null},"spec":{}}`)
				_ = o.UnmarshalJSON([]byte(document))
			}
		},
		func(o *template.VolumeClaimTemplates, c randfill.Continue) {
			_ = o.UnmarshalJSON([]byte(pick(c, "null", `[{"metadata":{"name":"d"},"future":{"a":1.0}}]`, `{"no":"list"}`)))
		},
		func(o *CloneSetUpdateStrategyType, c randfill.Continue) {
			*o = CloneSetUpdateStrategyType(pick(c, "", "ReCreate", "InPlaceIfPossible", "InPlaceOnly", "OnDelete", "RollingUpdate", "Foo"))
		},
		func(o *v1beta1.CloneSetUpdateStrategyType, c randfill.Continue) {
			*o = v1beta1.CloneSetUpdateStrategyType(pick(c, "", "RollingUpdate", "OnDelete", "ReCreate", "Foo"))
		},
		func(o *v1beta1.CloneSetPodUpdatePolicy, c randfill.Continue) {
			*o = v1beta1.CloneSetPodUpdatePolicy(pick(c, "", "ReCreate", "InPlaceIfPossible", "InPlaceOnly", "OnDelete", "Foo"))
		},
		func(o *intstr.IntOrString, c randfill.Continue) { *o = intstr.Parse(pick(c, "5", "0", "30%", "x")) },
	)
}

// visible returns the JSON of an object without the private annotation, which users do not see.
func visible(t interface{ Fatalf(string, ...any) }, object any) any {
	data, err := json.Marshal(object)
	if err != nil {
		t.Fatalf("marshal: %v", err)
	}
	var value map[string]any
	if err := json.Unmarshal(data, &value); err != nil {
		t.Fatalf("unmarshal: %v", err)
	}
	if meta, ok := value["metadata"].(map[string]any); ok {
		if annotations, ok := meta["annotations"].(map[string]any); ok {
			delete(annotations, pub.ConversionData)
			if len(annotations) == 0 {
				delete(meta, "annotations")
			}
		}
		if labels, ok := meta["labels"].(map[string]any); ok && len(labels) == 0 {
			delete(meta, "labels")
		}
	}
	return value
}

// CS-250 to CS-258: both round trips lose nothing, inputs stay as they are, and the private annotation never accumulates.
func TestConversionLosesNothing(t *testing.T) {
	racetest.SkipAlone(t)
	const rounds = 1000
	for seed := range int64(rounds) {
		f := filler(seed)
		alpha := &CloneSet{}
		f.Fill(alpha)
		checkAlphaTrip(t, alpha)
		beta := &v1beta1.CloneSet{}
		f.Fill(beta)
		checkBetaTrip(t, beta)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func checkAlphaTrip(t *testing.T, in *CloneSet) {
	t.Helper()
	before := in.DeepCopy()
	beta := in.ToV1beta1()
	betaBefore := beta.DeepCopy()
	back := CloneSetFromV1beta1(beta)
	if diff := cmp.Diff(visible(t, in), visible(t, back)); diff != "" {
		t.Errorf("v1alpha1 -> v1beta1 -> v1alpha1 (-in +out):\n%s\nheld: %s", diff, beta.Annotations[pub.ConversionData])
	}
	if diff := cmp.Diff(before, in) + cmp.Diff(betaBefore, beta); diff != "" {
		t.Errorf("CS-257: the input was modified:\n%s", diff)
	}
	if _, ok := back.Annotations[pub.ConversionData]; ok {
		t.Errorf("CS-256: the private annotation came back: %s", back.Annotations[pub.ConversionData])
	}
	if diff := cmp.Diff(visible(t, beta), visible(t, back.ToV1beta1())); diff != "" {
		t.Errorf("converting twice is not stable:\n%s", diff)
	}
}

func checkBetaTrip(t *testing.T, in *v1beta1.CloneSet) {
	t.Helper()
	before := in.DeepCopy()
	alpha := CloneSetFromV1beta1(in)
	alphaBefore := alpha.DeepCopy()
	back := alpha.ToV1beta1()
	if diff := cmp.Diff(visible(t, in), visible(t, back)); diff != "" {
		t.Errorf("v1beta1 -> v1alpha1 -> v1beta1 (-in +out):\n%s\nheld: %s", diff, alpha.Annotations[pub.ConversionData])
	}
	if diff := cmp.Diff(before, in) + cmp.Diff(alphaBefore, alpha); diff != "" {
		t.Errorf("CS-257: the input was modified:\n%s", diff)
	}
}

func fromJSON[T any](t *testing.T, text string) *T {
	t.Helper()
	value := new(T)
	if err := json.Unmarshal([]byte(text), value); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return value
}

// CS-258: objects without the private annotation, as the reference stores them, convert correctly in both directions.
func TestObjectsOfTheReferenceConvertBothWays(t *testing.T) {
	cases := map[string]struct{ alpha, beta string }{
		"CS-251 reuse off": {
			`{"metadata":{},"spec":{"scaleStrategy":{"disablePVCReuse":true},"updateStrategy":{"type":"OnDelete"}}}`,
			`{"metadata":{},"spec":{"updateStrategy":{"type":"OnDelete"}}}`,
		},
		"CS-251 reuse on is written, CS-252 (part), CS-253": {
			`{"metadata":{},"spec":{"updateStrategy":{"type":"InPlaceOnly","partition":"60%","maxUnavailable":1,"paused":true}}}`,
			`{"metadata":{},"spec":{"scaleStrategy":{"enablePVCReuse":true},"updateStrategy":{"type":"RollingUpdate","rollingUpdate":{"podUpdatePolicy":"InPlaceOnly","partition":"60%","maxUnavailable":1,"paused":true}}}}`,
		},
		"CS-254 annotations and label": {
			`{"metadata":{"labels":{"apps.kruise.io/cloneset-scaling-exclude-preparing-delete":"true"},"annotations":{"apps.kruise.io/image-predownload-parallelism":"4","apps.kruise.io/image-predownload-timeout-seconds":"60","apps.kruise.io/image-predownload-min-updated-ready-pods":"2"}},"spec":{"updateStrategy":{"type":"InPlaceIfPossible","inPlaceUpdateStrategy":{}}}}`,
			`{"metadata":{},"spec":{"scaleStrategy":{"enablePVCReuse":true,"excludePreparingDelete":true},"updateStrategy":{"type":"RollingUpdate","rollingUpdate":{"podUpdatePolicy":"InPlaceIfPossible","inPlaceUpdateStrategy":{"imagePreDownloadParallelism":4,"imagePreDownloadTimeoutSeconds":60,"imagePreDownloadMinUpdatedReadyPods":2}}}}}`,
		},
		"CS-255 OnDelete keeps rolling fields": {
			`{"metadata":{},"spec":{"updateStrategy":{"type":"OnDelete","partition":3,"maxSurge":1}}}`,
			`{"metadata":{},"spec":{"scaleStrategy":{"enablePVCReuse":true},"updateStrategy":{"type":"OnDelete","rollingUpdate":{"partition":3,"maxSurge":1}}}}`,
		},
		"CS-345 a percentage stays visible": {
			`{"metadata":{"annotations":{"apps.kruise.io/image-predownload-min-updated-ready-pods":"50%"}},"spec":{"updateStrategy":{"type":"ReCreate"}}}`,
			`{"metadata":{"annotations":{"apps.kruise.io/image-predownload-min-updated-ready-pods":"50%"}},"spec":{"scaleStrategy":{"enablePVCReuse":true},"updateStrategy":{"type":"RollingUpdate","rollingUpdate":{"podUpdatePolicy":"ReCreate"}}}}`,
		},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			alpha, beta := fromJSON[CloneSet](t, test.alpha), fromJSON[v1beta1.CloneSet](t, test.beta)
			gotBeta, gotAlpha := alpha.ToV1beta1(), CloneSetFromV1beta1(beta)
			if diff := cmp.Diff(visible(t, beta), visible(t, gotBeta)); diff != "" {
				t.Errorf("to v1beta1 (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(visible(t, alpha), visible(t, gotAlpha)); diff != "" {
				t.Errorf("to v1alpha1 (-want +got):\n%s", diff)
			}
			if gotBeta.Annotations[pub.ConversionData]+gotAlpha.Annotations[pub.ConversionData] != "" {
				t.Errorf("nothing needs to be put aside here")
			}
		})
	}
}

// CS-252: each type of v1alpha1 is a policy of v1beta1, none is ReCreate, and OnDelete is a type in both.
func TestTypesBecomePolicies(t *testing.T) {
	for alpha, want := range map[string][2]string{"": {"RollingUpdate", "ReCreate"}, "ReCreate": {"RollingUpdate", "ReCreate"},
		"InPlaceIfPossible": {"RollingUpdate", "InPlaceIfPossible"}, "InPlaceOnly": {"RollingUpdate", "InPlaceOnly"},
		"OnDelete": {"OnDelete", ""}} {
		beta := fromJSON[CloneSet](t, `{"spec":{"updateStrategy":{"type":"`+alpha+`"}}}`).ToV1beta1().Spec.UpdateStrategy
		policy := ""
		if beta.RollingUpdate != nil {
			policy = string(beta.RollingUpdate.PodUpdatePolicy)
		}
		if string(beta.Type) != want[0] || policy != want[1] {
			t.Errorf("%q: type %q, policy %q", alpha, beta.Type, policy)
		}
		spec := `{"type":"` + want[0] + `"}`
		if want[1] != "" {
			spec = `{"type":"` + want[0] + `","rollingUpdate":{"podUpdatePolicy":"` + want[1] + `"}}`
		}
		back := CloneSetFromV1beta1(fromJSON[v1beta1.CloneSet](t, `{"spec":{"updateStrategy":`+spec+`}}`)).Spec.UpdateStrategy.Type
		if string(back) != alpha && (alpha != "" || back != "ReCreate") {
			t.Errorf("%s: %q", spec, back)
		}
	}
}

// CS-252 (part): without a policy v1alpha1 shows ReCreate.
func TestMissingPolicyIsReCreate(t *testing.T) {
	for _, text := range []string{`{"spec":{}}`, `{"spec":{"updateStrategy":{"type":"RollingUpdate","rollingUpdate":{}}}}`} {
		if got := CloneSetFromV1beta1(fromJSON[v1beta1.CloneSet](t, text)).Spec.UpdateStrategy.Type; got != "ReCreate" {
			t.Errorf("%s: type %q", text, got)
		}
	}
}

// CS-255, CS-256: a change in one version wins over what the annotation keeps of the other version.
func TestChangesWinOverWhatWasPutAside(t *testing.T) {
	t.Run("field cleared in v1beta1 does not come back from annotations", func(t *testing.T) {
		alpha := &CloneSet{}
		alpha.Annotations = map[string]string{pub.ImagePreDownloadParallelism: "007"}
		beta := alpha.ToV1beta1()
		beta.Spec.UpdateStrategy.RollingUpdate.InPlaceUpdateStrategy.ImagePreDownloadParallelism = nil
		if got, ok := CloneSetFromV1beta1(beta).Annotations[pub.ImagePreDownloadParallelism]; ok {
			t.Errorf("annotation is back: %q", got)
		}
	})
	t.Run("stale annotation on a v1beta1 object does not become a setting", func(t *testing.T) {
		beta := &v1beta1.CloneSet{}
		beta.Annotations = map[string]string{pub.ImagePreDownloadParallelism: "9"}
		alpha := CloneSetFromV1beta1(beta)
		if got, ok := alpha.Annotations[pub.ImagePreDownloadParallelism]; ok {
			t.Errorf("v1alpha1 shows it: %q", got)
		}
		if alpha.ToV1beta1().Annotations[pub.ImagePreDownloadParallelism] != "9" {
			t.Error("v1beta1 lost it")
		}
	})
	t.Run("v1alpha1 field wins over annotation", func(t *testing.T) {
		alpha := fromJSON[CloneSet](t, `{"metadata":{"annotations":{"apps.kruise.io/image-predownload-timeout-seconds":"60"}},"spec":{"updateStrategy":{"inPlaceUpdateStrategy":{"imagePreDownloadTimeoutSeconds":90}}}}`)
		if got := alpha.ToV1beta1().Spec.UpdateStrategy.RollingUpdate.InPlaceUpdateStrategy.ImagePreDownloadTimeoutSeconds; got == nil ||
			*got != 90 {
			t.Errorf("timeout %v", got)
		}
	})
	t.Run("type changed in v1alpha1 wins over the remembered policy", func(t *testing.T) {
		beta := fromJSON[v1beta1.CloneSet](t,
			`{"spec":{"updateStrategy":{"type":"OnDelete","rollingUpdate":{"podUpdatePolicy":"InPlaceOnly"}}}}`)
		alpha := CloneSetFromV1beta1(beta)
		alpha.Spec.UpdateStrategy.Type = RecreateCloneSetUpdateStrategyType
		got := alpha.ToV1beta1().Spec.UpdateStrategy
		if got.Type != "RollingUpdate" || got.RollingUpdate.PodUpdatePolicy != "ReCreate" {
			t.Errorf("got %+v", got)
		}
	})
}

// CS-256: the annotation keeps what conversion wrote. A user who writes it by hand cannot get a type or policy past the webhook, which saw
// the v1alpha1 form.
func TestAnnotationCannotSmuggleATypeIn(t *testing.T) {
	for given, was := range map[string]string{
		"ReCreate":          `{"type":"Bogus"}`,
		"":                  `{"type":"RollingUpdate","podUpdatePolicy":"InPlaceOnly","rollingUpdate":true}`,
		"InPlaceIfPossible": `{"type":"RollingUpdate","podUpdatePolicy":"Bogus","rollingUpdate":true}`,
		"OnDelete":          `{"type":"RollingUpdate"}`,
	} {
		alpha := &CloneSet{}
		alpha.Spec.UpdateStrategy.Type = CloneSetUpdateStrategyType(given)
		plain := alpha.ToV1beta1().Spec.UpdateStrategy
		alpha.Annotations = map[string]string{pub.ConversionData: `{"type":{"was":` + was + `,"as":"` + given + `"}}`}
		if diff := cmp.Diff(plain, alpha.ToV1beta1().Spec.UpdateStrategy); diff != "" {
			t.Errorf("%s:\n%s", given, diff)
		}
	}
}

// Any edit of a converted object survives the way back, whatever the annotation keeps.
func TestEditsOfTheOtherFormSurvive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := filler(rapid.Int64().Draw(t, "seed"))
		alpha := &CloneSet{}
		f.Fill(alpha)
		beta := alpha.ToV1beta1()
		f.Fill(&beta.Spec)
		if beta.Spec.UpdateStrategy.RollingUpdate == nil {
			beta.Spec.UpdateStrategy.RollingUpdate = &v1beta1.RollingUpdateCloneSetStrategy{}
		}
		got := CloneSetFromV1beta1(beta).ToV1beta1()
		if diff := cmp.Diff(visible(t, beta), visible(t, got)); diff != "" {
			t.Fatalf("edit lost: %s", fmt.Sprint(diff))
		}
	})
}
