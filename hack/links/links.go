// Package links looks whether the links of Markdown files lead anywhere.
package links

import (
	"bytes"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/text"
)

// page is a Markdown file: the anchors that it has, and what it links to.
type page struct {
	anchors map[string]bool
	links   []string
}

// Check returns a line for every relative link, in the Markdown files of a folder, whose file or anchor does
// not exist, and for every page of its folder docs that nobody finds: that is not in a section of the site's
// sidebar, and to which no chain of links leads from docs/README.md. Folders whose names begin with a dot,
// packages of npm and what is built are left out.
func Check(root string, sections []string) ([]string, error) {
	pages := map[string]page{}
	err := filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, file)
		if err != nil {
			return err
		}
		if entry.IsDir() && (name == "bin" || name == "_out" || entry.Name() == "node_modules" ||
			name != "." && strings.HasPrefix(entry.Name(), ".")) {
			return fs.SkipDir
		}
		if entry.IsDir() || filepath.Ext(name) != ".md" {
			return nil
		}
		source, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		pages[filepath.ToSlash(name)] = read(source)
		return nil
	})
	if err != nil {
		return nil, err
	}

	var wrong []string
	to := map[string][]string{}
	for name, page := range pages {
		for _, link := range page.links {
			target, err := follow(root, pages, name, link)
			if err != nil {
				wrong = append(wrong, fmt.Sprintf("%s: %s: %v", name, link, err))
			} else if target != "" {
				to[name] = append(to[name], target)
			}
		}
	}

	found := map[string]bool{}
	var visit func(name string)
	visit = func(name string) {
		if !found[name] {
			found[name] = true
			for _, next := range to[name] {
				visit(next)
			}
		}
	}
	visit("docs/README.md")

	for name := range pages {
		if strings.HasPrefix(name, "docs/") && !found[name] &&
			!slices.ContainsFunc(sections, func(s string) bool {
				return listed(s, name)
			}) {
			wrong = append(wrong, name+": neither a link nor the sidebar leads there")
		}
	}

	slices.Sort(wrong)
	return wrong, nil
}

// listed says whether an entry of the sidebar, a page or all pages of a folder, is a file.
func listed(section, file string) bool {
	name := strings.TrimSuffix(strings.TrimPrefix(file, "docs/"), ".md")
	folder, all := strings.CutSuffix(section, "*")
	return section == name || all && strings.HasPrefix(name, folder)
}

// follow returns the page that a relative link leads to; none for links to other hosts and to files that are
// no pages.
func follow(root string, pages map[string]page, from, link string) (string, error) {
	target, err := url.Parse(link)
	if err != nil || target.IsAbs() || target.Host != "" {
		return "", err
	}

	to := from
	if target.Path != "" {
		to = path.Join(path.Dir(from), target.Path)
	}
	info, err := os.Stat(filepath.Join(root, filepath.FromSlash(to)))
	if err != nil {
		return "", fmt.Errorf("there is no %s", to)
	}

	if info.IsDir() {
		to = path.Join(to, "README.md")
	}
	page, ok := pages[to]
	if target.Fragment != "" && !page.anchors[target.Fragment] {
		return "", fmt.Errorf("%s has no such anchor", to)
	}
	if !ok {
		return "", nil
	}

	return to, nil
}

var (
	frontMatter = regexp.MustCompile(`\A---\n(?s:.*?)\n---\n`)
	htmlAnchor  = regexp.MustCompile(`<a (?:id|name)="([^"]+)"`)
)

func read(source []byte) page {
	source = frontMatter.ReplaceAll(source, nil)
	p := page{anchors: map[string]bool{}}
	for _, match := range htmlAnchor.FindAllSubmatch(source, -1) {
		p.anchors[string(match[1])] = true
	}

	document := goldmark.New(goldmark.WithExtensions(extension.GFM)).Parser().Parse(text.NewReader(source))
	_ = ast.Walk(document, func(node ast.Node, entering bool) (ast.WalkStatus, error) { // the function returns no errors
		if !entering {
			return ast.WalkContinue, nil
		}
		switch node := node.(type) {
		case *ast.Heading:
			id := slug(plain(node, source))
			for i := 0; p.anchors[id]; i++ {
				id = fmt.Sprintf("%s-%d", slug(plain(node, source)), i+1)
			}
			p.anchors[id] = true
		case *ast.Link:
			p.links = append(p.links, string(node.Destination))
		case *ast.Image:
			p.links = append(p.links, string(node.Destination))
		}
		return ast.WalkContinue, nil
	})

	return p
}

// plain is the text of a heading without its markup.
func plain(node ast.Node, source []byte) string {
	var b bytes.Buffer
	for child := node.FirstChild(); child != nil; child = child.NextSibling() {
		switch child := child.(type) {
		case *ast.Text:
			b.Write(child.Segment.Value(source))
		case *ast.String:
			b.Write(child.Value)
		default:
			b.WriteString(plain(child, source))
		}
	}

	return strings.NewReplacer(`\*`, "*", `\_`, "_", `\[`, "[", `\]`, "]", "&amp;", "&", "&lt;", "<", "&gt;",
		">").Replace(b.String())
}

// slug is the anchor of a heading, as GitHub makes it, and the site: letters, digits, underscores and
// hyphens, with hyphens for spaces.
func slug(heading string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsNumber(r) || unicode.IsMark(r):
			return unicode.ToLower(r)
		}
		return -1
	}, heading)
}
