package migrate

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"
)

// load reads the manifest in a file. It returns nil if the file does not exist.
func load(file string) (*unstructured.Unstructured, error) {
	raw, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil {
		raw, err = yaml.YAMLToJSON(raw)
	}

	object := &unstructured.Unstructured{}
	if err == nil {
		err = object.UnmarshalJSON(raw)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the manifest in %s: %w", file, err)
	}

	return object, nil
}

// provenance is what a file says of a manifest in the comments at its top.
type provenance struct {
	// namespace is the UID of the namespace, which no other cluster has.
	namespace types.UID
	// revisions are the names by which pods refer to the revision of the manifest.
	revisions []string
}

// origin and ofPods begin the lines of a file that have the provenance of its manifest.
const origin, ofPods = "# UID of the namespace: ", "# Revision of the pods: "

// savedIn returns what a file says of its manifest. What it does not say is empty.
func savedIn(file string) (p provenance, err error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return p, fmt.Errorf("reading the manifest in %s: %w", file, err)
	}
	for line := range strings.Lines(string(raw)) {
		if uid, ok := strings.CutPrefix(line, origin); ok {
			p.namespace = types.UID(strings.TrimSpace(uid))
		} else if names, ok := strings.CutPrefix(line, ofPods); ok {
			p.revisions = strings.Fields(names)
		} else if !strings.HasPrefix(line, "#") {
			break
		}
	}
	return p, nil
}

// save writes the manifest of an object and its provenance to a file, and syncs the file. It never overwrites the manifest
// of another object.
func save(file string, object *unstructured.Unstructured, from provenance) error {
	old, err := load(file)
	if err != nil {
		return err
	}
	if old != nil && old.GetUID() != object.GetUID() {
		return fmt.Errorf(
			"%s has the manifest of another object: move it away, or name another file with --backup", file)
	}

	manifest := object.DeepCopy()
	for _, field := range []string{"resourceVersion", "managedFields", "generation", "creationTimestamp",
		"selfLink"} {
		unstructured.RemoveNestedField(manifest.Object, "metadata", field)
	}

	delete(manifest.Object, "status")
	raw, err := yaml.Marshal(manifest.Object)
	if err != nil {
		return err
	}
	head := ofPods + strings.Join(slices.Compact(slices.Clone(from.revisions)), " ") + "\n"
	if from.namespace != "" {
		head = origin + string(from.namespace) + "\n" + head
	}
	raw = append([]byte(head), raw...)

	written, err := os.CreateTemp(filepath.Dir(file), filepath.Base(file)+".*")
	if err != nil {
		return fmt.Errorf("keeping the manifest: %w", err)
	}

	_, err = written.Write(raw)
	if err == nil {
		err = written.Sync()
	}
	if closed := written.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Rename(written.Name(), file)
	}
	if err != nil {
		_ = os.Remove(written.Name())
		return fmt.Errorf("keeping the manifest: %w", err)
	}

	return nil
}

// setAside renames the file and returns its new name, or nothing if the file does not exist.
func setAside(file string) (string, error) {
	err := os.Rename(file, file+".done")
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	} else if err != nil {
		return "", fmt.Errorf("putting the manifest aside: %w", err)
	}
	return file + ".done", nil
}
