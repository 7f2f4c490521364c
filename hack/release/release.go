package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/semver"
)

// release is what one release is made of, and where it goes. The same values make the same bytes.
type release struct {
	root, out, chart      string
	version, commit       string
	repository, downloads string
	builder               string
	date                  time.Time
	platforms             []platform
	programs              []program
	say                   func(format string, a ...any)

	images map[string]string // of each image the digest of its index, by name
}

const (
	checksums      = "SHA256SUMS"
	provenanceFile = "provenance.intoto.json"
	imagesFile     = "images.txt"
)

// build makes the release, all of it or nothing.
func (r *release) build(ctx context.Context) error {
	if err := r.check(); err != nil {
		return err
	}
	if err := r.empty(); err != nil {
		return err
	}
	if err := r.make(ctx); err != nil {
		names, listed := r.files()
		for _, name := range names {
			listed = errors.Join(listed, os.Remove(r.path(name)))
		}
		return errors.Join(err, listed)
	}

	r.say("release %s is in %s", r.version, r.out)
	return nil
}

// make fills the folder.
func (r *release) make(ctx context.Context) error {
	built, err := r.compile(ctx)
	if err != nil {
		return err
	}
	defer built.remove()

	for _, step := range []struct {
		what string
		make func(context.Context, *binaries) error
	}{
		{"archives of the programs", r.archives},
		{"images", r.writeImages},
		{"lists of components", r.boms},
		{"manifests", r.manifests},
		{"chart", r.packageChart},
		{"manifest of the plugin for krew", r.krew},
		{"notes", r.writeNotes},
		{"provenance", r.provenance},
	} {
		r.say("%s", step.what)
		if err := step.make(ctx, built); err != nil {
			return fmt.Errorf("%s: %w", step.what, err)
		}
	}

	if err := r.writeChecksums(); err != nil {
		return fmt.Errorf("checksums: %w", err)
	}

	return nil
}

// check refuses what would make a release that is of no use, before anything is compiled.
func (r *release) check() error {
	var wrong []error
	if !strings.HasPrefix(r.version, "v") || !semver.IsValid(r.version) ||
		semver.Canonical(r.version) != r.version {
		wrong = append(wrong, fmt.Errorf("VERSION %q is no version such as v0.1.0 or v0.1.0-rc.1", r.version))
	}
	if r.repository == "" || strings.HasSuffix(r.repository, "/") {
		wrong = append(wrong, fmt.Errorf("REPOSITORY %q is no place such as registry.example.com/afloat",
			r.repository))
	}
	if !strings.HasPrefix(r.downloads, "https://") && !strings.HasPrefix(r.downloads, "http://127.0.0.1:") {
		wrong = append(wrong, fmt.Errorf("DOWNLOADS %q does not begin with https://", r.downloads))
	}
	if r.out == "" {
		wrong = append(wrong, errors.New("OUT is empty"))
	}
	_, err := r.notes()
	return errors.Join(append(wrong, err)...)
}

// notesFile has what a release changes.
const notesFile = "release-notes.md"

// notes returns the page of the release, and below it all changes. A release that comes before it, such as
// v0.1.0-rc.1, has the notes of what is not released.
func (r *release) notes() ([]byte, error) {
	page, section := r.version+".md", "## "+r.version+"\n"
	if semver.Prerelease(r.version) != "" {
		page, section = "unreleased.md", "## Unreleased\n"
	}
	text, err := os.ReadFile(filepath.Join(r.root, "docs/releases", page))
	if err != nil {
		return nil, fmt.Errorf("the release has no notes: make release-notes VERSION=%s makes them: %w",
			r.version, err)
	}

	changes, err := os.ReadFile(filepath.Join(r.root, "CHANGELOG.md"))
	if err != nil {
		return nil, err
	}

	_, changed, ok := strings.Cut(string(changes), "\n"+section)
	if !ok {
		return nil, fmt.Errorf("CHANGELOG.md has no section %q", strings.TrimSpace(section))
	}

	changed, _, _ = strings.Cut(changed, "\n## ")
	whole := fmt.Sprintf("%s\n## All changes\n\n%s\n", text, strings.TrimSpace(changed))
	files := source + "/blob/" + r.version + "/"
	return []byte(strings.NewReplacer("](../", "]("+files+"docs/", "](docs/",
		"]("+files+"docs/").Replace(whole)), nil
}

func (r *release) writeNotes(context.Context, *binaries) error {
	text, err := r.notes()
	if err != nil {
		return err
	}
	return os.WriteFile(r.path(notesFile), text, 0o644)
}

// empty removes what an earlier release left in its folder, and refuses a folder with anything else in it.
func (r *release) empty() error {
	entries, err := os.ReadDir(r.out)
	if errors.Is(err, os.ErrNotExist) || err == nil && len(entries) == 0 {
		return os.MkdirAll(r.out, 0o755)
	}
	if err != nil {
		return err
	}

	sums, err := r.readChecksums()
	if err != nil {
		return fmt.Errorf("%s is not empty, and not from an earlier release: %w", r.out, err)
	}

	for _, e := range entries {
		if _, ok := sums[e.Name()]; !ok && e.Name() != checksums {
			return fmt.Errorf("%s has %s in it, which is not of a release", r.out, e.Name())
		}
	}

	for _, e := range entries {
		if err := os.Remove(r.path(e.Name())); err != nil {
			return err
		}
	}

	return nil
}

// files returns the names of the files that are made so far, in order.
func (r *release) files() ([]string, error) {
	entries, err := os.ReadDir(r.out)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, nil
}

// writeChecksums writes the checksums of all files, in the form that sha256sum -c reads.
func (r *release) writeChecksums() error {
	names, err := r.files()
	if err != nil {
		return err
	}

	var text bytes.Buffer
	for _, name := range names {
		sum, err := checksum(r.path(name))
		if err != nil {
			return err
		}
		fmt.Fprintf(&text, "%s  %s\n", sum, name)
	}

	return os.WriteFile(r.path(checksums), text.Bytes(), 0o644)
}

// readChecksums returns what the file of checksums says of each file.
func (r *release) readChecksums() (map[string]string, error) {
	text, err := os.ReadFile(r.path(checksums))
	if err != nil {
		return nil, err
	}

	sums := map[string]string{}
	for line := range strings.Lines(string(text)) {
		sum, name, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "  ")
		if !ok {
			return nil, fmt.Errorf("%s: what is %q?", checksums, line)
		}
		sums[name] = sum
	}

	return sums, nil
}

// verify returns an error unless the folder has just the files of the checksums, as they were made.
func (r *release) verify() error {
	sums, err := r.readChecksums()
	if err != nil {
		return err
	}

	names, err := r.files()
	if err != nil {
		return err
	}

	var wrong []error
	for _, name := range names {
		if _, ok := sums[name]; !ok && name != checksums {
			wrong = append(wrong, fmt.Errorf("%s is not in %s", name, checksums))
		}
	}

	for name, want := range sums {
		if !slices.Contains(names, name) {
			wrong = append(wrong, fmt.Errorf("%s is missing", name))
		} else if got, err := checksum(r.path(name)); err != nil || got != want {
			wrong = append(wrong, errors.Join(fmt.Errorf("%s is not as it was made", name), err))
		}
	}

	return errors.Join(wrong...)
}

// checksum returns the SHA-256 of a file, in hexadecimal.
func checksum(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", fmt.Errorf("read %s: %w", path, err)
	}
	return fmt.Sprintf("%x", h.Sum(nil)), nil
}
