package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

// limit is how long one scenario may take; one in which nothing happens ends earlier, see patience.
const limit = 40 * time.Minute

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "perf:", err)
		stop()
		cancel()
		os.Exit(1) //nolint:gocritic // both were called
	}
}

func run(ctx context.Context) error {
	name := flag.String("scenario", "", "what to measure")
	list := flag.Bool("list", false, "print the scenarios")
	isLocal := flag.Bool("local", false, "print whether the scenario needs no cluster, and end")
	nodes := flag.Bool("nodes", false, "print how many simulated nodes the scenario needs, and end")
	fullCache := flag.Bool("full-cache", false, "keep all pods as they are and print what memory that takes (used by scenario start)")
	flag.Parse()
	if *list {
		for _, s := range scenarios() {
			fmt.Printf("%-16s %s\n", s.name, s.about)
		}
		return nil
	}
	if *fullCache {
		return holdFullCache(ctx)
	}
	s, err := find(*name)
	if err != nil {
		return err
	}
	if *isLocal {
		fmt.Println(s.local)
		return nil
	}
	if *nodes {
		fmt.Println(cmp.Or(s.nodes, 25))
		return nil
	}
	report := newReport(s, os.Getenv("PERF_NAME"))
	b := &bench{report: report}
	if !s.local {
		if b, err = newBench(ctx, report); err != nil {
			return err
		}
	}
	begin := time.Now()
	err = s.run(ctx, b)
	// The manager that was started here is stopped here, also after an error.
	err = errors.Join(err, b.manager.stop(context.WithoutCancel(ctx)))
	if err != nil {
		return fmt.Errorf("scenario %s: %w", s.name, err)
	}
	report.Seconds = time.Since(begin).Seconds()
	dir := os.Getenv("PERF_REPORTS")
	if dir == "" {
		dir = "docs/perf"
	}
	if err := report.write(dir); err != nil {
		return err
	}
	fmt.Print("\n", report.markdown())
	return report.missed()
}

func find(name string) (scenario, error) {
	var names []string
	for _, s := range scenarios() {
		if s.name == name {
			return s, nil
		}
		names = append(names, s.name)
	}
	return scenario{}, fmt.Errorf("there is no scenario %q; there are %s", name, strings.Join(names, ", "))
}
