package main

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestWhatALineCites(t *testing.T) {
	for line, want := range map[string]string{
		"// AB-081: a pod":                             "AB-081",
		"// TestX (AB-081, AB-082)":                    "AB-081 AB-082",
		"// AB-041, 042 and 044, and CD-001":           "AB-041 AB-042 AB-044 CD-001",
		"// AB-190 (part), AB-191":                     "AB-190p AB-191",
		"// AB-190 (part: the hook alone)":             "AB-190p",
		"// AB-041 to 043":                             "AB-041r AB-042r AB-043r",
		"// AB-041 to AB-043, AB-050":                  "AB-041r AB-042r AB-043r AB-050",
		"// AB-041..043":                               "AB-041r AB-042r AB-043r",
		"// AB-041-043 (part)":                         "AB-041r AB-042p AB-043p",
		"// AB-041 to 043, and AB-042 again (AB-042)":  "AB-041r AB-042 AB-043r",
		"// AB-W03 to AB-W05":                          "AB-W03r AB-W04r AB-W05r",
		"// AB-D05, AB-W01a":                           "AB-D05 AB-W01p",
		`"AB-081 a name": {`:                           "AB-081",
		"// UTF-8, a range of 10-20, and RFC-1":        "",
		"// AB-018, CD-060 to 062":                     "AB-018 CD-060r CD-061r CD-062r",
		"// AB-081 is whole here, AB-081 (part) there": "AB-081",
	} {
		got := cites(line)
		expected := map[requirement]manner{}
		for name := range strings.FieldsSeq(want) {
			how := whole
			if cut, ok := strings.CutSuffix(name, "p"); ok {
				name, how = cut, part
			} else if cut, ok := strings.CutSuffix(name, "r"); ok {
				name, how = cut, inRun
			}
			prefix, number, _ := strings.Cut(name, "-")
			expected[requirement{prefix, number}] = how
		}
		if !maps.Equal(got, expected) {
			t.Errorf("%s: %v, want %v", line, got, expected)
		}
	}
}

// A list of numbers in a comment, and the mark of a part, may be wrapped.
func TestCommentsAreReadAcrossLines(t *testing.T) {
	root := t.TempDir()
	text := "// AB-041,\n// AB-042\n\t// (part) and AB-043.\nfunc TestX() {}\n"
	if err := os.WriteFile(filepath.Join(root, "x_test.go"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := citations(root)
	want := map[requirement]manner{{"AB", "041"}: whole, {"AB", "042"}: part, {"AB", "043"}: whole}
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
}

// A repository in which every case occurs: tested, tested in part, in a run, not at all, not built.
func TestReport(t *testing.T) {
	root := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("docs/spec/a.md", "# A\n- CS-001 One.\n- CS-002 Two, see CS-009.\n- CS-003 Three.\n- CS-004 Four.\n- CS-D1 Defect.\n- CS-007 Later.\n- XY-001 A kind to come.\n")
	write("docs/spec/README.md",
		"Text.\n\n"+notBuilt+", and why:\n\n| | |\n|---|---|\n| XY, CS-007 | later |\n\n| CS-001 | another table |\n")
	write("a/a_test.go", "// CS-001, CS-D1 (part): x\n")
	write("b_test.go", "// CS-001 (part), CS-002 to 003\n")
	write("b.go", "// CS-004\n")
	show := func(check bool, prefixes ...string) (string, error) {
		var out strings.Builder
		err := run(&out, root, prefixes, check)
		return out.String(), err
	}
	const line = "CS     1 of   5 requirements tested (20 %); 2 only in runs of numbers, 1 in part, 1 not cited; 1 not built\n"
	if text, err := show(false); err != nil || text != line {
		t.Errorf("%v\n%s", err, text)
	}
	if text, err := show(false, "CS"); err != nil ||
		text != line+"     in runs: 002 003\n     in part: D1\n     not cited: 004\n     not built: 007\n" {
		t.Errorf("%v\n%s", err, text)
	}
	if text, err := show(true); text != line || err == nil || err.Error() != "CS: 20 % of the requirements are tested; 98 % must be" {
		t.Errorf("%v\n%s", err, text)
	}
	write("c_test.go", "// CS-002, CS-003, CS-004, CS-D1, CS-007\n")
	if _, err := show(true); err == nil || !strings.Contains(err.Error(), "CS-007 is cited by a test") {
		t.Error(err)
	}
	write("c_test.go", "// CS-002, CS-003, CS-004, CS-D1\n")
	if text, err := show(true); err != nil || !strings.Contains(text, "5 of   5") {
		t.Errorf("%v\n%s", err, text)
	}
	write("docs/spec/README.md", notBuilt+"\n| CS-107 | later |\n")
	if _, err := show(false); err == nil || !strings.Contains(err.Error(), "CS-107") {
		t.Error(err)
	}
}
