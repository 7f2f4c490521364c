package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// areas are what the manager spends CPU time on. A stack counts for the first area of which a part occurs in
// the name of one of its functions.
var areas = []struct {
	name  string
	parts []string
}{
	{"garbage collection", []string{"runtime.gcBgMarkWorker", "runtime.gcAssist", "runtime.bgsweep", "runtime.bgscavenge",
		"runtime.gcStart"}},
	{"planning", []string{"cloneset.Make"}},
	{"reading the snapshot", []string{"cloneset/controller.(*Kube).Snapshot", "podapply.(*Reader)"}},
	{"own writes laid over the caches", []string{"reconcile.(*Own)", "reconcile.Overlay", "reconcile.Newest"}},
	{"events for users", []string{"tools/events.", "tools/record.", "reconcile.recorder"}},
	{"requests: encoding, sending, decoding the answer",
		[]string{"rest.(*Request)", "http2.(*", "http2ClientConn", "http2client", "http2Transport"}},
	{"what passes do beside requests", []string{"podapply.(*Application)", "cloneset/controller.(*application)", "cloneset/controller.(*Pass)", "reconcile.(*Flow)"}},
	{"watches: receiving and decoding", []string{"watch.(*StreamWatcher)", "cache.(*Reflector)"}},
	{"caches and handlers", []string{"client-go/tools/cache.", "controller-runtime/pkg/internal", "podindex."}},
	{"the scheduler of Go", []string{"runtime.schedule", "runtime.mcall", "runtime.park_m", "runtime.findRunnable"}},
}

// shares adds up the CPU time of the stacks that `go tool pprof -traces` prints, by area; what belongs to
// none is "other".
func shares(traces string) (map[string]time.Duration, error) {
	all := map[string]time.Duration{}
	_, stacks, _ := strings.Cut(traces, "-----------+")
	for stack := range strings.SplitSeq(stacks, "-----------+") {
		var value time.Duration
		var functions []string
		for line := range strings.Lines(stack) {
			f := strings.Fields(line)
			switch {
			case len(f) == 0 || strings.HasPrefix(f[0], "---"):
				continue
			case value == 0 && len(f) > 1:
				var err error
				if value, err = time.ParseDuration(f[0]); err != nil {
					return nil, fmt.Errorf("a stack of a profile: %w in %q", err, line)
				}
				f = f[1:]
			}
			functions = append(functions, f[0])
		}
		if value > 0 {
			all[areaOf(functions)] += value
		}
	}
	return all, nil
}

func areaOf(functions []string) string {
	for _, area := range areas {
		for _, part := range area.parts {
			if slices.ContainsFunc(functions, func(f string) bool { return strings.Contains(f, part) }) {
				return area.name
			}
		}
	}
	return "other"
}

// reportShares reports what the CPU time of a step was spent on, if profiles were taken.
func (b *bench) reportShares(ctx context.Context, profile, step string) error {
	dir := os.Getenv("PERF_PROFILES")
	files, err := filepath.Glob(filepath.Join(dir, profile+".cpu-*"))
	if err != nil || dir == "" || len(files) == 0 {
		return err
	}
	out, err := exec.CommandContext(ctx, "go", append([]string{"tool", "pprof", "-traces"}, files...)...).Output()
	if err != nil {
		return fmt.Errorf("reading profiles: %w", err)
	}
	all, err := shares(string(out))
	if err != nil {
		return err
	}
	sum := time.Duration(0)
	var names []string
	for name, value := range all {
		sum += value
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int { return int(all[b] - all[a]) })
	for _, name := range names {
		b.report.figure(step+", manager CPU: "+name, 100*all[name].Seconds()/sum.Seconds(), "%")
	}
	return nil
}
