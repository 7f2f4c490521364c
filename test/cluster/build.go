package main

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// cacheRoot returns the folder for what is built or downloaded once, outside the source tree.
func cacheRoot() (string, error) {
	if d := os.Getenv("AFLOAT_CACHE"); d != "" {
		abs, err := filepath.Abs(d)
		return filepath.Join(abs, "afloat"), err
	}
	if d := os.Getenv("XDG_CACHE_HOME"); d != "" {
		return filepath.Join(d, "afloat"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("find the cache folder: %w", err)
	}
	return filepath.Join(home, ".cache", "afloat"), nil
}

// sourceRoot returns the folder of this file, which contains the nested modules.
func sourceRoot() (string, error) {
	var tried []string
	_, file, _, _ := runtime.Caller(0)
	cwd, _ := os.Getwd()
	for _, dir := range []string{filepath.Dir(file), cwd} {
		if _, err := os.Stat(filepath.Join(dir, "kubernetes", minor(defaultVersion), "go.mod")); err == nil {
			return dir, nil
		}
		tried = append(tried, dir)
	}
	return "", fmt.Errorf("the nested modules are not below %s: run this with `go run .` in test/cluster",
		strings.Join(tried, " or "))
}

// ensure builds the component unless it is cached, and returns the folder of its binaries.
func (c component) ensure(out *progress) (string, error) {
	cache, err := cacheRoot()
	if err != nil {
		return "", err
	}

	source, err := sourceRoot()
	if err != nil {
		return "", err
	}

	module := filepath.Join(source, c.module)
	if _, err := os.Stat(filepath.Join(module, "go.sum")); err != nil && c.requires != "" {
		return "", fmt.Errorf("%s %s cannot be built: %s has no go.sum, because the Go proxy did not serve all its modules (see README.md)",
			c.name, c.version, module)
	}

	recipe, err := c.recipe(module)
	if err != nil {
		return "", err
	}

	dir := filepath.Join(cache, c.name, c.version)
	if c.cached(dir, recipe) {
		return dir, nil
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return "", err
	}

	unlock, err := lock(filepath.Dir(dir)) // another run may be building the same
	if err != nil {
		return "", err
	}

	defer unlock()
	if c.cached(dir, recipe) {
		return dir, nil
	}

	tmp, err := os.MkdirTemp(filepath.Dir(dir), ".build-")
	if err != nil {
		return "", err
	}

	defer os.RemoveAll(tmp)
	if err := os.Chmod(tmp, 0o755); err != nil {
		return "", err
	}

	env, err := c.cEnvironment(out)
	if err != nil {
		return "", err
	}

	s := out.step(fmt.Sprintf("building %s %s", c.name, c.version), c.expected)
	if err := s.end(c.build(module, tmp, env, s)); err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(tmp, "recipe"), []byte(recipe), 0o644); err != nil {
		return "", err
	}

	return dir, replaceDir(tmp, dir)
}

// cached reports whether dir contains the result of this recipe.
func (c component) cached(dir, recipe string) bool {
	b, err := os.ReadFile(filepath.Join(dir, "recipe"))
	if err != nil || string(b) != recipe {
		return false
	}
	for _, name := range c.binaries() {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			return false
		}
	}
	return true
}

// recipe returns a digest of everything that affects the result of the build.
func (c component) recipe(module string) (string, error) {
	h := sha256.New()
	fmt.Fprintln(h, c.version, c.binaries(), c.ldflags, c.tags, c.cgo, c.library, runtime.Version())
	files, err := os.ReadDir(module)
	if err != nil {
		return "", err
	}

	for _, f := range files {
		if f.IsDir() {
			continue
		}
		b, err := os.ReadFile(filepath.Join(module, f.Name()))
		if err != nil {
			return "", err
		}
		fmt.Fprintf(h, "%s %x\n", f.Name(), sha256.Sum256(b))
	}

	return hex.EncodeToString(h.Sum(nil)), nil
}

// cEnvironment returns the environment for C code: either none, or a compiler and the library, which is
// downloaded but not installed.
func (c component) cEnvironment(out *progress) ([]string, error) {
	if !c.cgo {
		return []string{"CGO_ENABLED=0"}, nil
	}
	if err := ensureTools(compilerTools, out); err != nil {
		return nil, err
	}

	root, err := debianPackage(c.library, out)
	if err != nil {
		return nil, err
	}

	found, err := filepath.Glob(filepath.Join(root, "usr/lib/*/pkgconfig"))
	if err != nil || len(found) != 1 {
		return nil, fmt.Errorf("the package %s has no pkgconfig folder", c.library)
	}

	return []string{"CGO_ENABLED=1", "PKG_CONFIG_PATH=" + found[0], "PKG_CONFIG_SYSROOT_DIR=" + root}, nil
}

func (c component) build(module, dir string, env []string, s *step) error {
	compiled := 0
	for _, name := range slices.Sorted(maps.Keys(c.packages)) {
		args := []string{"build", "-v", "-trimpath", "-buildvcs=false", "-mod=readonly", "-tags", c.tags,
			"-ldflags", "-s -w " + c.ldflags, "-o", filepath.Join(dir, name), c.packages[name]}
		cmd := exec.Command("go", args...)
		cmd.Dir = module
		cmd.Env = append(append(os.Environ(), env...), "GOWORK=off", "GOFLAGS=", "GOOS=", "GOARCH=")
		stderr, err := cmd.StderrPipe()
		if err != nil {
			return err
		}
		if err := cmd.Start(); err != nil {
			return fmt.Errorf("build %s: %w", name, err)
		}
		said := readBuild(stderr, func() {
			compiled++
			s.set(fmt.Sprintf("%d packages", compiled))
		})
		if err := cmd.Wait(); err != nil {
			return fmt.Errorf("build %s in %s: %w\n%s", name, module, err, said)
		}
	}

	for _, link := range c.links {
		for name := range c.packages {
			if err := os.Link(filepath.Join(dir, name), filepath.Join(dir, link)); err != nil {
				return err
			}
		}
	}

	return nil
}

// readBuild counts the package names that `go build -v` prints, and returns the last other lines.
func readBuild(r io.Reader, compiled func()) string {
	var other bytes.Buffer
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)

	for lines.Scan() {
		if line := lines.Text(); strings.ContainsAny(line, " \t") {
			if other.Len() > 8<<10 {
				other.Reset()
			}
			fmt.Fprintln(&other, line)
		} else {
			compiled()
		}
	}

	io.Copy(io.Discard, r) //nolint:errcheck // only so that the build is not blocked by a line too long for us
	return other.String()
}

// replaceDir replaces dir by tmp. Programs that run from the old folder keep running.
func replaceDir(tmp, dir string) error {
	old := tmp + ".old"
	if err := os.Rename(dir, old); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Rename(tmp, dir); err != nil {
		return err
	}
	return os.RemoveAll(old)
}

// ensureBinaries builds missing binaries of the named components, or of all if none is named. It returns the
// path of each program.
func ensureBinaries(version string, only []string, out *progress) (map[string]string, error) {
	paths := map[string]string{}
	for _, comp := range components(version) {
		if len(only) > 0 && !slices.Contains(only, comp.name) {
			continue
		}
		dir, err := comp.ensure(out)
		if err != nil {
			return nil, err
		}
		for _, b := range comp.binaries() {
			paths[b] = filepath.Join(dir, b)
		}
	}

	return paths, nil
}

// ensureEnvtest returns a folder with etcd, kube-apiserver and kubectl under exactly these names.
func ensureEnvtest(version string, out *progress) (string, error) {
	paths, err := ensureBinaries(version, []string{"etcd", "kubernetes"}, out)
	if err != nil {
		return "", err
	}

	cache, err := cacheRoot()
	if err != nil {
		return "", err
	}

	dir := filepath.Join(cache, "envtest", version)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}

	for _, name := range []string{"etcd", "kube-apiserver", "kubectl"} {
		link := filepath.Join(dir, name)
		if have, err := os.Stat(link); err == nil {
			if want, err := os.Stat(paths[name]); err == nil && os.SameFile(have, want) {
				continue
			}
		}
		tmp := fmt.Sprintf("%s.%d", link, os.Getpid())
		if err := os.Link(paths[name], tmp); err != nil {
			return "", err
		}
		if err := os.Rename(tmp, link); err != nil {
			return "", err
		}
	}

	return dir, nil
}
