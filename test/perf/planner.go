package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
)

// planner runs the Go benchmarks of the planner and reports their results.
func planner(ctx context.Context, b *bench) error {
	command := exec.CommandContext(ctx, "go", "test", "-run=^$", "-bench=^BenchmarkMake$", "-benchmem", "./internal/kinds/cloneset/controller")
	var out bytes.Buffer
	command.Stdout, command.Stderr = io.MultiWriter(&out, os.Stdout), os.Stderr
	if err := command.Run(); err != nil {
		return fmt.Errorf("benchmarks of the planner: %w", err)
	}
	for line := range strings.Lines(out.String()) {
		// BenchmarkMake/at_rest/10000-2  100  12345 ns/op  67 B/op  8 allocs/op
		f := strings.Fields(line)
		if len(f) < 8 || !strings.HasPrefix(f[0], "BenchmarkMake/") {
			continue
		}
		name := strings.TrimPrefix(f[0], "BenchmarkMake/")
		if at := strings.LastIndexByte(name, '-'); at > 0 {
			name = name[:at]
		}
		name = strings.ReplaceAll(name, "_", " ")
		values := map[string]float64{}
		for i := 2; i+1 < len(f); i += 2 {
			value, err := strconv.ParseFloat(f[i], 64)
			if err != nil {
				return fmt.Errorf("benchmarks of the planner: %w in %q", err, line)
			}
			values[f[i+1]] = value
		}
		b.report.figure(name+": time", values["ns/op"]/1e6, "ms")
		b.report.figure(name+": memory", values["B/op"]/(1<<20), "MiB")
		b.report.figure(name+": allocations", values["allocs/op"], "")
		if strings.HasSuffix(name, "/10000") {
			b.report.atMost("planning, "+name+" pods", values["ns/op"]/1e6, 50, "ms")
		}
	}
	if len(b.report.Figures) == 0 {
		return fmt.Errorf("the benchmarks of the planner told nothing")
	}
	return nil
}
