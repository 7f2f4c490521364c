package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/afloat-project/afloat/internal/platform/version"
)

// OPS-210: the daemon and the plugin have such a test too; the metric is looked for in
// TestAReplicaThatStandsByAnswersWebhooksAndDoesNotReconcile and TestRunsWithoutApiServerAndRuntime.
// --version tells what the manager was built from, whatever else is said, and it needs no cluster.
func TestVersion(t *testing.T) {
	if os.Getenv("RUN_AS_MANAGER") != "" {
		if err := run(t.Context(), []string{"--version", "--feature-gates=PodWebhook=false"}); err != nil {
			t.Fatal(err)
		}
		return
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestVersion$")
	cmd.Env = []string{"RUN_AS_MANAGER=1"}
	said, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("running the manager: %v: %s", err, said)
	}
	if !strings.Contains(string(said), version.Get().String()+"\n") {
		t.Errorf("output: got %s, want version %s", said, version.Get())
	}
}
