package podplan

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestNamesThatAreTooLong(t *testing.T) {
	t.Run("CS-202, CS-052 a name too long for a label", func(t *testing.T) {
		workload := &Workload{Selector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app",
			Operator: metav1.LabelSelectorOpExists}}}}
		p := New(workload, &Snapshot{}, &Plan{UpdateRevision: strings.Repeat("a", 60) + "-hash"})
		expressions := p.oldPods()["matchExpressions"].([]any)
		if diff := cmp.Diff([]any{"hash"}, expressions[1].(map[string]any)["values"]); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("CS-201 a name too long for an object", func(t *testing.T) {
		long := strings.Repeat("a", 230)
		one, other := pullJobName(long, strings.Repeat("b", 40)+"c"), pullJobName(long, strings.Repeat("b", 40)+"d")
		if len(one) != 253 || one == other || one != pullJobName(long, strings.Repeat("b", 40)+"c") {
			t.Errorf("%s\n%s", one, other)
		}
	})
}
