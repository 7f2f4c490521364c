package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/afloat-project/afloat/test/robustness/judge"
	"github.com/afloat-project/afloat/test/robustness/record"
	"github.com/afloat-project/afloat/test/robustness/rollouts"
)

// recordName is the file with the record in the folder of a run.
const recordName = "record.jsonl"

// judged judges the record in a folder, and prints the verdict as a page, which is also the report, if one is asked for.
func judged(dir, report string) (bool, error) {
	r, err := record.Read(filepath.Join(dir, recordName))
	if err != nil {
		return false, err
	}
	if len(r.Changes) == 0 {
		return false, errors.New("the record is empty")
	}
	v, err := judge.Judge(r)
	if err != nil {
		return false, err
	}
	text := page(r, v)
	fmt.Print(text)
	if report != "" {
		if err := os.WriteFile(report, []byte(text), 0o644); err != nil { //nolint:gosec // a page for everybody
			return false, fmt.Errorf("writing the report: %w", err)
		}
	}
	return len(v.Violations()) > 0, nil
}

func mebibytes(n float64) float64 { return n / (1 << 20) }

// page returns the verdict as a page of docs/quality.
func page(r *record.Record, v *judge.Verdict) string {
	var b strings.Builder
	add := func(format string, values ...any) { fmt.Fprintf(&b, format, values...) }
	again := fmt.Sprintf("make robustness TIME=%s SEED=%d", time.Duration(r.Run.Seconds)*time.Second, r.Run.Seed)
	clocks := ""
	title, fault := "Do promises hold while everything fails?", ", while programs are killed and paused and the network fails"
	if r.Run.Faults == 0 && len(r.Faults) == 0 {
		again, title, fault = again+" FAULTS=0", "Hours of rollouts: memory and rest", ""
	}
	nodes := "four simulated nodes"
	if n := r.Run.Nodes; n > 0 {
		again, nodes = fmt.Sprintf("%s NODES=%d", again, n), fmt.Sprintf("%d real kubelets and containerds, with the node daemon,", n)
	}
	if r.Run.Clocks {
		again, clocks = again+" CLOCKS=1", ", whose clocks differ"
	}
	kinds, failed, idle := judge.FaultsOf(r)
	violations := v.Violations()

	add("# %s\n\n", title)
	add("Made by `%s` on %s, at commit %s, on %d cores. Users roll out many kinds on a local\n", again,
		r.Run.Begin.UTC().Format(time.DateOnly), r.Run.Commit, r.Run.Cores)
	add("cluster with %s and two managers%s%s. What\n", nodes, clocks, fault)
	add("happened is recorded, revision by revision, and judged afterwards: see [robustness](../develop/robustness.md).\n\n")
	add("**Violations: %d.** %d changes of objects and %d writes of managers were judged; %d times a manager took a pod out of service,\n",
		len(violations), len(r.Changes), len(r.Requests), v.Voluntary)
	add("and %d times a manager wrote a pod while another one had the lease.\n", v.Overlaps)

	if progresses := judge.ProgressOf(r); len(progresses) > 0 {
		add("\n## Rollouts\n\nA user waits %s for the end of a rollout, and hurries now and then, or stops with the faults. All rollouts end\nafter the faults, or a rule is violated.\n\n", rollouts.Patience)
		add("| kind | begun | seen to end | not waited for |\n|---|--:|--:|--:|\n")
		for _, kind := range slices.Sorted(maps.Keys(progresses)) {
			p := progresses[kind]
			add("| %s | %d | %d | %d |\n", kind, p.Begun, p.Over, p.Hurried)
		}
	}

	if len(v.Lives) > 0 {
		add("\n## What managers take\n\nMedians of the second and of the last quarter of the life of each process that lived for half an hour.\n\n")
		add("| process | lived | heap, MiB | resident, MiB | goroutines |\n|---|--:|--:|--:|--:|\n")
	}
	for i := range v.Lives {
		l := &v.Lives[i]
		add("| %s | %s | %.0f, %.0f | %.0f, %.0f | %.0f, %.0f |\n", l.Manager, l.Length.Round(time.Minute), mebibytes(l.Second.Heap),
			mebibytes(l.Last.Heap), mebibytes(l.Second.Memory), mebibytes(l.Last.Memory), l.Second.Goroutines, l.Last.Goroutines)
	}

	add("\n## Faults\n\n%d were injected; %d of them failed, or did not end as planned. %d hit nothing, since nobody wrote or asked in that time.\n\n"+
		"| fault | times |\n|---|--:|\n", len(r.Faults), failed, idle)
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		add("| `%s` | %d |\n", kind, kinds[kind])
	}

	add("\n## Rules\n\nA rule that was never asked shows nothing. Known consequences are those of two managers that write at once, by\n")
	add("[decision 0004](../decisions/0004-read-your-own-writes.md).\n\n")
	add("| rule | promise | asked | known consequences | violations |\n|---|---|--:|--:|--:|\n")
	count := map[bool]map[string]int{true: {}, false: {}}
	for _, f := range v.Findings {
		count[f.Known][f.Rule]++
	}
	for _, rule := range judge.Rules() {
		add("| %s | %s | %d | %d | %d |\n", rule.Name, rule.Promise, v.Checked[rule.Name], count[true][rule.Name], count[false][rule.Name])
	}

	for _, part := range []struct {
		title string
		known bool
	}{{"Known consequences", true}, {"Violations", false}} {
		separator := "\n## " + part.title + "\n\n```text\n"
		for _, f := range v.Findings {
			if f.Known == part.known {
				add("%s%s", separator, judge.Print(f, r))
				separator = "\n"
			}
		}
		if separator == "\n" {
			add("```\n")
		}
	}
	return b.String()
}
