package v1alpha1

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/randfill"

	"github.com/afloat-project/afloat/api/apps/v1beta1"
)

// PPS-090, PPS-091: both round trips lose nothing and keep the order, without annotations, and inputs stay.
func TestPersistentPodStateConversionLosesNothing(t *testing.T) {
	for seed := range int64(300) {
		policies := []v1beta1.PersistentPodStateRetentionPolicyType{"", v1beta1.RetainWhenScaled, v1beta1.RetainWhenDeleted}
		f := randfill.NewWithSeed(seed).NilChance(0.4).NumElements(1, 3).Funcs(
			func(o *metav1.ObjectMeta, _ randfill.Continue) {
				*o = metav1.ObjectMeta{Name: "o", Annotations: map[string]string{"c": "d"}}
			},
			func(o *v1beta1.PersistentPodStateRetentionPolicyType, c randfill.Continue) { *o = policies[c.Intn(3)] },
			func(o *v1beta1.PreferredTopologyTerm, c randfill.Continue) {
				c.FillNoCustom(o)
				o.Weight = int32(c.Intn(101))
			},
		)
		beta := &v1beta1.PersistentPodState{}
		f.Fill(beta)
		beta.TypeMeta = metav1.TypeMeta{}
		before := beta.DeepCopy()
		alpha := PersistentPodStateFromV1beta1(beta)
		alphaBefore := alpha.DeepCopy()
		if diff := cmp.Diff(before, alpha.ToV1beta1()); diff != "" {
			t.Fatalf("seed %d: v1beta1 -> v1alpha1 -> v1beta1 (-in +out):\n%s", seed, diff)
		}
		if diff := cmp.Diff(alphaBefore, PersistentPodStateFromV1beta1(alpha.ToV1beta1())); diff != "" {
			t.Fatalf("seed %d: v1alpha1 -> v1beta1 -> v1alpha1 (-in +out):\n%s", seed, diff)
		}
		if diff := cmp.Diff(before, beta) + cmp.Diff(alphaBefore, alpha); diff != "" {
			t.Fatalf("seed %d: the input was modified:\n%s", seed, diff)
		}
		if diff := cmp.Diff(before, alpha.Renamed()); diff != "" {
			t.Fatalf("seed %d: renamed:\n%s", seed, diff)
		}
	}
}

// PPS-092: an object that v1alpha1 took, and whose status the v1beta1 schema would not let be written, is read as one that it does. Webhooks
// judge it as it is.
func TestStoredPersistentPodStatesThatV1beta1Refuses(t *testing.T) {
	alpha := &PersistentPodState{Spec: PersistentPodStateSpec{PersistentPodStateRetentionPolicy: "Sometimes",
		PreferredPersistentTopology: []PreferredTopologyTerm{{Weight: -5}, {Weight: 0}, {Weight: 500}}}}
	beta := alpha.ToV1beta1()
	var weights []int32
	for _, term := range beta.Spec.PreferredPersistentTopology {
		weights = append(weights, term.Weight)
	}
	if diff := cmp.Diff([]int32{1, 0, 500}, weights); diff != "" || beta.Spec.PersistentPodStateRetentionPolicy != "" {
		t.Errorf("%s %q", diff, beta.Spec.PersistentPodStateRetentionPolicy)
	}
	if given := alpha.Renamed(); given.Spec.PersistentPodStateRetentionPolicy != "Sometimes" || given.Spec.PreferredPersistentTopology[0].Weight != -5 {
		t.Errorf("%+v", given.Spec)
	}
}
