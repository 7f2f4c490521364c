package controller

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/afloat-project/afloat/internal/cputime"
	"github.com/afloat-project/afloat/internal/kinds/podprobemarker"
	given "github.com/afloat-project/afloat/internal/kinds/podprobemarker/podprobemarkertest"
)

// A tenant has as many PodProbeMarkers as are carried out, each with the longest selector that is admitted, and
// changes a label of one pod again and again. The events of the pods of all other namespaces wait behind each of
// its events, since one goroutine handles them all: an event does not parse the selectors again.
func TestLongSelectorsDoNotHoldUpEventsOfOthersPods(t *testing.T) {
	w := newWorld(t, 1, Options{})
	for i := range podprobemarker.MostMarkers {
		m := given.Marker(fmt.Sprintf("m%04d", i), given.Probe("idle"))
		m.Spec.Selector = &metav1.LabelSelector{}
		for j := range 100 {
			m.Spec.Selector.MatchExpressions = append(m.Spec.Selector.MatchExpressions, metav1.LabelSelectorRequirement{
				Key: fmt.Sprintf("example.com/key-%d", j), Operator: metav1.LabelSelectorOpNotIn, Values: []string{"v"}})
		}
		if errs := podprobemarker.Validate(m, nil); len(errs) > 0 {
			t.Fatalf("the PodProbeMarker is not admitted: %v", errs)
		}
		w.put(m)
	}
	w.Deliver(1 << 20)
	before, after := given.Pod("a"), given.Pod("a")
	after.Labels["changed"] = "true"
	events := func(n int) time.Duration {
		spent := cputime.Start(t)
		for range n {
			w.r.MarkersOfPod(t.Context(), before, after, func(ctrl.Request, time.Duration) {})
		}
		return spent() / time.Duration(n)
	}
	first := events(1)
	if each := events(10); each > first/3 {
		t.Errorf("each event of a pod takes %s of the goroutine that handles the events of all pods, where the first took %s, which parses all selectors",
			each, first)
	}
}
