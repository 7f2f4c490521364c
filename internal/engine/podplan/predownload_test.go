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
			t.Errorf("values of the label of old pods (-want +got):\n%s", diff)
		}
	})
	t.Run("CS-201 a name too long for an object", func(t *testing.T) {
		long := strings.Repeat("a", 230)
		one, other := pullJobName(long, strings.Repeat("b", 40)+"c"), pullJobName(long, strings.Repeat("b", 40)+"d")
		if len(one) != 253 {
			t.Errorf("name of the job: has %d bytes, want 253: %s", len(one), one)
		}
		if one == other {
			t.Errorf("jobs of two revisions have one name: %s", one)
		}
		if again := pullJobName(long, strings.Repeat("b", 40)+"c"); one != again {
			t.Errorf("name of the same job: got %s, want %s", again, one)
		}
	})
}
