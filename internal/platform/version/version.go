// Package version tells which release a program is of, and from which commit it was built.
package version

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"
)

// Set by the linker alone: make release stamps every program with -ldflags -X.
var version, commit string

// Build is what a program was built from.
type Build struct {
	// Version is that of the release, such as v0.1.0. A program that was built without make release has the
	// pseudo-version that Go makes of the commit, or (devel).
	Version string
	// Commit is the revision in full, or "unknown".
	Commit string
	// Go is the version of the compiler, and Platform what the program runs on, such as linux/arm64.
	Go, Platform string
}

// Get returns what this program was built from: what the linker wrote, and where it wrote nothing, what the
// compiler recorded.
func Get() Build {
	b := Build{
		Version:  version,
		Commit:   commit,
		Go:       runtime.Version(),
		Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		b.Version = cmp.Or(b.Version, info.Main.Version)
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				b.Commit = cmp.Or(b.Commit, s.Value)
			}
		}
	}
	b.Version, b.Commit = cmp.Or(b.Version, "(devel)"), cmp.Or(b.Commit, "unknown")
	return b
}

// String is one line, such as "v0.1.0 (commit 0123abcd, go1.26.3, linux/amd64)".
func (b Build) String() string {
	return fmt.Sprintf("%s (commit %s, %s, %s)", b.Version, b.Commit, b.Go, b.Platform)
}

// Metric returns the gauge kruise_build_info{version,commit,go_version}, which is always 1.
func (b Build) Metric() prometheus.Collector {
	gauge := prometheus.NewGauge(prometheus.GaugeOpts{
		Name:        "kruise_build_info",
		Help:        "What this program was built from; always 1.",
		ConstLabels: prometheus.Labels{"version": b.Version, "commit": b.Commit, "go_version": b.Go},
	})
	gauge.Set(1)
	return gauge
}
