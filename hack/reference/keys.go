package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// keyGroup is a block of constants that are labels, annotations or the like.
type keyGroup struct {
	doc  string
	keys []key
}

type key struct{ constant, name, doc string }

// looksLikeKey distinguishes keys of Kubernetes from other constants: they have a domain before the slash.
var looksLikeKey = regexp.MustCompile(`^[a-z0-9-]+(\.[a-z0-9-]+)+/`)

// forProgrammers matches text in parentheses that is of no use to readers of the reference: requirements, and
// the pages that contain them.
var forProgrammers = regexp.MustCompile(`\s*\(([A-Z]+-\d+|docs/[^), ]*)(, ([A-Z]+-\d+|docs/[^), ]*))*\)`)

// word matches what may be the name of a constant.
var word = regexp.MustCompile(`[A-Z][A-Za-z0-9]+`)

// keys returns the groups of constants with keys in the packages of a folder.
func keys(folder string) ([]keyGroup, error) {
	var groups []keyGroup
	values := map[string]string{} // values of constants, which replace their names in comments
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") ||
			strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		for _, decl := range file.Decls {
			if block, ok := decl.(*ast.GenDecl); ok && block.Tok == token.CONST {
				groups = append(groups, readGroup(block))
			}
		}
		return nil
	})

	groups = slices.DeleteFunc(groups, func(g keyGroup) bool { return !slices.ContainsFunc(g.keys, isKey) })
	for _, group := range groups {
		for _, key := range group.keys {
			values[key.constant] = key.name
		}
	}

	for i, group := range groups {
		groups[i].keys = slices.DeleteFunc(group.keys, func(k key) bool { return !isKey(k) })
		for j, key := range groups[i].keys {
			groups[i].keys[j].doc = sentence(key, values)
		}
	}

	return groups, err
}

func isKey(k key) bool { return looksLikeKey.MatchString(k.name) }

func readGroup(block *ast.GenDecl) keyGroup {
	var group keyGroup
	var doc string
	if block.Lparen.IsValid() {
		group.doc = clean(block.Doc.Text())
	} else {
		doc = clean(block.Doc.Text()) // the comment of the only constant
	}

	for _, spec := range block.Specs {
		constant := spec.(*ast.ValueSpec)
		if constant.Doc != nil { // a constant without a comment has that of the previous one
			doc = clean(constant.Doc.Text())
		}
		for i, value := range constant.Values {
			literal, ok := value.(*ast.BasicLit)
			if !ok || literal.Kind != token.STRING {
				continue
			}
			if text, err := strconv.Unquote(literal.Value); err == nil {
				group.keys = append(group.keys, key{constant.Names[i].Name, text, doc})
			}
		}
	}

	slices.SortStableFunc(group.keys, func(a, b key) int { return strings.Compare(a.name, b.name) })
	return group
}

func clean(doc string) string {
	return forProgrammers.ReplaceAllString(strings.Join(strings.Fields(doc), " "), "")
}

// sentence converts the comment of a constant to Markdown. It removes the constant's name at the beginning,
// and replaces the names of other constants by their values.
func sentence(k key, values map[string]string) string {
	doc := k.doc
	if rest, ok := strings.CutPrefix(doc, k.constant); ok && !strings.HasPrefix(rest, " and ") &&
		!strings.HasPrefix(rest, ", ") {
		doc = strings.TrimPrefix(strings.TrimLeft(rest, " :"), "is ")
	}
	first, size := utf8.DecodeRuneInString(doc)
	doc = string(unicode.ToUpper(first)) + doc[size:]
	return word.ReplaceAllStringFunc(escape(doc), func(name string) string {
		if value, ok := values[name]; ok {
			return "`" + value + "`"
		}
		return name
	})
}

func keysPage(groups []keyGroup) string {
	var b strings.Builder
	b.WriteString("# Labels and annotations\n\n" + generated)
	b.WriteString(
		"What stands in the metadata of pods, workloads and other objects, and what reads or writes it.\n")

	for _, group := range groups {
		if group.doc == "" {
			group.doc = "Others."
		}
		fmt.Fprintf(&b, "\n## %s\n\n| key | meaning |\n|---|---|\n", strings.TrimSuffix(group.doc, "."))
		for _, key := range group.keys {
			fmt.Fprintf(&b, "| `%s` | %s |\n", key.name, key.doc)
		}
	}

	return b.String()
}
