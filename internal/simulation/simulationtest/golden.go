package simulationtest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Golden compares a narrative, and the events that were told in it, with the file of its title in
// testdata/narratives; update writes the file.
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
