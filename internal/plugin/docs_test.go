package plugin

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"
)

// TestManualNamesCommands: each command of the plugin in the manual exists, with its flags. What they do is
// shown by the tests of the commands, and end to end.
func TestManualNamesCommands(t *testing.T) {
	var pages []string
	for _, folder := range []string{"kinds", "operate", "tasks"} {
		files, err := filepath.Glob("../../docs/" + folder + "/*.md")
		if err != nil {
			t.Fatal(err)
		}
		if len(files) == 0 {
			t.Fatalf("there are no pages in docs/%s", folder)
		}
		pages = append(pages, files...)
	}
	line := regexp.MustCompile("(?m)(?:^|[`|;] *|^    )kubectl (?:afloat|kruise) ([^`\n|;]*)")
	variable := regexp.MustCompile(`\$\{\w+:-(\w+)\}`) // of the shell, with a default
	checked := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range line.FindAllStringSubmatch(string(text), -1) {
			command, _, _ := strings.Cut(match[1], " #")
			args := strings.Fields(variable.ReplaceAllString(command, "$1"))
			if len(args) == 0 || strings.HasSuffix(args[0], "…") {
				continue
			}
			checked++
			root := New("kubectl-afloat", genericiooptions.IOStreams{})
			root.InitDefaultCompletionCmd(args...)
			found, rest, err := root.Find(args)
			if err != nil || found == root && !strings.HasPrefix(args[0], "-") {
				t.Errorf("%s: kubectl afloat %s: no such command: %v", filepath.Base(page), command, err)
				continue
			}
			if err := found.ParseFlags(rest); err != nil {
				t.Errorf("%s: kubectl afloat %s: %v", filepath.Base(page), command, err)
			}
		}
	}
	if checked < 20 {
		t.Errorf("only %d commands were found", checked)
	}
}
