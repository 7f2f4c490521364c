// Package docs runs the manual: each page is played from top to bottom on a cluster, as a reader would who
// pastes its blocks.
//
// What becomes of a block is told by the words after its fence:
//
//	yaml                  complete manifests; they are applied
//	yaml file=NAME        written to file NAME in the folder of the page, for its commands
//	yaml patch=KIND/NAME  merged into that object
//	sh                    a script of bash, which must succeed
//	sh fails              a script that must fail
//	text matches          what the block before must have printed; "..." stands for anything
//
// Other blocks are for the reader alone. A line <!-- not run: REASON --> before a block leaves it out. Front
// matter is "alone: true" for a page that changes the installation, "folder: repository" for one whose
// commands run there, and "cluster: none" with a "reason" for one that is not played.
package docs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// Page is a page of the manual.
type Page struct {
	// Name is its file name without the ending.
	Name string
	// File is its path.
	File   string
	Matter Matter
	Blocks []Block
}

// Matter is what the front matter of a page says to the one who plays it. Others may read more of it.
type Matter struct {
	// Alone: no other page is played at the same time.
	Alone bool `json:"alone"`
	// Folder is "repository" for a page whose commands run in the root of the repository, instead of an empty
	// folder.
	Folder string `json:"folder"`
	// Cluster is "none" for a page that is not played.
	Cluster string `json:"cluster"`
	// Reason is why it is not.
	Reason string `json:"reason"`
}

// Block is a fenced block.
type Block struct {
	// Line is the number of its first line.
	Line int
	// Language is the first word after the fence.
	Language string
	// File and Patch are what stands behind "file=" and "patch=".
	File, Patch string
	// Fails and Matches say that these words stand there.
	Fails, Matches bool
	// NotRun is why it is left out.
	NotRun string
	Text   string
}

// Plays reports whether the block is for more than the reader.
func (b Block) Plays() bool {
	return b.NotRun == "" && (b.Language == "yaml" || b.Language == "sh" || b.Matches)
}

// Played returns the pages that are played: first those that change the installation, which run alone, then the
// others. share is empty, or "2/3" for the second third of the former and all of the latter.
func Played(pages []Page, share string) (alone, together []Page, err error) {
	which, shares := 1, 1
	if share != "" {
		var rest string
		if n, _ := fmt.Sscanf(share+" ", "%d/%d%s", &which, &shares, &rest); n != 2 || which < 1 || which > shares {
			return nil, nil, fmt.Errorf("SHARE=%s is not a share such as 2/3", share)
		}
	}
	changing := 0
	for _, page := range pages {
		switch {
		case page.Matter.Cluster == "none":
		case !page.Matter.Alone:
			together = append(together, page)
		default:
			if changing%shares == which-1 {
				alone = append(alone, page)
			}
			changing++
		}
	}
	return alone, together, nil
}

// Pages reads the pages of folders, in the order of their names.
func Pages(folders ...string) ([]Page, error) {
	var pages []Page
	var errs []error
	for _, folder := range folders {
		files, err := filepath.Glob(filepath.Join(folder, "*.md"))
		errs = append(errs, err)
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err == nil {
				var page Page
				page, err = Parse(file, string(text))
				pages = append(pages, page)
			}
			errs = append(errs, err)
		}
	}
	return pages, errors.Join(errs...)
}

// Parse reads a page. Words that nobody knows are errors, since a block with a misspelt one would not be
// played.
func Parse(file, text string) (Page, error) {
	page := Page{File: file, Name: strings.TrimSuffix(filepath.Base(file), ".md")}
	lines := strings.Split(text, "\n")
	start := 0
	if lines[0] == "---" {
		end := slices.Index(lines[1:], "---") + 1
		if end == 0 {
			return page, fmt.Errorf("%s: front matter without end", file)
		}
		if err := yaml.Unmarshal([]byte(strings.Join(lines[1:end], "\n")), &page.Matter); err != nil {
			return page, fmt.Errorf("%s: front matter: %w", file, err)
		}
		start = end + 1
	}
	if m := page.Matter; (m.Cluster != "" || m.Reason != "") && (m.Cluster != "none" || m.Reason == "") {
		return page, fmt.Errorf("%s: a page that is not played has cluster: none and a reason", file)
	}
	if folder := page.Matter.Folder; folder != "" && folder != "repository" {
		return page, fmt.Errorf("%s: the folder can be that of the repository, not %q", file, folder)
	}
	notRun := ""
	for i := start; i < len(lines); i++ {
		indent, fence := fenceOf(lines[i])
		if fence == "" {
			if reason, ok := strings.CutPrefix(strings.TrimSpace(lines[i]), "<!-- not run:"); ok {
				notRun = strings.TrimSpace(strings.TrimSuffix(reason, "-->"))
			} else if strings.TrimSpace(lines[i]) != "" {
				notRun = ""
			}
			continue
		}
		block := Block{Line: i + 1, NotRun: notRun}
		notRun = ""
		if err := block.words(strings.Fields(strings.TrimPrefix(lines[i][indent:], fence))); err != nil {
			return page, fmt.Errorf("%s:%d: %w", file, i+1, err)
		}
		for i++; i < len(lines) && strings.TrimSpace(lines[i]) != fence; i++ {
			block.Text += lines[i][min(indent, len(lines[i])-len(strings.TrimLeft(lines[i], " "))):] + "\n"
		}
		if i == len(lines) {
			return page, fmt.Errorf("%s:%d: the block has no end", file, block.Line)
		}
		page.Blocks = append(page.Blocks, block)
	}
	return page, nil
}

// fenceOf is the fence with which a line begins, and how far it is indented.
func fenceOf(line string) (int, string) {
	rest := strings.TrimLeft(line, " ")
	n := len(rest) - len(strings.TrimLeft(rest, "`"))
	if n < 3 {
		return 0, ""
	}
	return len(line) - len(rest), rest[:n]
}

func (b *Block) words(words []string) error {
	if len(words) == 0 {
		return nil
	}
	b.Language = words[0]
	for _, word := range words[1:] {
		name, value, _ := strings.Cut(word, "=")
		switch {
		case b.Language == "yaml" && name == "file" && value != "" && !strings.Contains(value, ".."):
			b.File = value
		case b.Language == "yaml" && name == "patch" && strings.Contains(value, "/"):
			b.Patch = value
		case b.Language == "sh" && word == "fails":
			b.Fails = true
		case b.Language == "text" && word == "matches":
			b.Matches = true
		default:
			return fmt.Errorf("%q says nothing about a block of %s", word, b.Language)
		}
	}
	return nil
}

// Matches says which line of a text is not found in what was printed, in order. "..." in a line stands for anything, and so do any number of
// blanks for each other. A line of nothing but "..." is no line.
func Matches(text, printed string) string {
	got := strings.Split(printed, "\n")
	for want := range strings.Lines(text) {
		want = strings.TrimSpace(want)
		if want == "" || want == "..." {
			continue
		}
		at := slices.IndexFunc(got, func(line string) bool { return like(want, line) })
		if at < 0 {
			return want
		}
		got = got[at+1:]
	}
	return ""
}

func like(want, line string) bool {
	line = strings.Join(strings.Fields(line), " ")
	parts := strings.Split(strings.Join(strings.Fields(want), " "), "...")
	for i, part := range parts {
		if i > 0 {
			part = strings.TrimSpace(part)
		}
		at := strings.Index(line, strings.TrimSpace(part))
		if at < 0 || i == 0 && at > 0 {
			return false
		}
		line = line[at+len(strings.TrimSpace(part)):]
	}
	return strings.TrimSpace(line) == "" || parts[len(parts)-1] == ""
}
