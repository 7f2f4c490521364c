// Command mutate changes a package in small ways, one at a time, and looks whether one of its tests fails.
//
//	go run ./hack/mutate -skip '^TestSimulated' ./internal/engine/rollout
//
// All changes are compiled into one test binary, each behind a number that an environment variable chooses,
// because a build for each of them would cost many times what its tests do. First every test runs alone,
// which shows the mutants that it reaches; then each mutant is tried with the tests that reach it, the
// quickest first. Nothing is written to the source: the compiler gets the changed files as an overlay.
package main

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"time"
)

func main() {
	skip := flag.String("skip", "", "tests that are left out, a regular expression")
	tests := flag.String("tests", "",
		"the packages whose tests try the mutants, separated by blanks; the changed one without it")
	files := flag.String("files", "", "files to change, a regular expression; all without it")
	limit := flag.Duration("for", time.Hour,
		"how long mutants are tried; those that it does not suffice for are told as not tried")
	workers := flag.Int("workers", 2, "how many are tried at once")
	flag.Parse()
	if err := mutate(flag.Arg(0), *tests, *skip, *files, *limit, *workers); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func mutate(pattern, tests, skip, files string, limit time.Duration, workers int) error {
	skipped, err := regexp.Compile(skip)
	if err != nil {
		return fmt.Errorf("-skip: %w", err)
	}

	wanted, err := regexp.Compile(files)
	if err != nil {
		return fmt.Errorf("-files: %w", err)
	}

	dir, err := os.MkdirTemp("", "mutate")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()

	source, err := load(pattern)
	if err != nil {
		return err
	}

	var suites suites
	var mutants []mutant // the same for every suite
	for _, name := range strings.Fields(cmp.Or(tests, pattern)) {
		tested, err := load(name)
		if err != nil {
			return err
		}
		scratch, err := os.MkdirTemp(dir, "")
		if err != nil {
			return err
		}
		one := &suite{source: tested.Dir, scratch: scratch}
		if one.binary, mutants, err = source.build(scratch, wanted, tested); err != nil {
			return err
		}
		if err := one.learn(skipped, skip == ""); err != nil {
			return err
		}
		suites = append(suites, one)
	}

	suites.try(mutants, time.Now().Add(limit), workers)
	return nil
}
