package v1alpha1

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/racetest"
)

// ADS-210, ADS-212, ADS-215 (part): both round trips lose nothing. Inputs stay as they are. Annotations of ours are there if, and only if, a
// field needs them, and only in v1alpha1. The unknown fields are tested with the webhooks.
func TestConversionOfDaemonSetsLosesNothing(t *testing.T) {
	racetest.SkipAlone(t)
	const rounds = 1000
	for seed := range int64(rounds) {
		f := workloads(seed)
		alpha, beta := &DaemonSet{}, &v1beta1.DaemonSet{}
		f.Fill(alpha)
		f.Fill(beta)

		before := alpha.DeepCopy()
		checkSame(t, "v1alpha1 -> v1beta1 -> v1alpha1", alpha, DaemonSetFromV1beta1(alpha.ToV1beta1()))
		checkSame(t, "the input of ToV1beta1", before, alpha)

		unchanged := beta.DeepCopy()
		there := DaemonSetFromV1beta1(beta)
		converted := there.DeepCopy()
		back := there.ToV1beta1()
		checkSame(t, "the input of DaemonSetFromV1beta1", unchanged, beta)
		checkSame(t, "the input of ToV1beta1", converted, there)
		checkSame(t, "v1beta1 -> v1alpha1 -> v1beta1", beta, back)
		if there.Status.DaemonSetHash != beta.Status.UpdateRevision {
			t.Errorf("hash %q, revision %q", there.Status.DaemonSetHash, beta.Status.UpdateRevision)
		}
		scale := beta.Spec.ScaleStrategy
		_, other := there.Annotations[pub.V1beta1OnlyFields]
		if on := scale != nil && scale.PartitionedScaling; (there.Annotations[pub.ProgressiveCreatePod] == "true") != on || other != (scale != nil && !on) {
			t.Errorf("%+v: %v", scale, there.Annotations)
		}
		if _, err := there.Options(); err != nil {
			t.Errorf("what conversion writes is not understood: %v", err)
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// ADS-213, ADS-214: in v1alpha1 partition limits the creation of pods if the annotation is "true", in v1beta1 if the field is. An annotation never
// stays where the field says otherwise, whatever users wrote and however often an object is converted.
func TestPartitionedScalingIsAnAnnotation(t *testing.T) {
	const only = pub.V1beta1OnlyFields
	for name, test := range map[string]struct {
		alpha map[string]string // annotations in v1alpha1
		scale string            // scaleStrategy in v1beta1
		back  map[string]string // annotations in v1alpha1 again
	}{
		"none":            {nil, "null", map[string]string{}},
		"on":              {map[string]string{pub.ProgressiveCreatePod: "true"}, `{"partitionedScaling":true}`, map[string]string{pub.ProgressiveCreatePod: "true"}},
		"off":             {map[string]string{pub.ProgressiveCreatePod: "false"}, "null", map[string]string{}},
		"no word for it":  {map[string]string{pub.ProgressiveCreatePod: "True"}, "null", map[string]string{}},
		"an empty object": {map[string]string{only: `{"scaleStrategy":{}}`}, "{}", map[string]string{only: `{"scaleStrategy":{}}`}},
		"both":            {map[string]string{only: `{"scaleStrategy":{}}`, pub.ProgressiveCreatePod: "true"}, `{"partitionedScaling":true}`, map[string]string{pub.ProgressiveCreatePod: "true"}},
		"the other one": {map[string]string{only: `{"scaleStrategy":{"partitionedScaling":true}}`}, `{"partitionedScaling":true}`,
			map[string]string{pub.ProgressiveCreatePod: "true"}},
		"garbage": {map[string]string{only: `{"scaleStrategy":{"partitionedScaling":"x"}}`, pub.ProgressiveCreatePod: "true"}, `{"partitionedScaling":true}`,
			map[string]string{pub.ProgressiveCreatePod: "true"}},
	} {
		t.Run(name, func(t *testing.T) {
			alpha := &DaemonSet{}
			alpha.Annotations = map[string]string{"a/b": "c"}
			test.back["a/b"] = "c"
			for key, value := range test.alpha {
				alpha.Annotations[key] = value
			}
			beta := alpha.ToV1beta1()
			if diff := cmp.Diff(test.scale, string(encode(beta.Spec.ScaleStrategy))); diff != "" || len(beta.Annotations) != 1 {
				t.Errorf("v1beta1: %v %s", beta.Annotations, diff)
			}
			if diff := cmp.Diff(test.back, DaemonSetFromV1beta1(beta).Annotations); diff != "" {
				t.Error(diff)
			}
			// The annotations alone mean nothing in v1beta1.
			for key, value := range test.alpha {
				beta.Annotations[key] = value
			}
			beta.Spec.ScaleStrategy = nil
			if diff := cmp.Diff(map[string]string{"a/b": "c"}, DaemonSetFromV1beta1(beta).Annotations); diff != "" {
				t.Errorf("a stale annotation: %s", diff)
			}
		})
	}
}

// ADS-211: Surging is Standard with maxSurge in v1beta1, where that was not said too. No object gets it on the way back.
func TestSurgingIsStandard(t *testing.T) {
	for given, want := range map[string]string{
		``:                                      `,"maxUnavailable":0,"maxSurge":1`,
		`,"maxSurge":"10%"`:                     `,"maxUnavailable":0,"maxSurge":"10%"`,
		`,"maxUnavailable":"0%"`:                `,"maxUnavailable":"0%","maxSurge":1`,
		`,"maxUnavailable":2,"maxSurge":3`:      `,"maxUnavailable":2,"maxSurge":3`,
		`,"maxUnavailable":0,"maxSurge":0`:      `,"maxUnavailable":0,"maxSurge":0`,
		`,"partition":"50%","paused":true`:      `,"maxUnavailable":0,"maxSurge":1,"partition":"50%","paused":true`,
		`,"selector":{"matchLabels":{"a":"b"}}`: `,"maxUnavailable":0,"maxSurge":1,"selector":{"matchLabels":{"a":"b"}}`,
	} {
		const form = `{"rollingUpdateType":"%s"%s}`
		alpha := fromJSON[DaemonSet](t, fmt.Sprintf(`{"spec":{"updateStrategy":{"rollingUpdate":`+form+`}}}`, "Surging", given))
		beta := alpha.ToV1beta1()
		for _, got := range []any{beta.Spec.UpdateStrategy.RollingUpdate, DaemonSetFromV1beta1(beta).Spec.UpdateStrategy.RollingUpdate} {
			data, err := json.Marshal(got)
			if diff := cmp.Diff(fmt.Sprintf(form, "Standard", want), string(data)); diff != "" || err != nil {
				t.Error(given, diff, err)
			}
		}
	}
}

// ADS-215 (part): an annotation that is not understood, which only a user can have written, does no harm in conversion, and the webhooks are
// told of it.
func TestAnAnnotationOfADaemonSetThatIsNotUnderstood(t *testing.T) {
	for text, kept := range map[string]string{"": "{}", "garbage": "{}", "[]": "{}", "null": "{}",
		`{"scaleStrategy":{"partitionedScaling":1}}`: "{}", `{"scaleStrategi":{},"scaleStrategy":{"partitionedScaling":true}}`: `{"scaleStrategy":{"partitionedScaling":true}}`} {
		alpha := &DaemonSet{}
		alpha.Annotations = map[string]string{pub.V1beta1OnlyFields: text}
		options, err := alpha.Options()
		if got := string(encode(options)); got != kept || (err == nil) != (text == "null") {
			t.Errorf("%q: %s, %v", text, got, err)
		}
		if diff := cmp.Diff(options.ScaleStrategy, alpha.ToV1beta1().Spec.ScaleStrategy); diff != "" {
			t.Errorf("%q: %s", text, diff)
		}
	}
}
