package v1alpha1

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/randfill"

	"github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/racetest"
)

// daemonFiller fills requests and NodeImages at random, with times of whole seconds, as the API server stores them.
func daemonFiller(seed int64) *randfill.Filler {
	pick := func(c randfill.Continue, values ...string) string { return values[c.Intn(len(values))] }
	return randfill.NewWithSeed(seed).NilChance(0.4).NumElements(0, 3).Funcs(
		func(o *metav1.ObjectMeta, c randfill.Continue) {
			*o = metav1.ObjectMeta{Name: "o", Annotations: map[string]string{"c": "d"}}
			if c.Bool() {
				o.Annotations[pub.RecreateContainerStatuses] = pick(c, "", "garbage", "null", `{"a":1}`)
			}
			if c.Bool() {
				o.Annotations[pub.RecreateUnreadyAcquired] = pick(c, "", "yesterday", "2026-13-01T00:00:00Z")
			}
		},
		func(o *metav1.Time, c randfill.Continue) {
			*o = metav1.NewTime(time.Unix(int64(c.Intn(2_000_000_000)), 0))
		},
		func(o *metav1.Condition, c randfill.Continue) {
			c.FillNoCustom(o)
			o.Status = metav1.ConditionStatus(pick(c, "True", "False", "Unknown"))
		},
		func(o *[]metav1.Condition, c randfill.Continue) { // a map by type
			*o = nil
			for _, kind := range []string{"PreRecreateGrace", "Other", "More"} {
				if c.Bool() {
					var condition metav1.Condition
					c.Fill(&condition)
					condition.Type = kind
					*o = append(*o, condition)
				}
			}
		},
		func(o *intstr.IntOrString, c randfill.Continue) { *o = intstr.Parse(pick(c, "5", "http")) },
	)
}

// CRR-145, CRR-149, CRR-150, CRR-151: both round trips lose nothing for any content of the annotations, and inputs stay as they are.
func TestRecreateConversionLosesNothing(t *testing.T) {
	racetest.SkipAlone(t)
	for seed := range int64(300) {
		f := daemonFiller(seed)
		beta := &v1beta1.ContainerRecreateRequest{}
		f.Fill(beta)
		beta.TypeMeta = metav1.TypeMeta{}
		beta.Annotations = map[string]string{"c": "d"} // those of v1alpha1 have no meaning there
		before := beta.DeepCopy()
		alpha := ContainerRecreateRequestFromV1beta1(beta)
		alphaBefore := alpha.DeepCopy()
		back := alpha.ToV1beta1()
		if diff := cmp.Diff(plainJSON(t, before), plainJSON(t, back)); diff != "" {
			t.Fatalf("seed %d: v1beta1 -> v1alpha1 -> v1beta1 (-in +out):\n%s", seed, diff)
		}
		if diff := cmp.Diff(before, beta) + cmp.Diff(alphaBefore, alpha); diff != "" {
			t.Fatalf("seed %d: the input was modified:\n%s", seed, diff)
		}
		if again := ContainerRecreateRequestFromV1beta1(back); cmp.Diff(plainJSON(t, alpha), plainJSON(t, again)) != "" {
			t.Fatalf("seed %d: converting twice is not stable:\n%s", seed, cmp.Diff(plainJSON(t, alpha), plainJSON(t, again)))
		}

		f.Fill(alpha)
		alpha.TypeMeta = metav1.TypeMeta{}
		there := ContainerRecreateRequestFromV1beta1(alpha.ToV1beta1())
		if diff := cmp.Diff(plainJSON(t, alpha), plainJSON(t, there)); diff != "" {
			t.Fatalf("seed %d: v1alpha1 -> v1beta1 -> v1alpha1 (-in +out):\n%s", seed, diff)
		}
	}
}

func plainJSON(t *testing.T, object any) any {
	t.Helper()
	data, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	var value any
	if err := json.Unmarshal(data, &value); err != nil {
		t.Fatal(err)
	}
	return value
}

func TestAnnotationsOfRecreateRequestsConvertToTheStatus(t *testing.T) {
	const snapshot = `[{"name":"app","ready":true,"restartCount":3,"containerID":"containerd://aa"}]`
	grace := `{"type":"PreRecreateGrace","status":"True","reason":"PreRecreateGrace","message":"","lastTransitionTime":"2026-01-01T10:00:00Z"}`
	other := `{"type":"Other","status":"False","reason":"R","message":"m","lastTransitionTime":"2026-01-01T09:00:00Z"}`
	cases := map[string]struct{ alpha, beta string }{
		"CRR-146, CRR-148 the snapshot": {
			`{"metadata":{"annotations":{"crr.apps.kruise.io/sync-container-statuses":` + quote(snapshot) +
				`}},"spec":{"podName":"p","containers":null}}`,
			`{"metadata":{},"spec":{"podName":"p","containers":null},"status":{"containerStatusSnapshot":` + snapshot + `}}`,
		},
		"CRR-147, CRR-148, CRR-017 since when the pod is not ready": {
			`{"metadata":{"annotations":{"crr.apps.kruise.io/unready-acquired":"2026-01-01T10:00:00Z"}},"spec":{"podName":"p","containers":null},"status":{"phase":"Recreating"}}`,
			`{"metadata":{},"spec":{"podName":"p","containers":null},"status":{"phase":"Recreating","conditions":[` + grace + `]}}`,
		},
		"CRR-149 another condition": {
			`{"metadata":{"annotations":{"crr.apps.kruise.io/unready-acquired":"2026-01-01T10:00:00Z","apps.kruise.io/conversion-data":` +
				quote(`{"conditions":[`+swapMessage(other)+`,`+swapMessage(grace)+`]}`) + `}},"spec":{"podName":"p","containers":null}}`,
			`{"metadata":{},"spec":{"podName":"p","containers":null},"status":{"conditions":[` + other + `,` + grace + `]}}`,
		},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			alpha, beta := fromJSON[ContainerRecreateRequest](t, test.alpha), fromJSON[v1beta1.ContainerRecreateRequest](t, test.beta)
			if diff := cmp.Diff(plainJSON(t, beta), plainJSON(t, alpha.ToV1beta1())); diff != "" {
				t.Errorf("to v1beta1 (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(plainJSON(t, alpha), plainJSON(t, ContainerRecreateRequestFromV1beta1(beta))); diff != "" {
				t.Errorf("to v1alpha1 (-want +got):\n%s", diff)
			}
		})
	}
}

// swapMessage puts the fields in the order in which Go writes them.
func swapMessage(condition string) string {
	var c metav1.Condition
	if json.Unmarshal([]byte(condition), &c) != nil {
		return condition
	}
	data, _ := json.Marshal(c)
	return string(data)
}

func quote(text string) string {
	data, _ := json.Marshal(text)
	return string(data)
}

// CRR-146, CRR-147: unreadable annotations are named, for a warning; an empty one is ignored.
func TestUnreadableAnnotationsAreNamed(t *testing.T) {
	crr := &ContainerRecreateRequest{}
	crr.Annotations = map[string]string{pub.RecreateContainerStatuses: "x", pub.RecreateUnreadyAcquired: "y"}
	if diff := cmp.Diff([]string{pub.RecreateContainerStatuses, pub.RecreateUnreadyAcquired}, crr.UnreadableAnnotations()); diff != "" {
		t.Error(diff)
	}
	crr.Annotations = map[string]string{pub.RecreateContainerStatuses: "", pub.RecreateUnreadyAcquired: "2026-01-01T10:00:00+02:00"}
	if got := crr.UnreadableAnnotations(); got != nil {
		t.Error(got)
	}
}

// CRR-150: annotations that an older release left on the v1beta1 object are not restored, and a time that was changed in v1alpha1 wins over
// what the annotation keeps.
func TestRecreateStaleValuesDoNotReappear(t *testing.T) {
	beta := &v1beta1.ContainerRecreateRequest{}
	beta.Annotations = map[string]string{pub.RecreateContainerStatuses: `[{"name":"old"}]`,
		pub.RecreateUnreadyAcquired: "2020-01-01T00:00:00Z"}
	alpha := ContainerRecreateRequestFromV1beta1(beta)
	if len(alpha.Annotations) != 0 {
		t.Errorf("stale: %v", alpha.Annotations)
	}
	beta.Status.Conditions = []metav1.Condition{{Type: "PreRecreateGrace", Status: "True", Reason: "Own",
		LastTransitionTime: metav1.NewTime(time.Unix(100, 0))}}
	alpha = ContainerRecreateRequestFromV1beta1(beta)
	alpha.Annotations[pub.RecreateUnreadyAcquired] = "2026-01-01T10:00:00Z"
	got := alpha.ToV1beta1().Status.Conditions
	if len(got) != 1 || got[0].LastTransitionTime.UTC().Format(time.RFC3339) != "2026-01-01T10:00:00Z" {
		t.Errorf("%+v", got)
	}
	delete(alpha.Annotations, pub.RecreateUnreadyAcquired)
	if got := alpha.ToV1beta1().Status.Conditions; len(got) != 0 {
		t.Errorf("removed in v1alpha1, and back: %+v", got)
	}
}

// IMG-196, IMG-197: modes survive v1alpha1, the annotation does not accumulate, and nil and empty stay what they are.
func TestNodeImageConversionLosesNothing(t *testing.T) {
	racetest.SkipAlone(t)
	for seed := range int64(300) {
		f := daemonFiller(seed)
		beta := &v1beta1.NodeImage{}
		f.Fill(beta)
		beta.TypeMeta = metav1.TypeMeta{}
		before := beta.DeepCopy()
		alpha := NodeImageFromV1beta1(beta)
		if diff := cmp.Diff(plainJSON(t, before), plainJSON(t, alpha.ToV1beta1())); diff != "" {
			t.Fatalf("seed %d: v1beta1 -> v1alpha1 -> v1beta1 (-in +out):\n%s", seed, diff)
		}
		if diff := cmp.Diff(before, beta); diff != "" {
			t.Fatalf("seed %d: the input was modified:\n%s", seed, diff)
		}
		f.Fill(alpha)
		alpha.TypeMeta = metav1.TypeMeta{}
		if diff := cmp.Diff(plainJSON(t, alpha), plainJSON(t, NodeImageFromV1beta1(alpha.ToV1beta1()))); diff != "" {
			t.Fatalf("seed %d: v1alpha1 -> v1beta1 -> v1alpha1 (-in +out):\n%s", seed, diff)
		}
	}
	for _, text := range []string{`{"metadata":{},"spec":{},"status":{"desired":0}}`,
		`{"metadata":{},"spec":{"images":{}},"status":{"desired":0,"imageStatuses":{}}}`} {
		in := fromJSON[NodeImage](t, text)
		if diff := cmp.Diff(plainJSON(t, in), plainJSON(t, in.ToV1beta1())); diff != "" {
			t.Errorf("%s:\n%s", text, diff)
		}
	}
	beta := &v1beta1.NodeImage{}
	beta.Spec.Images = map[string]v1beta1.ImageSpec{
		"a": {PullSecrets: []v1beta1.ReferenceObject{{Namespace: "n", Name: "x", Mode: "batch"}, {Namespace: "n", Name: "y"}}}}
	alpha := NodeImageFromV1beta1(beta)
	image := alpha.Spec.Images["a"]
	image.PullSecrets = []ReferenceObject{{Namespace: "n", Name: "z"}, {Namespace: "n", Name: "x"}}
	alpha.Spec.Images["a"] = image
	want := []v1beta1.ReferenceObject{{Namespace: "n", Name: "z"}, {Namespace: "n", Name: "x", Mode: "batch"}}
	if diff := cmp.Diff(want, alpha.ToV1beta1().Spec.Images["a"].PullSecrets); diff != "" {
		t.Errorf("secrets changed in v1alpha1:\n%s", diff)
	}
}

// IMG-195, IMG-010: both versions of the jobs have the same types, so nothing can be lost where the API server converts.
func TestPullJobsAreAlikeInBothVersions(t *testing.T) {
	alpha := ImagePullJob{Spec: v1beta1.ImagePullJobSpec{Image: "a"}, Status: v1beta1.ImagePullJobStatus{Desired: 1}}
	beta := v1beta1.ImagePullJob{ObjectMeta: alpha.ObjectMeta, Spec: alpha.Spec, Status: alpha.Status}
	list := ImageListPullJob{Spec: v1beta1.ImageListPullJobSpec{Images: []string{"a"}}}
	listBeta := v1beta1.ImageListPullJob{ObjectMeta: list.ObjectMeta, Spec: list.Spec, Status: list.Status}
	if diff := cmp.Diff(plainJSON(t, alpha), plainJSON(t, beta)) + cmp.Diff(plainJSON(t, list), plainJSON(t, listBeta)); diff != "" {
		t.Error(diff)
	}
}
