package version

import (
	"runtime"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestAProgramThatNobodyStampedTellsWhatGoKnows(t *testing.T) {
	b := Get()
	if b.Version == "" {
		t.Error("the build has no version")
	}
	if b.Commit == "" {
		t.Error("the build has no commit")
	}
	if b.Go != runtime.Version() {
		t.Errorf("Go of the build: got %s, want %s", b.Go, runtime.Version())
	}
	if want := runtime.GOOS + "/" + runtime.GOARCH; b.Platform != want {
		t.Errorf("platform of the build: got %s, want %s", b.Platform, want)
	}
}

// OPS-210 (part): the metric.
func TestTheBuildIsAMetric(t *testing.T) {
	b := Build{Version: "v0.1.0", Commit: "0123abcd", Go: "go1.26.0", Platform: "linux/arm64"}
	if got, want := b.String(), "v0.1.0 (commit 0123abcd, go1.26.0, linux/arm64)"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	want := `
# HELP kruise_build_info What this program was built from; always 1.
# TYPE kruise_build_info gauge
kruise_build_info{commit="0123abcd",go_version="go1.26.0",version="v0.1.0"} 1
`
	if err := testutil.CollectAndCompare(b.Metric(), strings.NewReader(want)); err != nil {
		t.Errorf("metric of the build: %v", err)
	}
}
