package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"
)

// licensesFile has the licenses of the modules that a program is made of. Most of them ask that their text
// goes with the program.
const licensesFile = "THIRD_PARTY_LICENSES"

var licenseFile = regexp.MustCompile(`(?i)^(licen[sc]e|copying|notice|patents)`)

// licenses returns the licenses of the modules of each program, by its path. Those of other platforms are not
// among them, so that a release for some platforms has the same files for these as one for all.
func (r *release) licenses(ctx context.Context, built []binary) (map[string][]byte, error) {
	folders, err := r.folders(ctx)
	if err != nil {
		return nil, fmt.Errorf("find the modules: %w", err)
	}

	texts := map[string][]byte{}
	for _, b := range built {
		var text bytes.Buffer
		fmt.Fprintf(&text, "The licenses of what %s is made of, beside its own.\n", b.name)
		ids := []string{goItself}
		for _, m := range b.info.Deps {
			ids = append(ids, moduleID(m))
		}
		for _, id := range ids {
			if err := writeLicenses(&text, id, folders[id]); err != nil {
				return nil, err
			}
		}
		texts[b.path] = text.Bytes()
	}

	return texts, nil
}

// writeLicenses writes the licenses in the folder of a module. A module without any cannot be passed on.
func writeLicenses(to io.Writer, module, folder string) error {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return fmt.Errorf("the licenses of %s: %w", module, err)
	}

	found := false
	for _, e := range entries {
		if e.IsDir() || !licenseFile.MatchString(e.Name()) || strings.HasSuffix(e.Name(), ".go") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(folder, e.Name()))
		if err != nil {
			return err
		}
		found = true
		fmt.Fprintf(to, "\n==== %s: %s\n\n%s\n", module, e.Name(), bytes.TrimSpace(text))
	}

	if !found {
		return fmt.Errorf("module %s has no license in %s", module, folder)
	}

	return nil
}

// goItself is the standard library and the runtime, which every program has in it.
const goItself = "Go"

// folders returns where the source of each module is.
func (r *release) folders(ctx context.Context) (map[string]string, error) {
	goroot, err := r.goCommand(ctx, "env", "GOROOT")
	if err != nil {
		return nil, err
	}

	folders := map[string]string{goItself: strings.TrimSpace(string(goroot))}
	list, err := r.goCommand(ctx, "list", "-m", "-json", "all")
	if err != nil {
		return nil, err
	}

	for d := json.NewDecoder(bytes.NewReader(list)); ; {
		var m struct{ Path, Version, Dir string }
		if err := d.Decode(&m); errors.Is(err, io.EOF) {
			return folders, nil
		} else if err != nil {
			return nil, err
		}
		folders[m.Path+" "+m.Version] = m.Dir
	}
}

func (r *release) goCommand(ctx context.Context, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Stderr = r.root, os.Stderr
	cmd.Env = append(os.Environ(), "GOFLAGS=-mod=readonly", "GOWORK=off")
	return cmd.Output()
}

// moduleID names a module as go list does, which is by the module that is replaced, if it is.
func moduleID(m *debug.Module) string { return m.Path + " " + m.Version }
