package v1alpha1

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/afloat-project/afloat/api/policy/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
)

// Conversion of PodUnavailableBudgets (PUB-120 to PUB-123): what v1alpha1 has no fields for stands in annotations. Values that cannot be
// read stay there, and their fields are empty, so that every object converts (OPS-072); admission refuses such values (PUB-027).

// ToV1beta1 returns the budget in the v1beta1 form. It does not modify in.
func (in *PodUnavailableBudget) ToV1beta1() *v1beta1.PodUnavailableBudget {
	in = in.DeepCopy()
	out := &v1beta1.PodUnavailableBudget{ObjectMeta: in.ObjectMeta, Status: in.Status,
		Spec: v1beta1.PodUnavailableBudgetSpec{PodUnavailableBudgetSelection: in.Spec.PodUnavailableBudgetSelection}}
	out.Spec.ProtectOperations, _ = v1beta1.ParseBudgetOperations(in.Annotations[pub.BudgetOperations])
	out.Spec.ProtectTotalReplicas, _ = v1beta1.ParseBudgetTotalReplicas(in.Annotations[pub.BudgetTotalReplicas])
	out.Spec.IgnoredPodSelector, _ = v1beta1.ParseBudgetIgnoredPods(in.Annotations[pub.BudgetIgnoredPods])
	return out
}

// PodUnavailableBudgetFromV1beta1 returns the budget in the v1alpha1 form. It does not modify in.
func PodUnavailableBudgetFromV1beta1(in *v1beta1.PodUnavailableBudget) *PodUnavailableBudget {
	in = in.DeepCopy()
	out := &PodUnavailableBudget{ObjectMeta: in.ObjectMeta, Status: in.Status,
		Spec: PodUnavailableBudgetSpec{PodUnavailableBudgetSelection: in.Spec.PodUnavailableBudgetSelection}}
	annotate := func(key, value string) {
		if out.Annotations == nil {
			out.Annotations = map[string]string{}
		}
		out.Annotations[key] = value
	}
	// An annotation that says the same in other words stays. So does one whose field is empty, because it has effect in v1beta1 too
	// (PUB-012, PUB-013); that of the ignored pods has none there, and must not get any by a write of v1alpha1.
	if want := in.Spec.ProtectOperations; len(want) > 0 {
		if got, err := v1beta1.ParseBudgetOperations(in.Annotations[pub.BudgetOperations]); err != nil || !slices.Equal(got, want) {
			words := make([]string, len(want))
			for i := range want {
				words[i] = string(want[i])
			}
			annotate(pub.BudgetOperations, strings.Join(words, ","))
		}
	}
	if want := in.Spec.ProtectTotalReplicas; want != nil {
		if got, err := v1beta1.ParseBudgetTotalReplicas(in.Annotations[pub.BudgetTotalReplicas]); err != nil || *got != *want {
			annotate(pub.BudgetTotalReplicas, strconv.Itoa(int(*want)))
		}
	}
	want := in.Spec.IgnoredPodSelector
	got, err := v1beta1.ParseBudgetIgnoredPods(in.Annotations[pub.BudgetIgnoredPods])
	switch {
	case want == nil && err == nil:
		delete(out.Annotations, pub.BudgetIgnoredPods)
	case want != nil && (err != nil || !equality.Semantic.DeepEqual(got, want)):
		text, _ := json.Marshal(want) // selectors have nothing that JSON cannot express
		annotate(pub.BudgetIgnoredPods, string(text))
	}
	return out
}
