package main

import (
	"strings"
	"testing"
	"time"

	"github.com/afloat-project/afloat/test/robustness/judge"
	"github.com/afloat-project/afloat/test/robustness/record"
)

// The page has what was played, what was asked, and what was found.
func TestThePageSaysAll(t *testing.T) {
	r := &record.Record{Run: record.Run{Seed: 4711, Seconds: 300, Commit: "abc", Cores: 2, Clocks: true},
		Faults: []record.Fault{{Kind: "kill"}, {Kind: "kill", Error: "x"}},
		Rollouts: []record.Rollout{{Resource: "clonesets", Over: true}, {Resource: "clonesets", Hurried: true},
			{Resource: "clonesets"}}}
	v := &judge.Verdict{Checked: map[string]int{"surge": 7}, Findings: []judge.Finding{
		{Rule: "surge", Text: "one too many", Time: time.Now()}, {Rule: "surge", Known: true}},
		Lives: []judge.Life{{Manager: "a.1", Length: time.Hour, Second: record.Sample{Heap: 30 << 20, Memory: 80 << 20, Goroutines: 800},
			Last: record.Sample{Heap: 31 << 20, Memory: 90 << 20, Goroutines: 810}}}}
	got := page(r, v)
	for _, want := range []string{
		"`make robustness TIME=5m0s SEED=4711 CLOCKS=1`", "at commit abc", "on 2 cores", "**Violations: 1.**",
		"| clonesets | 3 | 1 | 1 |", "2 were injected; 1 of them", "| `kill` | 2 |",
		"| surge | there are at most replicas + maxSurge pods | 7 | 1 | 1 |", "one too many",
		"| nothing is written at rest |", "| a.1 | 1h0m0s | 30, 31 | 80, 90 | 800, 810 |", "everything fails?",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the page has no %q:\n%s", want, got)
		}
	}
	r.Run.Nodes = 2
	if got := page(r, v); !strings.Contains(got, "SEED=4711 NODES=2 CLOCKS=1") || !strings.Contains(got, "2 real kubelets") {
		t.Errorf("the page of real nodes:\n%s", got)
	}
	r.Faults, r.Run.Faults = nil, 5
	if got := page(r, v); strings.Contains(got, "FAULTS=0") || !strings.Contains(got, "everything fails?") {
		t.Errorf("the page of a run whose faults were not injected:\n%s", got)
	}
	r.Run.Faults = 0
	if got := page(r, v); !strings.Contains(got, "FAULTS=0") || !strings.Contains(got, "Hours of rollouts") {
		t.Errorf("the page of a run without faults:\n%s", got)
	}
}
