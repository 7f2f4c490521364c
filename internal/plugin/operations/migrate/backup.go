package migrate

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
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

// origin begins the first line of a file. The UID of the namespace follows, which no other cluster has.
const origin = "# UID of the namespace: "

// savedIn returns the UID of the namespace that a saved manifest is from, or nothing if the file does not
// contain it.
func savedIn(file string) (types.UID, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("reading the manifest in %s: %w", file, err)
	}
	line, _, _ := strings.Cut(string(raw), "\n")
	uid, ok := strings.CutPrefix(line, origin)
	if !ok {
		return "", nil
	}
	return types.UID(strings.TrimSpace(uid)), nil
}

// save writes the manifest of an object and the UID of its namespace to a file, and syncs the file. It never
// overwrites the manifest of another object.
func save(file string, object *unstructured.Unstructured, namespace types.UID) error {
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
	if namespace != "" {
		raw = append([]byte(origin+string(namespace)+"\n"), raw...)
	}

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
