package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/afloat-project/afloat/test/robustness/cluster"
	"github.com/afloat-project/afloat/test/robustness/judge"
	"github.com/afloat-project/afloat/test/robustness/record"
)

// options are the flags.
type options struct {
	length              time.Duration
	seed                uint64
	perHour             int
	out                 string
	kubeconfig, tool    string
	manager             string
	clocks              bool
	buildClocks         string
	judgeOnly           string
	settleFor, restedIn time.Duration
}

func main() {
	var o options
	flag.DurationVar(&o.length, "time", time.Hour, "for how long faults are injected")
	flag.Uint64Var(&o.seed, "seed", 0, "choice of faults and rollouts; 0 takes one from the clock")
	flag.IntVar(&o.perHour, "faults-per-hour", 600, "how many faults are injected")
	flag.StringVar(&o.out, "out", "bin/robustness", "folder for the records")
	flag.StringVar(&o.kubeconfig, "kubeconfig", os.Getenv("KUBECONFIG"), "kubeconfig of the local cluster")
	flag.StringVar(&o.tool, "tool", "bin/afloat-cluster", "program that manages local clusters")
	flag.StringVar(&o.manager, "manager", "bin/manager", "the manager")
	flag.BoolVar(&o.clocks, "clocks", false, "managers whose clocks differ; -manager is one that -build-clocks has built")
	flag.StringVar(&o.buildClocks, "build-clocks", "", "file of a manager whose clock can be shifted, which is built from the sources of this folder; nothing else is done")
	flag.StringVar(&o.judgeOnly, "judge", "", "folder of a record that is judged again; nothing else is done")
	flag.DurationVar(&o.settleFor, "settle", 5*time.Minute, "how long rollouts may take to end after the faults")
	flag.DurationVar(&o.restedIn, "rest", 30*time.Second, "how long it is watched that nothing is written at rest")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	violated, err := run(ctx, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "robustness:", err)
		os.Exit(2)
	}
	if violated {
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) (bool, error) {
	if o.judgeOnly != "" {
		return judged(o.judgeOnly)
	}
	if o.buildClocks != "" {
		return false, cluster.BuildShifted(ctx, o.buildClocks)
	}
	if o.seed == 0 {
		o.seed = uint64(time.Now().UnixNano()) % 1_000_000
	}
	dir, err := filepath.Abs(filepath.Join(o.out, strconv.FormatUint(o.seed, 10)))
	if err != nil {
		return false, fmt.Errorf("the folder of the record: %w", err)
	}
	if err := os.RemoveAll(dir); err != nil {
		return false, fmt.Errorf("the folder of the record: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return false, fmt.Errorf("the folder of the record: %w", err)
	}
	log.Printf("Seed %d, %s of faults; the record is in %s", o.seed, o.length, dir)
	if err := play(ctx, o, dir); err != nil {
		return false, err
	}
	return judged(dir)
}

// recordName is the file with the record in the folder of a run.
const recordName = "record.jsonl"

// judged judges the record in a folder, and prints the verdict.
func judged(dir string) (bool, error) {
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

	kinds := map[string]int{}
	failed := 0
	for _, f := range r.Faults {
		kinds[f.Kind]++
		if f.Error != "" {
			failed++
		}
	}
	fmt.Printf("%d changes, %d writes of managers, %d faults (%d not injected or not ended as planned)\n",
		len(r.Changes), len(r.Requests), len(r.Faults), failed)
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		fmt.Printf("  %-20s %d\n", kind, kinds[kind])
	}
	fmt.Printf("%d times a manager took a pod out of service; %d writes of pods by a manager without the lease\n",
		v.Voluntary, v.Overlaps)
	fmt.Println("How often each rule was asked:")
	for _, rule := range slices.Sorted(maps.Keys(v.Checked)) {
		fmt.Printf("  %-28s %d\n", rule, v.Checked[rule])
	}

	for _, l := range v.Lives {
		fmt.Printf("Manager %s lived for %s: heap %.0f and %.0f MiB, resident %.0f and %.0f MiB, %.0f and %.0f goroutines in the second and the last quarter\n",
			l.Manager, l.Length.Round(time.Minute), l.Second.Heap/(1<<20), l.Last.Heap/(1<<20), l.Second.Memory/(1<<20),
			l.Last.Memory/(1<<20), l.Second.Goroutines, l.Last.Goroutines)
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

	return len(violations) > 0, nil
}
