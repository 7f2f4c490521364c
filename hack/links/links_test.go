package links

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestEveryLinkLeadsSomewhereAndEveryPageIsFound(t *testing.T) {
	const root = "../.."
	text, err := os.ReadFile(filepath.Join(root, "site", "sections.json"))
	if err != nil {
		t.Fatal(err)
	}
	var sections []struct {
		Pages []string `json:"pages"`
	}
	if err := json.Unmarshal(text, &sections); err != nil {
		t.Fatal(err)
	}
	var listed []string
	for _, section := range sections {
		listed = append(listed, section.Pages...)
	}
	wrong, err := Check(root, listed)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range wrong {
		t.Error(line)
	}
}

func TestWhatIsWrongIsNamed(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{
		"README.md":                     "# A `b` c_d. (e), f!\n\n[here](#a-b-c_d-e-f) [there](docs/README.md#two-1) [lost](docs/none.md) ![picture](none.png)\n",
		"docs/README.md":                "---\nalone: true\n---\n# Two\n\n## Two\n\n```sh\n[no link](none.md)\n```\n[folder](sub) [file](sub/data.json) <https://example.com/x#y>\n",
		"docs/sub/README.md":            "# Sub\n\n[up](../README.md#three) [page][ref]\n\n[ref]: page.md \"Page\"\n",
		"docs/sub/page.md":              "# Page\n\n<a id=\"mark\"></a>[self](#mark) [other](https://example.com/none)\n",
		"docs/sub/data.json":            "{}\n",
		"docs/lonely.md":                "# Lonely\n",
		"docs/listed.md":                "# Listed\n",
		"docs/all/one.md":               "# One\n",
		"bin/built.md":                  "[lost](none.md)\n",
		"site/node_modules/x/README.md": "[lost](none.md)\n",
	} {
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := Check(root, []string{"listed", "all/*"})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"README.md: docs/none.md: there is no docs/none.md",
		"README.md: none.png: there is no none.png",
		"docs/lonely.md: neither a link nor the sidebar leads there",
		"docs/sub/README.md: ../README.md#three: docs/README.md has no such anchor",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// Each promise of SECURITY.md names tests that hold it, and these exist.
func TestPromisesOfSecurityHaveTests(t *testing.T) {
	const root = "../.."
	text, err := os.ReadFile(filepath.Join(root, "SECURITY.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, promises, found := strings.Cut(string(text), "\n## What protects users")
	if !found {
		t.Fatal("there are no promises")
	}
	named := regexp.MustCompile("`(Test\\w+)`")
	wanted := map[string]bool{}
	for i, promise := range strings.Split(promises, "\n- ")[1:] {
		tests := named.FindAllStringSubmatch(promise, -1)
		if len(tests) == 0 {
			t.Errorf("no test holds promise %d: %.80s", i+1, promise)
		}
		for _, match := range tests {
			wanted[match[1]] = true
		}
	}
	declared := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	if err := filepath.WalkDir(root, func(path string, entry os.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == "node_modules" || entry.Name() == "bin" || entry.Name() == ".git"):
			return filepath.SkipDir
		case !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		source, err := os.ReadFile(path)
		for _, match := range declared.FindAllSubmatch(source, -1) {
			delete(wanted, string(match[1]))
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	for name := range wanted {
		t.Errorf("there is no test %s", name)
	}
}
