package controller

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/afloat-project/afloat/internal/kinds/cloneset"
	"github.com/afloat-project/afloat/internal/kinds/cloneset/clonesettest"
	"github.com/afloat-project/afloat/internal/reconcile/podapply"
	"github.com/afloat-project/afloat/internal/simulation"
)

// OPS-092 (part): the counter that dashboards for OpenKruise know, by its name and labels.
func TestLeakedCreationsAreCounted(t *testing.T) {
	leaked := newLeaked()
	leaked.WithLabelValues("shop", "web").Inc()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(leaked)
	want := `# HELP cloneset_scale_expectation_leakage Creations that the cache never showed and a live read had to settle.
# TYPE cloneset_scale_expectation_leakage counter
cloneset_scale_expectation_leakage{name="web",namespace="shop"} 1
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "cloneset_scale_expectation_leakage"); err != nil {
		t.Errorf("metrics: %v", err)
	}
}

// TestActionsAreCountedWhenDone: what is planned and fails is not counted as done.
func TestActionsAreCountedWhenDone(t *testing.T) {
	s := atRest(t, clonesettest.Set(2), cloneset.Features{})
	s.Refused = func(w simulation.Write) bool { return w.Key.Kind == "Pod" }
	s.Planned = func(_ *cloneset.Plan, outcome podapply.Outcome) {
		if len(outcome.Done) > 0 {
			t.Errorf("done: done: got %d, want none; %v, created: %d", len(outcome.Done), outcome.Done,
				outcome.Created)
		}
		if outcome.Created > 0 {
			t.Errorf("done: created: got %d, want 0; %v, created: %d", outcome.Created, outcome.Done, outcome.Created)
		}
	}
	s.Edit(clonesettest.Both(clonesettest.Image("nginx:2"), clonesettest.Replicas(3)))
	for range 20 {
		s.Round()
	}
	s.Edit(clonesettest.Replicas(1))
	for range 20 {
		s.Round()
	}
}
