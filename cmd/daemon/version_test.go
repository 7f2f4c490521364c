package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/afloat-project/afloat/internal/platform/version"
)

// OPS-210 (part): --version tells what the daemon was built from, whatever else is said, and it needs no
// node.
func TestVersion(t *testing.T) {
	if os.Getenv("RUN_AS_DAEMON") != "" {
		if err := run(t.Context(), []string{"--version"}); err != nil {
			t.Fatal(err)
		}
		return
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestVersion$")
	cmd.Env = []string{"RUN_AS_DAEMON=1"}
	said, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("running the daemon: %v: %s", err, said)
	}
	if !strings.Contains(string(said), version.Get().String()+"\n") {
		t.Errorf("output: got %s, want version %s", said, version.Get())
	}
}
