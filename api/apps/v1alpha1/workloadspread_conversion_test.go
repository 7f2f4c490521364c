package v1alpha1

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/randfill"

	"github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/racetest"
)

// WS-180 (part), WS-181, WS-182 (part), WS-183 (part): both round trips lose nothing, the bytes of patches included, and inputs stay.
func TestWorkloadSpreadConversionLosesNothing(t *testing.T) {
	racetest.SkipAlone(t)
	const patch = `{"metadata": {"labels":{"a":"b"}},  "spec":{"hologram":1}}`
	for seed := range int64(300) {
		pick := func(c randfill.Continue, values ...string) string { return values[c.Intn(len(values))] }
		f := randfill.NewWithSeed(seed).NilChance(0.4).NumElements(1, 3).Funcs(
			func(o *metav1.ObjectMeta, _ randfill.Continue) {
				*o = metav1.ObjectMeta{Name: "o", Annotations: map[string]string{"c": "d"},
					CreationTimestamp: metav1.NewTime(time.Unix(1_700_000_000, 0))}
			},
			func(o *metav1.Time, c randfill.Continue) {
				*o = metav1.NewTime(time.Unix(int64(1+c.Intn(2_000_000_000)), 0))
			},
			func(o *metav1.Condition, c randfill.Continue) {
				c.FillNoCustom(o)
				o.Status, o.ObservedGeneration, o.Reason = metav1.ConditionStatus(pick(c, "True", "False", "Unknown")), 0,
					pick(c, "Sufficient", "Unknown")
			},
			func(o *WorkloadSpreadSubsetCondition, c randfill.Continue) {
				c.FillNoCustom(o)
				o.Status, o.Reason = corev1.ConditionStatus(pick(c, "True", "False", "Unknown")), pick(c, "Sufficient", "Unknown")
			},
			func(o *runtime.RawExtension, c randfill.Continue) {
				if c.Bool() {
					o.Raw = []byte(patch)
				}
			},
			func(o *intstr.IntOrString, c randfill.Continue) { *o = intstr.Parse(pick(c, "5", "30%")) },
		)
		beta := &v1beta1.WorkloadSpread{}
		f.Fill(beta)
		beta.TypeMeta = metav1.TypeMeta{}
		statusesAreAlike(t, beta, WorkloadSpreadFromV1beta1(beta))
		before := beta.DeepCopy()
		alpha := WorkloadSpreadFromV1beta1(beta)
		alphaBefore := alpha.DeepCopy()
		if diff := cmp.Diff(before, alpha.ToV1beta1()); diff != "" {
			t.Fatalf("seed %d: v1beta1 -> v1alpha1 -> v1beta1 (-in +out):\n%s", seed, diff)
		}
		if diff := cmp.Diff(before, beta) + cmp.Diff(alphaBefore, alpha); diff != "" {
			t.Fatalf("seed %d: the input was modified:\n%s", seed, diff)
		}
		alpha = &WorkloadSpread{}
		f.Fill(alpha)
		alpha.TypeMeta = metav1.TypeMeta{}
		statusesAreAlike(t, alpha.ToV1beta1(), alpha)
		if diff := cmp.Diff(alpha, WorkloadSpreadFromV1beta1(alpha.ToV1beta1())); diff != "" {
			t.Fatalf("seed %d: v1alpha1 -> v1beta1 -> v1alpha1 (-in +out):\n%s", seed, diff)
		}
	}
}

// statusesAreAlike compares the documents of both: each member has its own name and value in the other, but for those of conditions.
func statusesAreAlike(t *testing.T, beta *v1beta1.WorkloadSpread, alpha *WorkloadSpread) {
	t.Helper()
	beta, alpha = beta.DeepCopy(), alpha.DeepCopy()
	lists, alphaLists := [][]v1beta1.WorkloadSpreadSubsetStatus{beta.Status.SubsetStatuses},
		[][]WorkloadSpreadSubsetStatus{alpha.Status.SubsetStatuses}
	for version := range beta.Status.VersionedSubsetStatuses {
		lists, alphaLists = append(lists, beta.Status.VersionedSubsetStatuses[version]),
			append(alphaLists, alpha.Status.VersionedSubsetStatuses[version])
	}
	for i := range lists {
		if len(lists[i]) != len(alphaLists[i]) || (lists[i] == nil) != (alphaLists[i] == nil) {
			t.Fatalf("%d statuses, %d", len(lists[i]), len(alphaLists[i]))
		}
		for j := range lists[i] {
			if (lists[i][j].CreatingPods == nil) != (alphaLists[i][j].CreatingPods == nil) ||
				(lists[i][j].DeletingPods == nil) != (alphaLists[i][j].DeletingPods == nil) {
				t.Errorf("%+v, %+v", lists[i][j], alphaLists[i][j])
			}
			lists[i][j].Conditions, alphaLists[i][j].Conditions = nil, nil
		}
	}
	encoded, err := json.Marshal(beta.Status)
	if err != nil {
		t.Fatal(err)
	}
	other, err := json.Marshal(alpha.Status)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(encoded), string(other)); diff != "" {
		t.Errorf("v1beta1 and v1alpha1 differ: %s", diff)
	}
}

// WS-182: what v1beta1 requires of a condition and v1alpha1 does not.
func TestWorkloadSpreadConditions(t *testing.T) {
	created := metav1.NewTime(time.Unix(1_700_000_000, 0))
	alpha := &WorkloadSpread{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: created},
		Status: WorkloadSpreadStatus{SubsetStatuses: []WorkloadSpreadSubsetStatus{
			{Name: "a", Conditions: []WorkloadSpreadSubsetCondition{{Type: v1beta1.SubsetSchedulable, Status: corev1.ConditionTrue}}}}}}
	want := []metav1.Condition{{Type: "Schedulable", Status: metav1.ConditionTrue, Reason: "Unknown", LastTransitionTime: created}}
	if diff := cmp.Diff(want, alpha.ToV1beta1().Status.SubsetStatuses[0].Conditions); diff != "" {
		t.Error(diff)
	}
}
