package controller

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
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
		t.Error(err)
	}
}
