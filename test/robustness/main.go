package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/afloat-project/afloat/test/robustness/cluster"
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
	judgeOnly, report   string
	commit              string
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
	flag.StringVar(&o.commit, "commit", "", "version of the sources, for the report")
	flag.StringVar(&o.report, "report", "", "file to which the verdict is written as a page, too")
	flag.StringVar(&o.judgeOnly, "judge", "", "folder of a record that is judged again; nothing else is done")
	flag.DurationVar(&o.settleFor, "settle", 8*time.Minute, "how long rollouts may take to end after the faults")
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
		return judged(o.judgeOnly, o.report)
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
	return judged(dir, o.report)
}
