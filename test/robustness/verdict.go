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

// judged judges the record in a folder, prints the verdict, and writes the report if one is asked for.
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
	printVerdict(r, v)
	if report != "" {
		if err := os.WriteFile(report, []byte(page(r, v)), 0o644); err != nil { //nolint:gosec // a page for everybody
			return false, fmt.Errorf("writing the report: %w", err)
		}
	}
	return len(v.Violations()) > 0, nil
}

// faultsOf counts the faults of each kind, and those that were not injected or not ended as planned.
func faultsOf(r *record.Record) (map[string]int, int) {
	kinds, failed := map[string]int{}, 0
	for _, f := range r.Faults {
		kinds[f.Kind]++
		if f.Error != "" {
			failed++
		}
	}
	return kinds, failed
}

// progress is what users saw of the rollouts of a kind: how many they began, how many they saw end, and for how many
// they did not wait.
type progress struct{ begun, over, hurried int }

func progressOf(r *record.Record) map[string]progress {
	all := map[string]progress{}
	for _, o := range r.Rollouts {
		p := all[o.Resource]
		p.begun++
		switch {
		case o.Over:
			p.over++
		case o.Hurried:
			p.hurried++
		}
		all[o.Resource] = p
	}
	return all
}

func printVerdict(r *record.Record, v *judge.Verdict) {
	kinds, failed := faultsOf(r)
	fmt.Printf("%d changes, %d writes of managers, %d faults (%d not injected or not ended as planned)\n",
		len(r.Changes), len(r.Requests), len(r.Faults), failed)
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		fmt.Printf("  %-20s %d\n", kind, kinds[kind])
	}
	fmt.Println("Rollouts: begun, seen to end, not waited for:")
	progresses := progressOf(r)
	for _, kind := range slices.Sorted(maps.Keys(progresses)) {
		p := progresses[kind]
		fmt.Printf("  %-24s %4d %4d %4d\n", kind, p.begun, p.over, p.hurried)
	}
	fmt.Printf("%d times a manager took a pod out of service; %d writes of pods by a manager without the lease\n",
		v.Voluntary, v.Overlaps)
	fmt.Println("How often each rule was asked:")
	for _, rule := range judge.Rules() {
		fmt.Printf("  %-28s %d\n", rule.Name, v.Checked[rule.Name])
	}

	for i := range v.Lives {
		l := &v.Lives[i]
		fmt.Printf("manager %s lived for %s: heap %.0f and %.0f MiB, resident %.0f and %.0f MiB, %.0f and %.0f goroutines, "+
			"in the second and the last quarter\n", l.Manager, l.Length.Round(time.Minute), mebibytes(l.Second.Heap), mebibytes(l.Last.Heap),
			mebibytes(l.Second.Memory), mebibytes(l.Last.Memory), l.Second.Goroutines, l.Last.Goroutines)
	}

	violations := v.Violations()
	known := len(v.Findings) - len(violations)
	if known > 0 {
		fmt.Printf("%d known consequences of two managers that wrote at once:\n", known)
	}
	for _, f := range v.Findings {
		if f.Known {
			fmt.Printf("  %s, revision %d, %s: %s\n", f.Rule, f.Revision, f.Object, f.Text)
		}
	}
	fmt.Printf("%d violations\n", len(violations))
	for _, f := range violations {
		fmt.Print("\n", judge.Print(f, r))
	}
}

func mebibytes(n float64) float64 { return n / (1 << 20) }

// page returns the verdict as a page of docs/quality.
func page(r *record.Record, v *judge.Verdict) string {
	var b strings.Builder
	add := func(format string, values ...any) { fmt.Fprintf(&b, format, values...) }
	again := fmt.Sprintf("make robustness TIME=%s SEED=%d", time.Duration(r.Run.Seconds)*time.Second, r.Run.Seed)
	clocks := ""
	title, fault := "Do promises hold while everything fails?", ", while programs are killed and paused and the network fails"
	if len(r.Faults) == 0 {
		again, title, fault = again+" FAULTS=0", "Hours of rollouts: memory and rest", ""
	}
	nodes := "four simulated nodes"
	if n := r.Run.Nodes; n > 0 {
		again, nodes = fmt.Sprintf("%s NODES=%d", again, n), fmt.Sprintf("%d real kubelets and containerds, with the node daemon,", n)
	}
	if r.Run.Clocks {
		again, clocks = again+" CLOCKS=1", ", whose clocks differ"
	}
	kinds, failed := faultsOf(r)
	violations := v.Violations()

	add("# %s\n\n", title)
	add("Made by `%s` on %s, at commit %s, on %d cores. Users roll out many kinds on a local\n", again,
		r.Run.Begin.UTC().Format(time.DateOnly), r.Run.Commit, r.Run.Cores)
	add("cluster with %s and two managers%s%s. What\n", nodes, clocks, fault)
	add("happened is recorded, revision by revision, and judged afterwards: see [robustness](../develop/robustness.md).\n\n")
	add("**%d violations.** %d changes of objects and %d writes of managers were judged; %d times a manager took a pod out of service,\n",
		len(violations), len(r.Changes), len(r.Requests), v.Voluntary)
	add("and %d times a manager wrote a pod while another one had the lease.\n", v.Overlaps)

	if progresses := progressOf(r); len(progresses) > 0 {
		add("\n## Rollouts\n\nA user waits %s for the end of a rollout, and hurries now and then, or stops with the faults. All rollouts end\nafter the faults, or a rule is violated.\n\n", rollouts.Patience)
		add("| kind | begun | seen to end | not waited for |\n|---|--:|--:|--:|\n")
		for _, kind := range slices.Sorted(maps.Keys(progresses)) {
			p := progresses[kind]
			add("| %s | %d | %d | %d |\n", kind, p.begun, p.over, p.hurried)
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

	add("\n## Faults\n\n%d were injected; %d of them failed, or did not end as planned.\n\n| fault | times |\n|---|--:|\n", len(r.Faults), failed)
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		add("| `%s` | %d |\n", kind, kinds[kind])
	}

	add("\n## Rules\n\nA rule that was never asked shows nothing. Known consequences are those of two managers that write at once, by\n")
	add("[decision 0004](../decisions/0004-read-your-own-writes.md).\n\n")
	add("| rule | promise | asked | known consequences | violations |\n|---|---|--:|--:|--:|\n")
	found, known := map[string]int{}, map[string]int{}
	for _, f := range v.Findings {
		if f.Known {
			known[f.Rule]++
		} else {
			found[f.Rule]++
		}
	}
	for _, rule := range judge.Rules() {
		add("| %s | %s | %d | %d | %d |\n", rule.Name, rule.Promise, v.Checked[rule.Name], known[rule.Name], found[rule.Name])
	}

	if len(violations) > 0 {
		add("\n## Violations\n\n```text\n")
		for i, f := range violations {
			if i > 0 {
				add("\n")
			}
			add("%s", judge.Print(f, r))
		}
		add("```\n")
	}
	return b.String()
}
