package controller

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/cputime"
	"github.com/afloat-project/afloat/internal/kinds/workloadspread/workloadspreadtest"
	"github.com/afloat-project/afloat/internal/reconcile"
)

// Somebody has a WorkloadSpread whose filter has 19,000 values, stored by an earlier release, and changes the annotation
// of one of its pods again and again. An event does not parse the filter again, since one goroutine handles the events
// of the pods of all namespaces.
func TestALongFilterDoesNotHoldUpEventsOfOthersPods(t *testing.T) {
	spread := workloadspreadtest.Spread(workloadspreadtest.Subset("a", nil))
	values := make([]string, 19_000)
	for i := range values {
		values[i] = fmt.Sprint("v", i)
	}
	spread.Spec.TargetFilter = &appsv1beta1.TargetFilter{Selector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: "a", Operator: metav1.LabelSelectorOpNotIn, Values: values}}}}
	pod := workloadspreadtest.Pod("p")
	filters := &reconcile.Selectors{}
	Claims(filters, spread, pod)
	const events = 1000
	spent := cputime.Start(t)
	for range events {
		if !Claims(filters, spread, pod) {
			t.Fatal("the pod is not claimed")
		}
	}
	if took := spent(); took > time.Second {
		t.Errorf("%d events of a pod take %s of the goroutine that handles the events of all pods, want 1s at most", events, took)
	}
}
