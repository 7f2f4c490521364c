package v1alpha1

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/randfill"

	"github.com/afloat-project/afloat/api/policy/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
)

func fromJSON[T any](t *testing.T, text string) *T {
	t.Helper()
	value := new(T)
	if err := json.Unmarshal([]byte(text), value); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return value
}

func document(t *testing.T, object any) (value map[string]any) {
	t.Helper()
	data, err := json.Marshal(object)
	if err == nil {
		err = json.Unmarshal(data, &value)
	}
	if err != nil {
		t.Fatal(err)
	}
	return value
}

// filler makes budgets with random values, and annotations that can be read or not.
func filler(seed int64) *randfill.Filler {
	meta := func(o *metav1.ObjectMeta, c randfill.Continue) {
		*o = metav1.ObjectMeta{Name: "web"}
		for _, of := range [][]string{
			{"note", "kept"},
			{pub.BudgetOperations, "", ",", "DELETE", " EVICT,DELETE ,", "RESIZE,RESIZE", "delete", "DELETE,EXPLODE"},
			{pub.BudgetTotalReplicas, "", "5", "007", "+3", "0", "-1", "many", "2147483648"},
			{pub.BudgetIgnoredPods, "", "null", "[]", "{}", `{"matchLabels":{"a":"b"}}`, `{"matchLabel":{}}`, `{"matchLabels":{"a":1}}`,
				` {"matchExpressions":[{"key":"a","operator":"Exists"}]}`, `{"matchLabels":{}}`},
		} {
			if c.Bool() {
				metav1.SetMetaDataAnnotation(o, of[0], of[1+c.Intn(len(of)-1)])
			}
		}
	}
	return randfill.NewWithSeed(seed).NilChance(0.4).NumElements(0, 3).Funcs(meta,
		func(*metav1.TypeMeta, randfill.Continue) {},
		func(o *metav1.Time, _ randfill.Continue) { *o = metav1.Unix(1e9, 0) },
		func(o *intstr.IntOrString, c randfill.Continue) {
			*o = []intstr.IntOrString{intstr.FromInt32(3), intstr.FromString("30%"), intstr.FromString("x")}[c.Intn(3)]
		},
		func(o *[]v1beta1.PodUnavailableBudgetOperation, c randfill.Continue) {
			for _, operation := range v1beta1.BudgetOperations {
				if c.Intn(3) == 0 {
					*o = append(*o, operation)
				}
			}
		},
		func(o *int32, c randfill.Continue) { *o = 1 + c.Int31n(9) },
	)
}

// PUB-120, PUB-121, OPS-072 (part): every budget of v1alpha1 returns as it was, whatever its annotations say; a budget of v1beta1 returns
// with all its fields, and annotations that say the same. An empty field gets the value of its annotation, which it had before. Converting
// changes no input.
func TestConversionLosesNothing(t *testing.T) {
	for seed := range int64(1000) {
		f := filler(seed)
		alpha, beta := &PodUnavailableBudget{}, &v1beta1.PodUnavailableBudget{}
		f.Fill(alpha)
		f.Fill(beta)
		alphaBefore, betaBefore := alpha.DeepCopy(), beta.DeepCopy()
		up, down := alpha.ToV1beta1(), PodUnavailableBudgetFromV1beta1(beta)
		if diff := cmp.Diff(document(t, alpha), document(t, PodUnavailableBudgetFromV1beta1(up))); diff != "" {
			t.Errorf("seed %d: v1alpha1 and back (-in +out):\n%s", seed, diff)
		}
		want, got := beta.DeepCopy(), down.ToV1beta1()
		if len(want.Spec.ProtectOperations) == 0 {
			want.Spec.ProtectOperations, _ = v1beta1.ParseBudgetOperations(want.Annotations[pub.BudgetOperations])
		}
		if want.Spec.ProtectTotalReplicas == nil {
			want.Spec.ProtectTotalReplicas, _ = v1beta1.ParseBudgetTotalReplicas(want.Annotations[pub.BudgetTotalReplicas])
		}
		if diff := cmp.Diff(document(t, want.Spec), document(t, got.Spec)) +
			cmp.Diff(document(t, want.Status), document(t, got.Status)); diff != "" {
			t.Errorf("seed %d: v1beta1 and back (-in +out):\n%s", seed, diff)
		}
		if got.Annotations["note"] != beta.Annotations["note"] {
			t.Errorf("seed %d: %v became %v", seed, beta.Annotations, got.Annotations)
		}
		if diff := cmp.Diff(document(t, got), document(t, PodUnavailableBudgetFromV1beta1(got).ToV1beta1())); diff != "" {
			t.Errorf("seed %d: converting twice is not stable:\n%s", seed, diff)
		}
		if diff := cmp.Diff(alphaBefore, alpha) + cmp.Diff(betaBefore, beta); diff != "" {
			t.Errorf("seed %d: an input was modified:\n%s", seed, diff)
		}
		if t.Failed() {
			return
		}
	}
}

// PUB-120 to PUB-123: what each form becomes in the other.
func TestEachFormHasItsCounterpart(t *testing.T) {
	const alpha, beta = "to v1alpha1", "to v1beta1"
	for name, test := range map[string]struct{ to, from, want string }{
		"PUB-120: annotations become fields, in their order, and stay": {beta,
			`{"metadata":{"annotations":{"kruise.io/pub-protect-operations":"EVICT, DELETE","pub.kruise.io/protect-total-replicas":"15"}},"spec":{"maxUnavailable":"30%"}}`,
			`{"metadata":{"annotations":{"kruise.io/pub-protect-operations":"EVICT, DELETE","pub.kruise.io/protect-total-replicas":"15"}},"spec":{"maxUnavailable":"30%","protectOperations":["EVICT","DELETE"],"protectTotalReplicas":15}}`},
		"PUB-120: what cannot be read stays, and converts": {beta,
			`{"metadata":{"annotations":{"kruise.io/pub-protect-operations":"EVICT,X","pub.kruise.io/protect-total-replicas":"0","pub.kruise.io/ignored-pod-selector":"{"}},"spec":{}}`,
			`{"metadata":{"annotations":{"kruise.io/pub-protect-operations":"EVICT,X","pub.kruise.io/protect-total-replicas":"0","pub.kruise.io/ignored-pod-selector":"{"}},"spec":{}}`},
		"PUB-121: fields become annotations, PUB-122": {alpha,
			`{"metadata":{},"spec":{"selector":{"matchLabels":{"a":"b"}},"minAvailable":2,"protectOperations":["RESIZE","UPDATE"],"protectTotalReplicas":7,"ignoredPodSelector":{"matchLabels":{"m":"true"}}}}`,
			`{"metadata":{"annotations":{"kruise.io/pub-protect-operations":"RESIZE,UPDATE","pub.kruise.io/protect-total-replicas":"7","pub.kruise.io/ignored-pod-selector":"{\"matchLabels\":{\"m\":\"true\"}}"}},"spec":{"selector":{"matchLabels":{"a":"b"}},"minAvailable":2}}`},
		"PUB-123: fields win over what annotations kept": {alpha,
			`{"metadata":{"annotations":{"kruise.io/pub-protect-operations":"DELETE","pub.kruise.io/protect-total-replicas":"15","pub.kruise.io/ignored-pod-selector":"{}"}},"spec":{"protectOperations":["EVICT"],"protectTotalReplicas":7,"ignoredPodSelector":{"matchLabels":{"m":"true"}}}}`,
			`{"metadata":{"annotations":{"kruise.io/pub-protect-operations":"EVICT","pub.kruise.io/protect-total-replicas":"7","pub.kruise.io/ignored-pod-selector":"{\"matchLabels\":{\"m\":\"true\"}}"}},"spec":{}}`},
		"PUB-121: an annotation that has effect stays; one that has none goes": {alpha,
			`{"metadata":{"annotations":{"kruise.io/pub-protect-operations":"DELETE","pub.kruise.io/protect-total-replicas":"15","pub.kruise.io/ignored-pod-selector":"{}"}},"spec":{}}`,
			`{"metadata":{"annotations":{"kruise.io/pub-protect-operations":"DELETE","pub.kruise.io/protect-total-replicas":"15"}},"spec":{}}`},
	} {
		t.Run(name, func(t *testing.T) {
			var got any
			if test.to == beta {
				got = fromJSON[PodUnavailableBudget](t, test.from).ToV1beta1()
			} else {
				got = PodUnavailableBudgetFromV1beta1(fromJSON[v1beta1.PodUnavailableBudget](t, test.from))
			}
			document := document(t, got)
			delete(document, "status")
			if diff := cmp.Diff(*fromJSON[map[string]any](t, test.want), document); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
