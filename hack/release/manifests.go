package main

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// manifestFiles are the plain manifests by the folder of config that they are rendered from.
var manifestFiles = []struct{ file, folder string }{
	{"install.yaml", "default"},
	{"install-external-certs.yaml", "external-certs"},
	{"crds.yaml", "crd"},
}

// placeholder is the repository and the tag of images in the sources of manifests and chart.
const placeholder, placeholderTag = "afloat", "dev"

// manifests writes the plain manifests with the images of the release.
func (r *release) manifests(context.Context, *binaries) error {
	memory := filesys.MakeFsInMemory()
	config := os.DirFS(filepath.Join(r.root, "config"))
	if err := fs.WalkDir(config, ".", func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || !strings.HasSuffix(path, ".yaml") {
			return err
		}
		content, err := fs.ReadFile(config, path)
		if err != nil {
			return err
		}
		return memory.WriteFile("/"+path, content)
	}); err != nil {
		return err
	}

	for _, m := range manifestFiles {
		text := "resources: [../" + m.folder + "]\nimages:\n"
		for _, p := range r.programs {
			if p.image != "" {
				text += fmt.Sprintf("- {name: %s/%s, newName: %s/%[2]s, newTag: %[4]s}\n", placeholder,
					p.image, r.repository, r.version)
			}
		}
		if err := memory.WriteFile("/release-"+m.folder+"/kustomization.yaml", []byte(text)); err != nil {
			return err
		}
		options := krusty.MakeDefaultOptions()
		// so that one kubectl apply does: namespaces first, webhooks last
		options.Reorder = krusty.ReorderOptionLegacy
		objects, err := krusty.MakeKustomizer(options).Run(memory, "/release-"+m.folder)
		if err != nil {
			return fmt.Errorf("render config/%s: %w", m.folder, err)
		}
		rendered, err := objects.AsYaml()
		if err != nil {
			return err
		}
		if err := r.checkImages(m.file, string(rendered)); err != nil {
			return err
		}
		head := fmt.Sprintf("# Afloat %s: kubectl apply --server-side -f %s/%s\n", r.version,
			r.downloads, m.file)
		if err := os.WriteFile(r.path(m.file), append([]byte(head), rendered...), 0o644); err != nil {
			return err
		}
	}

	return nil
}

// checkImages returns an error if manifests have an image that is not of this release.
func (r *release) checkImages(where, text string) error {
	for line := range strings.Lines(text) {
		_, image, ok := strings.Cut(line, " image: ")
		image = strings.Trim(strings.TrimSpace(image), `"'`)
		if ok && !slices.ContainsFunc(r.programs, func(p program) bool {
			return p.image != "" && r.imageName(p) == image
		}) {
			return fmt.Errorf("%s has the image %s, which is not of this release", where, image)
		}
	}
	return nil
}
