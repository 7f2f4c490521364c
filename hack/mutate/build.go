package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
)

// loaded is what `go list` returns about a package.
type loaded struct {
	ImportPath, Name, Dir, Export string
	GoFiles                       []string

	exports map[string]string // of the package and all that it imports
}

func load(pattern string) (*loaded, error) {
	command := exec.CommandContext(context.Background(), "go", "list", "-export", "-deps",
		"-json=ImportPath,Name,Dir,Export,GoFiles",
		pattern)
	command.Stderr = os.Stderr
	out, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("go list %s: %w", pattern, err)
	}

	last, exports := loaded{}, map[string]string{}
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		next := loaded{}
		if err := decoder.Decode(&next); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("what go list printed: %w", err)
		}
		last, exports[next.ImportPath] = next, next.Export
	}

	last.exports = exports // a package comes after what it imports
	return &last, nil
}

// build compiles the tests of a package with all mutants of this one, which may be another that it imports.
func (l *loaded) build(dir string, wanted *regexp.Regexp, tested *loaded) (string, []mutant, error) {
	fset := token.NewFileSet()
	parsed := make([]*ast.File, 0, len(l.GoFiles))
	for _, name := range l.GoFiles {
		file, err := parser.ParseFile(fset, filepath.Join(l.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return "", nil, err
		}
		parsed = append(parsed, file)
	}

	info := &types.Info{
		Types:     map[ast.Expr]types.TypeAndValue{},
		Defs:      map[*ast.Ident]types.Object{},
		Implicits: map[ast.Node]types.Object{},
	}
	compiled := importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(l.exports[path])
	})
	pkg, err := (&types.Config{Importer: compiled}).Check(l.ImportPath, fset, parsed, info)
	if err != nil {
		return "", nil, err
	}

	var all []mutant
	next, replace := 0, map[string]string{}
	for i, name := range l.GoFiles {
		if !wanted.MatchString(name) {
			continue
		}
		path := filepath.Join(l.Dir, name)
		source, err := os.ReadFile(path)
		if err != nil {
			return "", nil, err
		}
		file := newChanged(fset, info, pkg, parsed[i], source)
		all = append(all, file.find(parsed[i], &next)...)
		replace[path] = filepath.Join(dir, name)
		if err := os.WriteFile(replace[path], []byte(file.text(parsed[i])), 0o600); err != nil {
			return "", nil, err
		}
	}

	added := filepath.Join(dir, "mutants_choosing.go")
	replace[filepath.Join(l.Dir, "mutants_choosing.go")] = added
	if err := os.WriteFile(added, fmt.Appendf(nil, choosing, l.Name, next+1), 0o600); err != nil {
		return "", nil, err
	}

	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o600); err != nil {
		return "", nil, err
	}

	binary := filepath.Join(dir, "tests")
	arguments := []string{"test", "-c", "-vet=off", "-overlay", filepath.Join(dir, "overlay.json"), "-o",
		binary, tested.ImportPath}
	command := exec.CommandContext(context.Background(), "go", arguments...)
	if out, err := command.CombinedOutput(); err != nil {
		return "", nil, fmt.Errorf("the tests of %s with mutants: %w\n%s", tested.ImportPath, err, out)
	}
	if _, err := os.Stat(binary); err != nil {
		return "", nil, fmt.Errorf("%s has no tests", tested.ImportPath)
	}

	return binary, all, nil
}
