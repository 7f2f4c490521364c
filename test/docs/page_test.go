package docs

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
)

// folders are the pages that are played.
var folders = []string{"../../docs/kinds", "../../docs/operate", "../../docs/tasks"}

// Together the shares have each page that changes the installation once, and each share has all others.
func TestSharesOfTheManual(t *testing.T) {
	pages, err := Pages(folders...)
	if err != nil {
		t.Fatal(err)
	}
	names := func(pages []Page) (names []string) {
		for _, page := range pages {
			names = append(names, page.Name)
		}
		return names
	}
	all, others, err := Played(pages, "")
	if err != nil || len(all) < 3 || len(others) < 3 {
		t.Fatalf("without a share: %d pages alone, %d together, error %v; want some of each", len(all), len(others), err)
	}
	var inShares []string
	for _, share := range []string{"1/3", "2/3", "3/3"} {
		alone, together, err := Played(pages, share)
		if err != nil {
			t.Errorf("share %s: %v", share, err)
		}
		inShares = append(inShares, names(alone)...)
		if diff := cmp.Diff(names(others), names(together)); diff != "" {
			t.Errorf("share %s: the pages that are played together (-want +got):\n%s", share, diff)
		}
	}
	want := names(all)
	slices.Sort(want)
	slices.Sort(inShares)
	if diff := cmp.Diff(want, inShares); diff != "" {
		t.Errorf("pages of all shares that change the installation (-want +got):\n%s", diff)
	}
	for _, share := range []string{"0/3", "4/3", "1", "a/b", "1/0", "1/3/3"} {
		if _, _, err := Played(pages, share); err == nil {
			t.Errorf("share %q: want an error", share)
		}
	}
}

// TestPagesPutTheInstallationBack: shares play any page after any other, so each page that removes the
// installation makes it again.
func TestPagesPutTheInstallationBack(t *testing.T) {
	pages, err := Pages(folders...)
	if err != nil {
		t.Fatal(err)
	}
	alone, together, err := Played(pages, "")
	if err != nil {
		t.Fatal(err)
	}
	removing := 0
	for _, page := range slices.Concat(alone, together) {
		there := true
		for _, block := range page.Blocks {
			if !block.Plays() || block.Language != "sh" || block.Fails {
				continue
			}
			for line := range strings.Lines(block.Text) {
				switch {
				case strings.Contains(line, "undeploy"), strings.HasPrefix(line, "helm uninstall"):
					there = false
					removing++
				case strings.Contains(line, "make local-deploy"):
					there = true
				}
			}
		}
		if !there {
			t.Errorf("%s removes the installation and does not make it again", page.File)
		}
	}
	if removing < 3 {
		t.Errorf("lines that remove the installation: got %d, want at least 3", removing)
	}
}

func TestParse(t *testing.T) {
	page, err := Parse("docs/shop.md", `---
alone: true
title: of the site
---
# Shop
`+"```yaml file=a.yaml\na: 1\n```\n<!-- not run: it needs a cloud -->\n\n```sh\ncloud\n```\n\n  ```sh fails\n  kubectl x\n   y\n  ```\n"+
		"````text matches\n```\n````\n<!-- not run: only the next one -->\ntext\n```yaml patch=clone/web\nspec: {}\n```\n```\nout\n```")
	if err != nil {
		t.Fatal(err)
	}
	want := Page{Name: "shop", File: "docs/shop.md", Matter: Matter{Alone: true}, Blocks: []Block{
		{Line: 6, Language: "yaml", File: "a.yaml", Text: "a: 1\n"},
		{Line: 11, Language: "sh", NotRun: "it needs a cloud", Text: "cloud\n"},
		{Line: 15, Language: "sh", Fails: true, Text: "kubectl x\n y\n"},
		{Line: 19, Language: "text", Matches: true, Text: "```\n"},
		{Line: 24, Language: "yaml", Patch: "clone/web", Text: "spec: {}\n"},
		{Line: 27, Text: "out\n"},
	}}
	if diff := cmp.Diff(want, page); diff != "" {
		t.Error(diff)
	}
	for text, message := range map[string]string{
		"---\nalone: true\n":              "front matter without end",
		"---\nfolder: /tmp\n---\n":        "the folder can be that of the repository",
		"---\ncluster: none\n---\n":       "has cluster: none and a reason",
		"```sh fail\n```\n":               `"fail" says nothing about a block of sh`,
		"```yaml file=../a\n```\n":        `"file=../a" says nothing`,
		"\n```sh\nkubectl get pods\n":     "docs/a.md:2: the block has no end",
		"---\nalone: perhaps\n---\ntext":  "front matter",
		"```text matches patch=a\n```\n":  "says nothing about a block of text",
		"---\nreason: forgotten\n---\n.":  "has cluster: none and a reason",
		"```yaml patch=clone\nspec: {}\n": "says nothing about a block of yaml",
	} {
		if _, err := Parse("docs/a.md", text); err == nil || !strings.Contains(err.Error(), message) {
			t.Errorf("%q: %v, not %q", text, err, message)
		}
	}
}

func TestMatches(t *testing.T) {
	printed := "NAME    READY   AGE\nweb-a   1/1     3s\nweb-b   0/1     2s\n"
	for text, missing := range map[string]string{
		"NAME READY AGE\nweb-a 1/1 3s\n":     "",
		"web-...  1/1  ...\n...\nweb-b ...":  "",
		"web-b 0/1 ...\nweb-a 1/1 ...":       "web-a 1/1 ...", // in order
		"web-a 1/1":                          "web-a 1/1",     // the whole line
		"b 0/1 2s":                           "b 0/1 2s",
		"...b 0/1 2s":                        "",
		"web-... 0/1 3s":                     "web-... 0/1 3s",
		"web-a ... 3s\n\n   web-b   0/1 ...": "",
	} {
		if got := Matches(text, printed); got != missing {
			t.Errorf("%q: %q is missing, not %q", text, got, missing)
		}
	}
}

// TestPages: each block of YAML is YAML, what is applied is complete, and few blocks are left out.
func TestPages(t *testing.T) {
	pages, err := Pages(folders...)
	if err != nil {
		t.Fatal(err)
	}
	left := 0
	names := map[string]string{}
	for _, page := range pages {
		if other := names[page.Name]; other != "" {
			t.Errorf("%s and %s would be played in the same namespace", other, page.File)
		}
		names[page.Name] = page.File
		for _, block := range page.Blocks {
			if block.NotRun != "" {
				left++
			}
			if block.Language != "yaml" {
				continue
			}
			for document, err := range documents(block.Text) {
				if err == nil && block.File == "" && block.Patch == "" && block.NotRun == "" && page.Matter.Cluster != "none" &&
					(document["apiVersion"] == nil || document["kind"] == nil) {
					err = errors.New("no apiVersion or kind: a fragment has patch=KIND/NAME after its fence")
				}
				if err != nil {
					t.Errorf("%s:%d: %v", page.File, block.Line, err)
				}
			}
		}
	}
	if left > 12 {
		t.Errorf("%d blocks are not run", left)
	}
}

func documents(text string) func(yield func(map[string]any, error) bool) {
	return func(yield func(map[string]any, error) bool) {
		decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader([]byte(text)), 4096)
		for {
			var document map[string]any
			err := decoder.Decode(&document)
			if errors.Is(err, io.EOF) {
				return
			}
			if len(document) == 0 && err == nil {
				continue
			}
			if !yield(document, err) || err != nil {
				return
			}
		}
	}
}
