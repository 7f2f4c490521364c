package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"
)

// suite is the tests of a package.
type suite struct {
	binary, source, scratch string

	reach map[string][]test // by mutant, the quickest first
	// it has property tests, which must not write files about failures into the source
	rapid bool
}

type test struct {
	name string
	took time.Duration
}

// quick is how long the first tests of a mutant may take together: most mutants need no others.
const quick = 300 * time.Millisecond

// learn runs every test alone, and records which mutants it reaches and how long it takes.
func (s *suite) learn(skipped *regexp.Regexp, all bool) error {
	list := exec.CommandContext(context.Background(), s.binary, "-test.list", "^(Test|Fuzz|Example)")
	list.Dir = s.source
	out, err := list.Output()
	if err != nil {
		return fmt.Errorf("list tests: %w", err)
	}

	s.reach = map[string][]test{}
	s.rapid = s.execute(context.Background(), nil, "-test.list", "^$", noFailFile) == nil

	for _, name := range strings.Fields(string(out)) {
		if !all && skipped.MatchString(name) {
			continue
		}
		seen := filepath.Join(s.scratch, name)
		began := time.Now()
		if err := s.run(time.Hour, []string{name}, "MUTANTS_REACHED="+seen); err != nil {
			return fmt.Errorf("%s fails without a mutant: %w", name, err)
		}
		one := test{name, time.Since(began)}
		reached, err := os.ReadFile(seen)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		for id := range strings.FieldsSeq(string(reached)) {
			s.reach[id] = append(s.reach[id], one)
		}
	}

	for _, tests := range s.reach {
		sort.SliceStable(tests, func(i, j int) bool { return tests[i].took < tests[j].took })
	}

	return nil
}

// suites are the tests of several packages.
type suites []*suite

// try tries each mutant and prints the outcome.
func (s suites) try(mutants []mutant, deadline time.Time, workers int) {
	queue := make(chan mutant)
	var working sync.WaitGroup
	var printing sync.Mutex
	for range workers {
		working.Go(func() {
			for m := range queue {
				outcome := "NOT TRIED"
				if !s.reached(m) {
					outcome = "NOT COVERED"
				} else if time.Now().Before(deadline) {
					outcome = s.outcome(m)
				}
				printing.Lock()
				fmt.Printf("%s %s at %s:%d:%d\n", outcome, m.kind, filepath.Base(m.position.Filename),
					m.position.Line, m.position.Column)
				printing.Unlock()
			}
		})
	}

	for _, m := range mutants {
		queue <- m
	}

	close(queue)
	working.Wait()
}

func (s suites) reached(m mutant) bool {
	return slices.ContainsFunc(s, func(one *suite) bool { return one.reached(m) })
}

// outcome tries one mutant with one suite after the other.
func (s suites) outcome(m mutant) string {
	for _, one := range s {
		if outcome := one.outcome(m); outcome != lived {
			return outcome
		}
	}
	return lived
}

func (s *suite) reached(m mutant) bool { return len(s.reach[fmt.Sprint(m.id)]) > 0 }

// lived is the outcome of a mutant that no test sees.
const lived = "LIVED"

// outcome tries one mutant: first with the quick tests that reach it, then with the others.
func (s *suite) outcome(m mutant) string {
	tests := s.reach[fmt.Sprint(m.id)]
	first, total := 0, time.Duration(0)
	for first < len(tests) && total < quick {
		total += tests[first].took
		first++
	}

	for _, some := range [][]test{tests[:first], tests[first:]} {
		names, took := make([]string, 0, len(some)), time.Duration(0)
		for _, one := range some {
			names, took = append(names, one.name), took+one.took
		}
		if len(names) == 0 {
			continue
		}
		err := s.run(8*time.Second+10*took, names, fmt.Sprint("MUTANT=", m.id))
		if errors.Is(err, context.DeadlineExceeded) {
			return "TIMED OUT"
		}
		if err != nil {
			return "KILLED"
		}
	}

	return lived
}

// run runs tests by name. The error of one that takes too long is that of its context.
func (s *suite) run(limit time.Duration, names []string, environment string) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	arguments := []string{"-test.short", "-test.failfast", "-test.timeout=0", "-test.run",
		"^(" + strings.Join(names, "|") + ")$"}
	if s.rapid {
		arguments = append(arguments, noFailFile)
	}
	if err := s.execute(ctx, []string{environment}, arguments...); ctx.Err() == nil {
		return err
	}
	return ctx.Err()
}

// noFailFile is a flag of pgregory.net/rapid.
const noFailFile = "-rapid.nofailfile"

func (s *suite) execute(ctx context.Context, environment []string, arguments ...string) error {
	command := exec.CommandContext(ctx, s.binary, arguments...)
	command.Dir = s.source
	command.Env = append(os.Environ(), environment...)
	return command.Run()
}
