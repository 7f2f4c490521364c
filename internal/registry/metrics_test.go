package registry

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestMetricsAreDocumented: each metric that the programs make is on the page, and each on the page is made
// (OPS-092 (part)).
func TestMetricsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/operate/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	var documented []string
	for _, match := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\|").FindAllStringSubmatch(string(page), -1) {
		documented = append(documented, match[1])
	}
	made := map[string]*regexp.Regexp{}
	for _, root := range []string{"../../internal", "../../cmd"} {
		if err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
			if err == nil && strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") {
				err = metricsOf(path, made)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	if len(made) < 30 {
		t.Fatalf("only %d metrics were found in the code", len(made))
	}
	used := map[string]bool{}
	for _, name := range documented {
		found := false
		for pattern, matches := range made {
			if matches.MatchString(name) {
				found, used[pattern] = true, true
			}
		}
		if !found {
			t.Errorf("%s is on the page, and nothing makes it", name)
		}
	}
	for pattern := range made {
		if !used[pattern] {
			t.Errorf("%s is made, and not on the page", pattern)
		}
	}
}

// metricsOf finds the names of metrics in a file: the member Name of options, and names that are handed to
// what makes them. Parts that are not constant match anything.
func metricsOf(path string, made map[string]*regexp.Regexp) error {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		return fmt.Errorf("parsing %s: %w", path, err)
	}
	add := func(e ast.Expr) {
		if pattern := patternOf(e); strings.Contains(pattern, "_") && pattern != "[a-z_]+" {
			made[pattern] = regexp.MustCompile("^" + pattern + "$")
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CompositeLit:
			kind, ok := n.Type.(*ast.SelectorExpr)
			if !ok || !strings.HasSuffix(kind.Sel.Name, "Opts") {
				return true
			}
			for _, member := range n.Elts {
				if pair, ok := member.(*ast.KeyValueExpr); ok && fmt.Sprint(pair.Key) == "Name" {
					add(pair.Value)
				}
			}
		case *ast.CallExpr:
			if named, ok := n.Fun.(*ast.SelectorExpr); ok && named.Sel.Name == "NewDesc" && len(n.Args) > 0 {
				add(n.Args[0])
			}
			if named, ok := n.Fun.(*ast.Ident); ok && len(n.Args) > 0 && (named.Name == "newCounters" || named.Name == "gauge") {
				if text := patternOf(n.Args[0]); strings.HasPrefix(text, "afloat_") || named.Name == "newCounters" {
					add(n.Args[0])
				}
			}
		}
		return true
	})
	return nil
}

func patternOf(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		if text, err := strconv.Unquote(e.Value); err == nil {
			return regexp.QuoteMeta(text)
		}
	case *ast.BinaryExpr:
		return patternOf(e.X) + patternOf(e.Y)
	}
	return "[a-z_]+"
}
