// Package config has the manifests of an installation, for programs that apply or compare them.
package config

import (
	"embed"
	"fmt"
	"io/fs"
	"sync"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

//go:embed crd/kustomization.yaml crd/bases/*.yaml rbac/*.yaml webhook/*.yaml manager/*.yaml daemon/*.yaml default/*.yaml resource-distribution/*.yaml
var files embed.FS

// Default is config/default as kustomize renders it, in YAML.
var Default = sync.OnceValues(func() ([]byte, error) { return unpack("/default") })

// ResourceDistribution is config/resource-distribution: what feature gate ResourceDistributionGate needs
// beside Default (RD-021).
var ResourceDistribution = sync.OnceValues(func() ([]byte, error) { return unpack("/resource-distribution") })

func unpack(folder string) ([]byte, error) {
	memory := filesys.MakeFsInMemory()
	if err := fs.WalkDir(files, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := files.ReadFile(path)
		if err != nil {
			return fmt.Errorf("reading %s: %w", path, err)
		}
		return memory.WriteFile("/"+path, content)
	}); err != nil {
		return nil, fmt.Errorf("unpacking the manifests: %w", err)
	}
	return render(memory, folder)
}

// Folder is a folder with a kustomization, as kustomize renders it.
func Folder(path string) ([]byte, error) { return render(filesys.MakeFsOnDisk(), path) }

func render(from filesys.FileSystem, path string) ([]byte, error) {
	objects, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(from, path)
	if err != nil {
		return nil, fmt.Errorf("rendering the manifests: %w", err)
	}
	return objects.AsYaml()
}
