package simulationtest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// Narrative is the text of a life whose every plan is written down.
type Narrative struct {
	strings.Builder
	// Last is the last plan. It is empty before the first one.
	Last string
}

// Plan writes a plan, unless it says the same as the one before.
func (n *Narrative) Plan(at time.Time, plan string) {
	if plan != n.Last {
		n.Last = plan
		fmt.Fprintf(n, "\n[%s]\n%s", at.Format("04:05"), plan)
	}
}

// Golden compares a narrative and its events with the file for its title in testdata/narratives. If update is
// set, it writes the file.
func Golden(t *testing.T, title, text string, events []string, update bool) {
	t.Helper()
	for _, event := range events {
		text += "\nEvent " + event
	}

	path := filepath.Join("testdata", "narratives",
		strings.NewReplacer(" ", "-", ",", "", "#", "").Replace(title)+".golden")
	got := strings.TrimLeft(text, "\n") + "\n"
	if update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}

	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v (run the test with -update)", err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s: %s", path, diff)
	}
}
