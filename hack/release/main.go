// Command release makes everything that a release consists of, in one folder, without Docker: programs,
// images, chart, manifests, lists of what is in them, and checksums. See docs/develop/releasing.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	if err := run(ctx, os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New("want a command: build, push or widens")
	}

	flags := flag.NewFlagSet("release "+args[0], flag.ContinueOnError)
	r := release{programs: programs, say: func(format string, a ...any) { fmt.Printf(format+"\n", a...) }}
	var platforms string
	flags.StringVar(&r.root, "root", "../..", "folder of the project")
	flags.StringVar(&r.out, "out", "", "folder of the release; build empties it")
	flags.StringVar(&r.version, "version", "", "such as v0.1.0")
	flags.StringVar(&r.repository, "repository", "",
		"where images and chart are, such as registry.example.com/afloat")
	flags.StringVar(&r.downloads, "downloads", "", "URL of the folder from which users download the files")
	flags.StringVar(&r.chart, "chart", "charts/kruise",
		"folder of the chart, below root; a release without one says so")
	flags.StringVar(&r.builder, "builder", "", "URI of who builds, for the provenance")
	flags.StringVar(&platforms, "platforms", "", "such as \"linux/amd64 darwin/arm64\"; empty is all")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}

	var err error
	if r.platforms, err = parsePlatforms(platforms); err != nil {
		return err
	}

	switch args[0] {
	case "build":
		if err := r.fromGit(ctx); err != nil {
			return err
		}
		if err := r.checkDefinitions(ctx); err != nil {
			return err
		}
		return r.build(ctx)
	case "push":
		return r.push(ctx)
	case "widens":
		return r.checkDefinitions(ctx)
	}

	return fmt.Errorf("%s is no command: want build, push or widens", args[0])
}

// fromGit sets the commit and its time, which is that of all files of the release. What is not committed
// cannot be released, since nobody could build it again.
func (r *release) fromGit(ctx context.Context) error {
	dirty, err := r.git(ctx, "status", "--porcelain")
	if err != nil {
		return err
	}
	if dirty != "" {
		return fmt.Errorf("not everything is committed, so that nobody could make this release again:\n%s",
			dirty)
	}
	if r.commit, err = r.git(ctx, "rev-parse", "HEAD"); err != nil {
		return err
	}

	seconds, err := r.git(ctx, "log", "-1", "--format=%ct")
	if err != nil {
		return err
	}

	if given := os.Getenv("SOURCE_DATE_EPOCH"); given != "" {
		seconds = given
	}
	unix, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
	}

	r.date = time.Unix(unix, 0).UTC()
	return nil
}

func (r *release) git(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir, cmd.Stderr = r.root, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w", strings.Join(args, " "), err)
	}
	return strings.TrimRight(string(out), "\n"), nil
}

// path returns the path of a file of the release.
func (r *release) path(name string) string { return filepath.Join(r.out, name) }
