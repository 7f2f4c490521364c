package pod

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/client-go/tools/events"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/workloadspread"
)

// Somebody gives a subset of a WorkloadSpread another name again and again, and creates a pod each time. Names of
// subsets that are gone do not stay in the metrics, and thereby in the memory of each replica, and long ones of stored
// objects are cut.
func TestSubsetsThatAreGoneLeaveTheMetrics(t *testing.T) {
	const renames = 200
	spread := shopSpread(t)
	spread.Spec.Subsets = []appsv1beta1.WorkloadSpreadSubset{spread.Spec.Subsets[0], {Name: "stays"}}
	into := 0
	w := &spreadWorld{spread: spread, decide: func(workloadspread.Creation) workloadspread.Decision {
		return workloadspread.Decision{Subset: &spread.Spec.Subsets[into]}
	}}
	s := w.spreads(time.Now, events.NewFakeRecorder(10))
	chain := NewChain(s.Step())
	create := func() {
		if _, _, err := chain.Mutate(t.Context(), Request{Raw: []byte(fmt.Sprintf(shopPod, `"generateName":"p-",`)),
			Namespace: "d"}); err != nil {
			t.Fatal(err)
		}
	}
	into = 1
	create()
	into = 0
	for i := range renames {
		spread.Spec.Subsets[0].Name = fmt.Sprint("s", i, strings.Repeat("x", 1000))
		create()
	}
	label := workloadspread.SubsetLabel(spread.Spec.Subsets[0].Name)
	if got := testutil.CollectAndCount(s.Metric()); got != 2 || len(label) != 63 {
		t.Errorf("two subsets, one of which had %d names: got %d series, and %q for the last, want 2, and 63 bytes", renames, got, label)
	}
	if got := testutil.ToFloat64(s.pods.WithLabelValues("d", "shop", "stays")); got != 1 {
		t.Errorf("pods of the subset that stays: got %v, want 1", got)
	}
	if got := testutil.ToFloat64(s.pods.WithLabelValues("d", "shop", label)); got != 1 {
		t.Errorf("pods of the subset with its last name: got %v, want 1", got)
	}
	s.Forget(spread)
	if got := testutil.CollectAndCount(s.Metric()); got != 0 {
		t.Errorf("the WorkloadSpread is gone: got %d series, want none", got)
	}
}
