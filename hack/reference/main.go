// Command reference writes docs/reference: a page for each kind, made from the CustomResourceDefinitions with
// their full descriptions, and one for labels and annotations, made from the constants in api/.
// hack/generate.sh calls it.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

const generated = "<!-- Written by make generate from api/. Changes belong there. -->\n\n"

// guides maps kinds to pages of the manual whose names differ from the name of the kind.
var guides = map[string]string{
	"ContainerRecreateRequest": "container-recreate",
	"ImageListPullJob":         "image-pull",
	"ImagePullJob":             "image-pull",
	"NodeImage":                "image-pull",
}

func main() {
	crds := flag.String("crds", "", "folder of CustomResourceDefinitions")
	api := flag.String("api", "api", "folder of the Go packages")
	out := flag.String("out", "docs/reference", "folder to write")
	flag.Parse()
	if err := run(*crds, *api, *out); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(crds, api, out string) error {
	files, err := filepath.Glob(filepath.Join(crds, "*.yaml"))
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return fmt.Errorf("no CustomResourceDefinition in %q", crds)
	}

	pages := map[string]string{}
	var kinds []kind
	for _, file := range files {
		text, err := os.ReadFile(file) //nolint:gosec // it is the caller's folder
		if err != nil {
			return err
		}
		var crd apiextensionsv1.CustomResourceDefinition
		if err := yaml.UnmarshalStrict(text, &crd); err != nil {
			return fmt.Errorf("reading %s: %w", file, err)
		}
		k := newKind(&crd)
		kinds = append(kinds, k)
		pages[k.file()] = k.page()
	}

	slices.SortFunc(kinds, func(a, b kind) int {
		return strings.Compare(a.crd.Spec.Names.Kind, b.crd.Spec.Names.Kind)
	})
	groups, err := keys(api)
	if err != nil {
		return fmt.Errorf("reading the keys in %s: %w", api, err)
	}

	pages["keys.md"] = keysPage(groups)
	pages["README.md"] = index(kinds)
	return write(out, pages)
}

// write replaces the Markdown files in a folder by the pages.
func write(folder string, pages map[string]string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil { //nolint:gosec // documentation is for all to read
		return err
	}

	old, err := filepath.Glob(filepath.Join(folder, "*.md"))
	errs := []error{err}
	for _, file := range old {
		if _, ok := pages[filepath.Base(file)]; !ok {
			errs = append(errs, os.Remove(file))
		}
	}

	for name, text := range pages {
		//nolint:gosec // documentation is for all to read
		errs = append(errs, os.WriteFile(filepath.Join(folder, name), []byte(text), 0o644))
	}

	return errors.Join(errs...)
}

func index(kinds []kind) string {
	var b strings.Builder
	b.WriteString("# API reference\n\n" + generated)
	b.WriteString(
		"Every field of every kind, with the versions that have it. Pod templates are those of Kubernetes: see `kubectl explain pod.spec`.\n\n")
	b.WriteString("| kind | what it is | group | versions | short names |\n|---|---|---|---|---|\n")

	for _, k := range kinds {
		fmt.Fprintf(&b, "| [%s](%s) | %s | %s | %s | %s |\n",
			k.crd.Spec.Names.Kind, k.file(), escape(k.summary()), k.crd.Spec.Group,
			strings.Join(k.names(), ", "), code(k.crd.Spec.Names.ShortNames))
	}

	b.WriteString("\n[Labels and annotations](keys.md) have a page of their own.\n\n")
	b.WriteString("## How to read the tables\n\n" +
		"- A field that only some versions have says so. All others are in every version of the kind.\n" +
		"- **Required** fields must be given. Every other field may be left out.\n" +
		"- `spec.subsets[]` is an entry of the list `spec.subsets`; `status.images.*` is a value of the map `status.images`.\n" +
		"- Objects of one version are readable and writable in the other; nothing is lost by that.\n")

	return b.String()
}
