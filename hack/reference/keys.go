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

// keyGroup is a block of constants that hold labels, annotations or the like.
type keyGroup struct {
	doc  string
	keys []key
}

type key struct{ constant, name, doc string }

// looksLikeKey tells keys of Kubernetes from other constants: they have a domain before the slash.
var looksLikeKey = regexp.MustCompile(`^[a-z0-9-]+(\.[a-z0-9-]+)+/`)

// forProgrammers is what stands in parentheses in comments and is of no use to readers of the reference:
// requirements, and where they are.
var forProgrammers = regexp.MustCompile(`\s*\(([A-Z]+-\d+|docs/[^), ]*)(, ([A-Z]+-\d+|docs/[^), ]*))*\)`)

// word is what may be the name of a constant.
var word = regexp.MustCompile(`[A-Z][A-Za-z0-9]+`)

// keys finds the groups of constants in a folder of packages in which there are keys.
func keys(folder string) ([]keyGroup, error) {
	var groups []keyGroup
	values := map[string]string{} // of constants, by which their comments are to name them
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
	if block.Lparen.IsValid() {
		group.doc = clean(block.Doc.Text())
	}

	var doc string
	for _, spec := range block.Specs {
		constant := spec.(*ast.ValueSpec)
		if constant.Doc != nil { // a constant without a comment is explained by the one before
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

// sentence makes Markdown of the comment on a constant: without its name at the begin, and with the values of
// others instead of their names.
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
